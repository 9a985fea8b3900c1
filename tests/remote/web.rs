//! A web server that hands out the files of a folder, whole or in ranges, and can do nothing else.

use std::fmt::Write as _;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use super::http::Head;

/// A server that runs until its test process ends.
#[derive(Debug)]
pub(crate) struct Web {
    address: SocketAddr,
}

impl Web {
    /// Serves what lies below `root`.
    pub(crate) fn new(root: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let root = root.clone();
                // Clients come and go as they like.
                std::thread::spawn(move || serve(&client, &root).ok());
            }
        });
        Self { address }
    }

    /// The URL of what lies below `path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }
}

#[allow(clippy::disallowed_methods, reason = "a test hands out files as another process left them")]
fn serve(client: &TcpStream, root: &Path) -> io::Result<()> {
    let (mut from, mut to) = (BufReader::new(client), client);
    while let Some(head) = Head::read(&mut from)? {
        let words = head.first();
        let file = std::fs::read(root.join(words[1].trim_start_matches('/')));
        let (status, mut bytes) = match (words[0].as_str(), file) {
            ("GET" | "HEAD", Ok(bytes)) => ("200 OK", bytes),
            ("GET" | "HEAD", Err(_)) => ("404 Not Found", Vec::new()),
            _ => ("405 Method Not Allowed", Vec::new()),
        };
        let mut more = String::new();
        let mut status = status.to_owned();
        if let Some(range) = head.header("range").filter(|_| status.starts_with("200")) {
            let (start, end) = range.trim_start_matches("bytes=").split_once('-').unwrap();
            let (start, all) = (start.parse::<usize>().unwrap(), bytes.len());
            let end = end.parse().map_or(all, |end: usize| end + 1).min(all);
            bytes = bytes[start.min(end)..end].to_vec();
            "206 Partial Content".clone_into(&mut status);
            write!(more, "content-range: bytes {start}-{}/{all}\r\n", end.max(1) - 1).unwrap();
        }
        let modified = "last-modified: Wed, 21 Oct 2015 07:28:00 GMT";
        let n = bytes.len();
        write!(to, "HTTP/1.1 {status}\r\ncontent-length: {n}\r\n{modified}\r\n{more}\r\n")?;
        if words[0] != "HEAD" {
            to.write_all(&bytes)?;
        }
    }
    Ok(())
}
