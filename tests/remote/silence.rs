//! Stores that do not answer.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::Value;

use super::command::Place;

#[test]
fn a_command_says_which_store_does_not_answer_while_it_goes_on_trying() {
    // Nobody listens there any more.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = Place::new();
    let environment = [
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "hush".to_owned()),
    ];
    let mut command = place.command(&["verify", "s3://bucket/prefix", "--log", "json"]);
    let mut child = command.envs(environment).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
    assert_eq!(child.try_wait().unwrap(), None, "it goes on");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(first["level"], "WARN", "{first}");
    assert_eq!(first["fields"]["message"], "the store does not answer", "{first}");
    assert_eq!(first["fields"]["endpoint"], format!("http://{address}"), "{first}");
    assert_eq!(first["fields"]["tried"], "each request for up to 45 s", "{first}");
    assert_eq!(said.count(), 0, "it is said once");
}
