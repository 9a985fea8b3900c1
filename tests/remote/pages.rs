//! A store of more objects than any server here would take: it lists them in pages as S3 does, or in
//! another order, and each has a few bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::http::Head;

/// By what a store sorts its keys, before it sorts them as S3 does.
pub(crate) type Order = fn(&str) -> Vec<u8>;

/// What each object holds that nothing else was put in place of.
pub(crate) const OBJECT: &str = "7 bytes";

/// Nothing that a test waits for takes as long.
const WATCHDOG: Duration = Duration::from_mins(2);

/// What becomes of pages behind a key; the empty one is before the first.
#[derive(Debug, Clone, Default)]
pub(crate) enum Behind {
    /// They are answered.
    #[default]
    Told,
    /// Those behind the first page are not answered before an object was read.
    Unread,
    /// They are never answered.
    Held(String),
    /// They are refused.
    Denied(String),
}

#[derive(Debug)]
struct State {
    /// The objects, by place in the list.
    objects: BTreeMap<(Vec<u8>, String), String>,
    order: Order,
    /// Keys in a page.
    page: usize,
    behind: Behind,
    /// An object that does not come.
    unread: Option<String>,
    queries: Vec<String>,
    /// Objects that were asked for.
    reads: Vec<String>,
    /// Whether a page was asked for that is not answered.
    is_held: bool,
    is_late: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A store that runs until its test process ends.
#[derive(Debug)]
pub(crate) struct Pages {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Pages {
    /// Lists these keys as S3 does.
    pub(crate) fn new(keys: Vec<String>) -> Self {
        Self::of(keys, 1_000, |_| Vec::new())
    }

    /// Lists these keys in an order, so many in a page.
    pub(crate) fn of(keys: Vec<String>, page: usize, order: Order) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let objects = keys.into_iter().map(|key| ((order(&key), key), OBJECT.to_owned()));
        let state = State {
            objects: objects.collect(),
            order,
            page,
            behind: Behind::Told,
            unread: None,
            queries: Vec::new(),
            reads: Vec::new(),
            is_held: false,
            is_late: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&of_thread);
                // Clients come and go as they like.
                std::thread::spawn(move || shared.serve(&client).ok());
            }
        });
        Self { address, shared }
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

    /// From now on this becomes of pages.
    pub(crate) fn behind(&self, behind: Behind) {
        self.shared.state.lock().unwrap().behind = behind;
        self.shared.changed.notify_all();
    }

    /// Puts an object there, or takes it away; the `ETag` is that of the key and of what it holds.
    pub(crate) fn put(&self, key: &str, object: Option<&str>) {
        let mut state = self.shared.state.lock().unwrap();
        let at = ((state.order)(key), key.to_owned());
        match object {
            Some(object) => state.objects.insert(at, object.to_owned()),
            None => state.objects.remove(&at),
        };
    }

    /// From now on it keeps another order.
    pub(crate) fn order(&self, order: Order) {
        let mut state = self.shared.state.lock().unwrap();
        state.order = order;
        let objects = std::mem::take(&mut state.objects).into_iter();
        state.objects = objects.map(|((_, key), object)| ((order(&key), key), object)).collect();
    }

    /// From now on this object does not come; if none is named, all do.
    pub(crate) fn unread(&self, key: Option<&str>) {
        self.shared.state.lock().unwrap().unread = key.map(ToOwned::to_owned);
        self.shared.changed.notify_all();
    }

    /// What was listed since this was called last.
    pub(crate) fn queries(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state.lock().unwrap().queries)
    }

    /// How often objects were asked for since this was called last.
    pub(crate) fn n_reads(&self) -> usize {
        std::mem::take(&mut self.shared.state.lock().unwrap().reads).len()
    }

    /// Whether a page was asked for in vain, since no object was read before it.
    pub(crate) fn is_late(&self) -> bool {
        self.shared.state.lock().unwrap().is_late
    }

    /// Waits until a page is held, and the object that does not come, and `seen` finds what it looks for elsewhere.
    pub(crate) fn wait_held(&self, what: &str, mut seen: impl FnMut() -> bool) {
        let until = Instant::now() + WATCHDOG;
        let mut state = self.shared.state.lock().unwrap();
        let is_waiting = |state: &State| {
            state.is_held && state.unread.iter().all(|key| state.reads.contains(key))
        };
        while !(is_waiting(&state) && seen()) {
            assert!(Instant::now() < until, "no {what}: {:?}, {:?}", state.behind, state.queries);
            // What is looked for elsewhere wakes nobody here.
            let look_again = Duration::from_millis(50);
            state = self.shared.changed.wait_timeout(state, look_again).unwrap().0;
        }
    }
}

impl Shared {
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        let mut requests = BufReader::new(client);
        while let Some(head) = Head::read(&mut requests)? {
            let words = head.first();
            let (path, query) = words[1].split_once('?').unwrap_or((&words[1], ""));
            let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
            let answer = if key.is_empty() { self.list(query) } else { self.read(key, &head) };
            let n_head = answer.find("\r\n\r\n").map_or(answer.len(), |at| at + 4);
            let n = if words[0] == "HEAD" { n_head } else { answer.len() };
            let mut client = client;
            client.write_all(&answer.as_bytes()[..n])?;
        }
        Ok(())
    }

    fn read(&self, key: &str, head: &Head) -> String {
        let mut state = self.state.lock().unwrap();
        state.reads.push(key.to_owned());
        self.changed.notify_all();
        let until = Instant::now() + WATCHDOG;
        while state.unread.as_deref() == Some(key) && Instant::now() < until {
            state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        }
        let at = ((state.order)(key), key.to_owned());
        let Some(object) = state.objects.get(&at).cloned() else {
            let body = "<Error><Code>NoSuchKey</Code></Error>";
            let length = body.len();
            return format!("HTTP/1.1 404 Not Found\r\nContent-Length: {length}\r\n\r\n{body}");
        };
        drop(state);
        let etag = etag(key, &object);
        let (mut status, mut body, mut range) = ("200 OK", object.as_str(), String::new());
        if let Some((first, last)) = head
            .header("range")
            .as_deref()
            .and_then(|range| range.strip_prefix("bytes=")?.split_once('-'))
        {
            let n = object.len();
            let last = last.parse().map_or(n, |last: usize| n.min(last + 1));
            let Some(part) = object.get(first.parse().unwrap()..last).filter(|it| !it.is_empty())
            else {
                let status = "416 Range Not Satisfiable";
                return format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            };
            body = part;
            status = "206 Partial Content";
            range = format!("Content-Range: bytes {first}-{}/{n}\r\n", last - 1);
        }
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{range}ETag: \"{etag}\"\r\n\
             Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n{body}",
            body.len()
        )
    }

    fn list(&self, query: &str) -> String {
        let after = value(query, "continuation-token").or(value(query, "start-after"));
        let after = after.unwrap_or_default();
        let mut state = self.state.lock().unwrap();
        state.queries.push(query.to_owned());
        let until = Instant::now() + WATCHDOG;
        let (status, body) = loop {
            let is_behind = |key: &String| {
                ((state.order)(&after), &after) >= ((state.order)(key), key) && !after.is_empty()
            };
            let is_held = match &state.behind {
                Behind::Unread => !after.is_empty() && state.reads.is_empty(),
                Behind::Held(key) => is_behind(key),
                Behind::Denied(key) if is_behind(key) => {
                    break ("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>".to_owned());
                }
                Behind::Told | Behind::Denied(_) => false,
            };
            if !is_held {
                break ("200 OK", page(&state, query));
            }
            state.is_held = true;
            if Instant::now() > until {
                state.is_late = true;
                state.behind = Behind::Told;
            }
            self.changed.notify_all();
            state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        };
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }
}

fn value(query: &str, name: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn etag(key: &str, object: &str) -> String {
    if object == OBJECT { key.to_owned() } else { format!("{key} {object}") }
}

fn page(state: &State, query: &str) -> String {
    let value = |name: &str| value(query, name);
    let prefix = value("prefix").unwrap_or_default();
    let after = value("continuation-token").or(value("start-after")).unwrap_or_default();
    let delimiter = value("delimiter");
    let mut text = String::from("<ListBucketResult><Name>b</Name>");
    let (mut n, mut folder) = (0, None::<String>);
    let mut last = "";
    let first = if after.is_empty() { (Vec::new(), after) } else { ((state.order)(&after), after) };
    let objects = state.objects.range((Bound::Excluded(first), Bound::Unbounded));
    for ((_, key), object) in objects.filter(|((_, key), _)| key.starts_with(&prefix)) {
        if folder.as_ref().is_some_and(|folder| key.starts_with(folder)) {
            continue;
        }
        if n == state.page {
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
        let (size, etag) = (object.len(), etag(key, object));
        write!(
            text,
            "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"{etag}\"</ETag>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        )
        .unwrap();
    }
    text + "</ListBucketResult>"
}
