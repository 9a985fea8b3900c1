//! A store that only lists: so many objects that no server here would take them, in pages as S3 has them.

use std::fmt::Write as _;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::http::Head;

/// Keys in a page.
const PAGE: usize = 1_000;

/// A store that runs until its test process ends.
#[derive(Debug)]
pub(crate) struct Pages {
    address: SocketAddr,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Pages {
    /// Lists these keys, which are sorted; each object has 7 bytes.
    pub(crate) fn new(keys: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (keys, queries) = (Arc::new(keys), Arc::new(Mutex::default()));
        let noted = Arc::clone(&queries);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (keys, noted) = (Arc::clone(&keys), Arc::clone(&noted));
                // Clients come and go as they like.
                std::thread::spawn(move || serve(&client, &keys, &noted).ok());
            }
        });
        Self { address, queries }
    }

    /// What a process finds in its environment to come here.
    pub(crate) fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// What was asked for since this was called last.
    pub(crate) fn queries(&self) -> Vec<String> {
        std::mem::take(&mut *self.queries.lock().unwrap())
    }
}

fn serve(client: &TcpStream, keys: &[String], noted: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut requests = BufReader::new(client);
    while let Some(head) = Head::read(&mut requests)? {
        let words = head.first();
        let query = words[1].split_once('?').map_or("", |(_, query)| query);
        noted.lock().unwrap().push(query.to_owned());
        let body = page(keys, query);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut client = client;
        client.write_all((head + &body).as_bytes())?;
    }
    Ok(())
}

fn page(keys: &[String], query: &str) -> String {
    let value = |name: &str| {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let prefix = value("prefix").unwrap_or_default();
    let after = value("continuation-token").or(value("start-after")).unwrap_or_default();
    let delimiter = value("delimiter");
    let mut text = String::from("<ListBucketResult><Name>b</Name>");
    let (mut n, mut folder) = (0, None::<String>);
    let mut last = "";
    let first = keys.partition_point(|key| *key < prefix || *key <= after);
    for key in keys[first..].iter().take_while(|key| key.starts_with(&prefix)) {
        if folder.as_ref().is_some_and(|folder| key.starts_with(folder)) {
            continue;
        }
        if n == PAGE {
            write!(text, "<NextContinuationToken>{last}</NextContinuationToken>").unwrap();
            break;
        }
        n += 1;
        last = key;
        let inner = key[prefix.len()..].split_once('/').filter(|_| delimiter.is_some());
        if let Some((name, _)) = inner {
            let found = format!("{prefix}{name}/");
            write!(text, "<CommonPrefixes><Prefix>{found}</Prefix></CommonPrefixes>").unwrap();
            folder = Some(found);
            continue;
        }
        write!(
            text,
            "<Contents><Key>{key}</Key><Size>7</Size><ETag>\"{key}\"</ETag>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        )
        .unwrap();
    }
    text + "</ListBucketResult>"
}
