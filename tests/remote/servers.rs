//! S3-compatible servers on loopback that are not ours, and buckets on them.
//!
//! Invariants:
//! 1. A server is started once per test process, when the first test asks for it, and ends with the
//!    process, however that ends.
//! 2. Each test has buckets of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{BackoffConfig, RetryConfig};
use serde_json::Value;

use super::command::{python, skip};
use super::proxy::Proxy;

/// A server that is up.
#[derive(Debug)]
pub(crate) struct Server {
    /// `moto` or `s3s-fs`.
    pub(crate) name: &'static str,
    address: SocketAddr,
    key: String,
    secret: String,
    talk: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    made: AtomicUsize,
    // Ends when its stdin does, which our end of the pipe sees to.
    _child: Child,
}

static MOTO: LazyLock<Option<Server>> = LazyLock::new(|| {
    python(&["boto3", "flask", "moto.server"])?;
    Some(Server::start("moto", &["moto"]))
});

static S3S_FS: LazyLock<Option<Server>> = LazyLock::new(|| {
    python(&[])?;
    let Some(binary) = s3s_fs() else {
        skip(
            "s3s-fs is not installed: `cargo install s3s-fs --version 0.14.1 --locked --features binary`",
        );
        return None;
    };
    Some(Server::start("s3s-fs", &["s3s-fs", binary.to_str().unwrap()]))
});

/// The binary, in `target/tools` or where the shell finds it.
fn s3s_fs() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let found = std::env::var_os("PATH").unwrap_or_default();
    let mut places = vec![target.join("tools/bin")];
    places.extend(std::env::split_paths(&found));
    places.into_iter().map(|dir| dir.join("s3s-fs")).find(|path| path.is_file())
}

impl Server {
    /// Moto, which answers conditional writes as S3 does; `None` (and a line that says so) where it
    /// is not installed.
    pub(crate) fn moto() -> Option<&'static Self> {
        MOTO.as_ref()
    }

    /// s3s-fs, which keeps objects in files; `None` (and a line that says so) where it is not
    /// installed.
    pub(crate) fn s3s_fs() -> Option<&'static Self> {
        S3S_FS.as_ref()
    }

    /// All that are installed.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        [Self::moto(), Self::s3s_fs()].into_iter().flatten()
    }

    fn start(name: &'static str, args: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remote/servers.py");
        let mut command = Command::new("python3");
        command.arg(script).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = |key: &str| said[key].as_str().unwrap().to_owned();
        let port = u16::try_from(said["port"].as_u64().unwrap()).unwrap();
        Self {
            name,
            address: ([127, 0, 0, 1], port).into(),
            key: text("key"),
            secret: text("secret"),
            talk: Mutex::new((stdin, stdout)),
            made: AtomicUsize::new(0),
            _child: child,
        }
    }

    /// A new empty bucket.
    pub(crate) fn bucket(&'static self) -> Bucket {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("bucket-{number}");
        let mut talk = self.talk.lock().unwrap();
        writeln!(talk.0, "{name}").unwrap();
        let mut line = String::new();
        talk.1.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "\"made\"", "{}: {name}", self.name);
        Bucket { server: self, name }
    }
}

/// A bucket on a server.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) server: &'static Server,
    pub(crate) name: String,
}

impl Bucket {
    /// The URL of what lies below `path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("s3://{}/{path}", self.name)
    }

    /// Where the server itself listens.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// A proxy in front of the server.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::new(self.server.address)
    }

    /// What a process finds in its environment to come to this bucket through `endpoint`.
    pub(crate) fn environment(&self, endpoint: &str) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", self.server.key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.server.secret.clone()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT", endpoint.to_owned()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// What no log, error or document may hold.
    pub(crate) fn secret(&self) -> &str {
        &self.server.secret
    }

    /// The plain client, straight to the server.
    pub(crate) fn store(&self) -> Arc<AmazonS3> {
        self.store_through(&self.endpoint())
    }

    /// The plain client through `endpoint`. It tries three times, at once.
    pub(crate) fn store_through(&self, endpoint: &str) -> Arc<AmazonS3> {
        self.client(endpoint, 2)
    }

    /// The plain client, which tries only once.
    pub(crate) fn store_once(&self, endpoint: &str) -> Arc<AmazonS3> {
        self.client(endpoint, 0)
    }

    fn client(&self, endpoint: &str, max_retries: usize) -> Arc<AmazonS3> {
        let [init_backoff, max_backoff] = [1, 2].map(Duration::from_millis);
        let backoff = BackoffConfig { init_backoff, max_backoff, base: 2.0 };
        let retry_timeout = Duration::from_mins(2);
        let store = AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_bucket_name(&self.name)
            .with_region("us-east-1")
            .with_access_key_id(&self.server.key)
            .with_secret_access_key(&self.server.secret)
            .with_allow_http(true)
            .with_retry(RetryConfig { backoff, max_retries, retry_timeout })
            .build();
        Arc::new(store.unwrap())
    }
}
