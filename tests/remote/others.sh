#!/usr/bin/env bash
# Pushes to, pulls from and cleans stores that the tests beside this file do not start: Azurite and s3rver, both from npm.
#
#     npm install --prefix FOLDER azurite s3rver && cargo build && tests/remote/others.sh target/debug/rowmill FOLDER
set -uo pipefail
here=$(dirname "$(realpath "$0")")
rowmill=$(realpath "$1")
bin=$(realpath "$2")/node_modules/.bin
folder=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder"
mkdir in azurite s3rver
for i in 1 2 3; do head -c 7000000 /dev/urandom > "in/$i.bin"; done
cp "$here/blobs.toml" p.toml

step() {   # NAME COMMAND...: says how it went, and what was said where it failed
    local name=$1; shift
    if "$@" > said 2>&1; then echo "  ok      $name"; else echo "  FAILED  $name ($?)"; tail -3 said | sed 's/^/          /'; fi
}
says() { grep -q "$1" said && echo "  ok      $2" || { echo "  FAILED  $2"; tail -3 said; }; }
same() { diff -r --exclude=work --exclude='*.lock' "$@"; }

try() {    # URL
    rm -rf data back other
    step "build" "$rowmill" run p.toml --out data
    step "push, in parts" "$rowmill" push data/blobs "$1/a" --part-size 5MiB --json
    step "push again" "$rowmill" push data/blobs "$1/a" --json
    says '"sent_objects": 0' "nothing is sent again"
    step "verify there" "$rowmill" verify "$1/a/blobs"
    step "pull" "$rowmill" pull "$1/a/blobs" back
    step "the same bytes" same data/blobs/current/ back/blobs/current/
    step "build at the place" "$rowmill" run p.toml --out other --at "$1/b"
    step "the same bytes" same data/blobs/current/ other/blobs/current/
    step "verify there" "$rowmill" verify "$1/b/blobs"
    head -c 7000000 /dev/urandom > in/1.bin
    step "build another generation" "$rowmill" run p.toml --out data
    step "push it" "$rowmill" push data/blobs "$1/a" --part-size 5MiB --json
    grep '"unguarded": "' said | sed 's/^ */          /'
    step "clean" "$rowmill" clean "$1/a/blobs" --older-than=0s --keep=0 --yes
    says '^shard ' "the shard that nothing names goes"
    grep '^note ' said | sed 's/^/          /'
    step "verify there" "$rowmill" verify "$1/a/blobs"
}

await() { until (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do sleep 0.2; done; }

echo "azurite $("$bin/azurite-blob" --version)"
"$bin/azurite-blob" --silent --disableTelemetry --skipApiVersionCheck --location azurite --blobPort 10123 > azurite.log 2>&1 &
servers+=($!)
await 10123
export AZURE_STORAGE_ACCOUNT_NAME=devstoreaccount1 AZURE_ALLOW_HTTP=true
# The key of every Azurite, as its documentation has it.
export AZURE_STORAGE_ACCOUNT_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
export AZURE_STORAGE_ENDPOINT=http://127.0.0.1:10123/devstoreaccount1
python3 - <<'END'
import base64, email.utils, hashlib, hmac, os, urllib.request
account, date = os.environ["AZURE_STORAGE_ACCOUNT_NAME"], email.utils.formatdate(usegmt=True)
headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
text = "PUT" + "\n" * 12 + "".join(f"{k}:{v}\n" for k, v in headers.items()) + f"/{account}/{account}/box\nrestype:container"
key = base64.b64decode(os.environ["AZURE_STORAGE_ACCOUNT_KEY"])
signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
headers["Authorization"] = f"SharedKey {account}:{signature}"
urllib.request.urlopen(urllib.request.Request(os.environ["AZURE_STORAGE_ENDPOINT"] + "/box?restype=container", method="PUT", headers=headers))
END
try az://box

echo "s3rver $("$bin/s3rver" --version)"
"$bin/s3rver" --silent --address 127.0.0.1 --port 10124 --directory s3rver --configure-bucket box > s3rver.log 2>&1 &
servers+=($!)
await 10124
export AWS_ACCESS_KEY_ID=S3RVER AWS_SECRET_ACCESS_KEY=S3RVER AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:10124 AWS_ALLOW_HTTP=true
try s3://box
