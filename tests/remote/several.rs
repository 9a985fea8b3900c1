//! Several runs that finish one dataset at one place.
#![allow(clippy::disallowed_methods, reason = "a test looks at files as another process left them")]

use super::command::{Place, Ran};
use super::proxy::Request;
use super::servers::Server;

/// Each file is a partition of one row.
const DEFINITION: &str = r#"version = 1
name = "blobs"

[sources.files]
type = "files"
root = "in"
path = "*"

[dataset]
partition_bytes = 1
"#;

/// A folder with a definition, and files of which each is a partition.
fn place(n_files: usize, more: &str) -> Place {
    let place = Place::new();
    place.write("p.toml", format!("{DEFINITION}{more}"));
    for n in 0..n_files {
        place.write(&format!("in/{n:02}"), format!("file {n}"));
    }
    place
}

#[test]
fn records_of_partitions_go_out_behind_their_shards_while_later_ones_are_built() {
    let Some(server) = Server::all().next() else { return };
    let bucket = server.bucket();
    let (url, proxy) = (bucket.url("prefix"), bucket.proxy());
    let place = place(30, &format!("\n[push]\nurl = \"{url}\"\n"));
    let mut command = place.command(&["run", "p.toml", "--jobs=1"]);
    command.envs(bucket.environment(&proxy.endpoint()));
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    let requests = proxy.requests();
    let is_put = |it: &Request, part: &str| it.operation == "PutObject" && it.key.contains(part);
    let sentinel = |it: &Request| is_put(it, "/shards/") && it.key.ends_with("/_COMPLETE");
    let first_record = requests.iter().position(|it| is_put(it, "/partitions/")).unwrap();
    let last_sentinel = requests.iter().rposition(sentinel).unwrap();
    assert!(first_record < last_sentinel, "{requests:#?}");
    for (at, request) in requests.iter().enumerate() {
        if !is_put(request, "/partitions/") {
            continue;
        }
        // The partition has one shard, which its record names.
        let (_, name) = request.key.rsplit_once('/').unwrap();
        let record = place.current("data", "blobs").join("partitions").join(name);
        let record: serde_json::Value =
            serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
        let shard = format!("/shards/{}/_COMPLETE", record["shards"][0]["id"].as_str().unwrap());
        let sent = requests.iter().position(|it| is_put(it, &shard)).unwrap();
        assert!(sent < at, "{name} before {shard}");
    }
}
