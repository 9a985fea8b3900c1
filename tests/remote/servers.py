"""Starts an S3-compatible server on a free port of loopback, for the tests beside this file.

    servers.py moto
    servers.py s3s-fs BINARY

Both check signatures. The first line on stdout is a JSON object: where the server listens, and the keys to sign with. Then
each line on stdin names a bucket, which is made before it is answered. The server ends with stdin: with the process that
started it, however that ends.
"""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HOST = "127.0.0.1"


def say(what):
    print(json.dumps(what), flush=True)


def moto():
    # The first three requests make what the others are signed with.
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "3"
    import boto3
    import flask
    from moto.iam.access_control import S3IAMRequest
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    # Requests that are cut are what the tests are about.
    logging.disable(logging.CRITICAL)
    signed = S3IAMRequest._create_aws_request

    def as_sent(request):
        # Moto computes signatures of URLs without their escapes; they were made with them.
        path, _, query = flask.request.environ["REQUEST_URI"].partition("?")
        request._path = path + "?" + query.replace("+", "%20")
        return signed(request)

    S3IAMRequest._create_aws_request = as_sent
    server = ThreadedMotoServer(HOST, 0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]

    def client(service, key, secret):
        return boto3.client(
            service,
            endpoint_url=f"http://{HOST}:{port}",
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )

    iam = client("iam", "nobody", "nothing")
    iam.create_user(UserName="tests")
    may = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName="tests", PolicyName="all", PolicyDocument=json.dumps(may))
    keys = iam.create_access_key(UserName="tests")["AccessKey"]
    say({"port": port, "key": keys["AccessKeyId"], "secret": keys["SecretAccessKey"]})
    s3 = client("s3", keys["AccessKeyId"], keys["SecretAccessKey"])
    for line in sys.stdin:
        s3.create_bucket(Bucket=line.strip())
        say("made")


def free_port():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


def listens(port, process):
    """Whether the process comes to listen; not if it ends first, as it does where somebody took the port."""
    while process.poll() is None:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False


def s3s_fs(binary):
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = tempfile.mkdtemp(prefix="rowmill-s3s-", dir=memory)
    process = None
    try:
        while True:
            port, key, secret = free_port(), "tests-key", "tests-secret"
            command = [binary, "--host", HOST, "--port", str(port), "--access-key", key, "--secret-key", secret, folder]
            quiet = {"RUST_LOG": "off", "PATH": os.environ.get("PATH", "")}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=quiet)
            if listens(port, process):
                break
        say({"port": port, "key": key, "secret": secret})
        for line in sys.stdin:
            os.mkdir(os.path.join(folder, line.strip()))
            say("made")
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    moto() if sys.argv[1] == "moto" else s3s_fs(sys.argv[2])
