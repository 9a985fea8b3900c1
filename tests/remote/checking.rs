//! `rowmill check` tries the place that is pushed to, and leaves nothing there.

use futures::TryStreamExt;
use object_store::ObjectStore;
use serde_json::{Value, json};

use super::command::{Place, Ran, TEXTS};
use super::servers::{Bucket, Server};

fn place(url: &str) -> Place {
    let place = Place::of_texts(2);
    place.write("p.toml", format!("{TEXTS}\n[push]\nurl = \"{url}\"\n"));
    place
}

fn check(place: &Place, bucket: &Bucket, args: &[&str]) -> Ran {
    let mut command = place.command(&[&["check", "p.toml"], args].concat());
    command.envs(bucket.environment(&bucket.endpoint()));
    Ran::of(command.output().unwrap())
}

/// Whether nothing is in the bucket.
fn is_empty(bucket: &Bucket) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = async { bucket.store().list(None).try_next().await };
    runtime.block_on(found).unwrap().is_none()
}

#[test]
fn a_check_says_what_the_place_can_do_and_leaves_it_as_it_was() {
    for server in Server::all() {
        let bucket = server.bucket();
        let place = place(&bucket.url("sets"));
        let ran = check(&place, &bucket, &["--json"]);
        assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let push = &report["push"];
        assert_eq!(push["conditional_create"], true, "{}: {push}", server.name);
        assert_eq!(push["multipart"], true, "{}: {push}", server.name);
        if server.name == "moto" {
            let all = ["list", "write", "create only", "replace only", "write in parts"];
            let all = [&all[..], &["read a range", "delete"]].concat();
            assert_eq!((&push["works"], &push["lacks"]), (&json!(all), &json!([])), "{push}");
        }
        let ran = check(&place, &bucket, &[]);
        assert!(ran.stdout.contains("list, write, create only"), "{ran:?}");
        assert!(is_empty(&bucket), "{}", server.name);
    }
}

#[test]
fn a_check_fails_where_a_push_would() {
    let Some(server) = Server::moto() else { return };
    let bucket = server.bucket();
    for (url, code, texts) in [
        ("s3://no-such-bucket/x", 1, ["error[remote-no-bucket]", "hint: create the bucket"]),
        ("https://example.org/x", 2, ["error[remote-unsupported]", "can only be read"]),
    ] {
        let ran = check(&place(url), &bucket, &[]);
        ran.fails(code, &texts);
        assert!(!ran.stderr.contains(bucket.secret()), "{ran:?}");
    }
}
