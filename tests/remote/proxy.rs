//! A proxy in front of a server: it counts and names requests, and lets go wrong what a test asks for.
//!
//! Invariants:
//! 1. What is not to go wrong passes byte for byte: the `Host` that the client signed included.
//! 2. What is in the list is written there before it happens, so that a test that has seen it happen
//!    finds it there.
//! 3. Nothing waits for a clock but a stall, which ends with the proxy, and a server that is away.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::http::{Head, Length, read_body};

/// Nothing that a test waits for takes as long.
const WATCHDOG: Duration = Duration::from_mins(2);

/// As good as for ever.
const FOR_EVER: Duration = Duration::from_hours(1000);

/// What goes wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is cut when so many bytes of the request, its head among them, have gone to the server.
    CutRequest(u64),
    /// The connection is cut when so many bytes of the answer, its head among them, have come back.
    CutAnswer(u64),
    /// The server says 500, and has seen nothing.
    Internal,
    /// The server says 503 and asks to slow down, and has seen nothing.
    SlowDown,
    /// The answer comes that much later.
    Stall(Duration),
    /// The answer says that its body has so many bytes less than it has.
    ShortBody(u64),
    /// The answer comes twice.
    AnsweredTwice,
    /// The request reaches the server twice; the second answer comes back.
    SentTwice,
    /// The server does what it is asked, and the answer is lost.
    LostAnswer,
    /// The server does not know the upload.
    NoSuchUpload,
    /// The server says 403, and has seen nothing.
    Denied,
    /// The answer names another `ETag`.
    WrongEtag,
    /// A bit of that byte of the answer's body is another one.
    FlippedByte(u64),
    /// Nothing goes on until the proxy ends, or [`Proxy::release`]; the server has seen nothing before that.
    Held,
    /// Nothing goes on until the proxy ends; the server has done what it was asked.
    HeldAnswer,
}

/// Which requests a fault meets.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    operation: Option<&'static str>,
    key: String,
    skip: usize,
    times: usize,
    fault: Fault,
}

impl Rule {
    /// The first request of all.
    pub(crate) fn new(fault: Fault) -> Self {
        Self { operation: None, key: String::new(), skip: 0, times: 1, fault }
    }

    /// Only requests of this operation, such as `PutObject`.
    pub(crate) fn on(self, operation: &'static str) -> Self {
        Self { operation: Some(operation), ..self }
    }

    /// Only requests for keys that hold this text.
    pub(crate) fn key(self, part: &str) -> Self {
        Self { key: part.to_owned(), ..self }
    }

    /// Not the first `n` of them.
    pub(crate) fn after(self, n: usize) -> Self {
        Self { skip: n, ..self }
    }

    /// So many, one after another.
    pub(crate) fn times(self, n: usize) -> Self {
        Self { times: n, ..self }
    }
}

/// A request that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// What is asked for, as S3 calls it: `PutObject`, `UploadPart`, …
    pub(crate) operation: &'static str,
    /// The object, without the bucket; empty where the bucket is meant.
    pub(crate) key: String,
    /// What follows the `?`.
    pub(crate) query: String,
    /// Bytes of its body that the server was sent.
    pub(crate) sent_bytes: u64,
    /// Bytes of the answer's body that the client was sent.
    pub(crate) got_bytes: u64,
    /// The answer's status, 0 where there was none.
    pub(crate) status: u16,
    /// What went wrong with it.
    pub(crate) fault: Option<Fault>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    requests: Vec<Request>,
    /// What the clients are connected by, by number, to be cut at the end.
    connections: BTreeMap<u64, TcpStream>,
    ended: bool,
    /// Whether what was held goes to the server after all, though its client may be gone.
    released: bool,
    /// Until then the server is away.
    away_until: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy in front of `server`.
    pub(crate) fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { server, state, changed });
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (number, client) in (0..).zip(listener.incoming()) {
                let (Ok(client), shared) = (client, Arc::clone(&of_thread)) else { return };
                {
                    let mut state = shared.state.lock().unwrap();
                    if state.ended {
                        return;
                    }
                    state.connections.insert(number, client.try_clone().unwrap());
                }
                std::thread::spawn(move || {
                    // A connection that ends early is what many tests are about.
                    serve(&client, &shared).ok();
                    client.shutdown(Shutdown::Both).ok();
                    shared.state.lock().unwrap().connections.remove(&number);
                });
            }
        });
        Self { address, shared }
    }

    /// Where clients connect to.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets something go wrong from now on, beside what was asked for before.
    pub(crate) fn inject(&self, rule: Rule) {
        self.shared.state.lock().unwrap().rules.push(rule);
    }

    /// Lets the server say 503 to all that is asked of it, for so long from now on.
    pub(crate) fn away(&self, duration: Duration) {
        self.shared.state.lock().unwrap().away_until = Some(Instant::now() + duration);
    }

    /// Lets what is held go to the server now.
    pub(crate) fn release(&self) {
        self.shared.state.lock().unwrap().released = true;
        self.shared.changed.notify_all();
    }

    /// Lets nothing go wrong any more, and forgets what came.
    pub(crate) fn clear(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.rules.clear();
        state.requests.clear();
    }

    /// What came, in the order in which it began.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// How many requests of this operation came.
    pub(crate) fn count(&self, operation: &str) -> usize {
        self.requests().iter().filter(|it| it.operation == operation).count()
    }

    /// Bytes of all requests' bodies that the server was sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.requests().iter().map(|it| it.sent_bytes).sum()
    }

    /// Bytes of all answers' bodies that the client was sent.
    pub(crate) fn got_bytes(&self) -> u64 {
        self.requests().iter().map(|it| it.got_bytes).sum()
    }

    /// Waits until `seen` finds what it looks for, in the requests or elsewhere.
    pub(crate) fn wait(&self, what: &str, mut seen: impl FnMut(&[Request]) -> bool) {
        let until = Instant::now() + WATCHDOG;
        let mut state = self.shared.state.lock().unwrap();
        while !seen(&state.requests) {
            assert!(Instant::now() < until, "no {what} in {:#?}", state.requests);
            // What is looked for elsewhere wakes nobody here.
            let look_again = Duration::from_millis(50);
            state = self.shared.changed.wait_timeout(state, look_again).unwrap().0;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended = true;
        for connection in state.connections.values() {
            connection.shutdown(Shutdown::Both).ok();
        }
        drop(state);
        self.shared.changed.notify_all();
        // The listener looks up when somebody comes.
        TcpStream::connect(self.address).ok();
    }
}

/// What is asked for, as S3 calls it.
fn operation(method: &str, key: &str, query: &str) -> &'static str {
    let names = |name: &str| query.split('&').any(|it| it.split('=').next() == Some(name));
    match method {
        "GET" if key.is_empty() && names("uploads") => "ListMultipartUploads",
        "GET" if key.is_empty() => "ListObjects",
        "GET" => "GetObject",
        "HEAD" => "HeadObject",
        "PUT" if names("partNumber") => "UploadPart",
        "PUT" => "PutObject",
        "POST" if names("uploads") => "CreateMultipartUpload",
        "POST" if names("uploadId") => "CompleteMultipartUpload",
        "POST" if names("delete") => "DeleteObjects",
        "DELETE" if names("uploadId") => "AbortMultipartUpload",
        "DELETE" => "DeleteObject",
        _ => "unknown",
    }
}

impl Shared {
    /// Writes a request down and settles what goes wrong with it.
    fn begin(&self, head: &Head) -> (usize, String, Option<Fault>) {
        let words = head.first();
        let method = words[0].clone();
        let (path, query) = words[1].split_once('?').unwrap_or((&words[1], ""));
        let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
        let operation = operation(&method, key, query);
        let mut state = self.state.lock().unwrap();
        let is_away = state.away_until.is_some_and(|until| Instant::now() < until);
        let mut fault = is_away.then_some(Fault::SlowDown);
        for rule in &mut state.rules {
            let meets = rule.operation.is_none_or(|it| it == operation) && key.contains(&rule.key);
            if !meets || rule.times == 0 || fault.is_some() {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else {
                rule.times -= 1;
                fault = Some(rule.fault.clone());
            }
        }
        let (key, query) = (key.to_owned(), query.to_owned());
        let (sent_bytes, got_bytes, status) = (0, 0, 0);
        let request =
            Request { operation, key, query, sent_bytes, got_bytes, status, fault: fault.clone() };
        state.requests.push(request);
        let index = state.requests.len() - 1;
        drop(state);
        self.changed.notify_all();
        (index, method, fault)
    }

    fn update(&self, index: usize, change: impl FnOnce(&mut Request)) {
        // It may have been forgotten meanwhile.
        if let Some(request) = self.state.lock().unwrap().requests.get_mut(index) {
            change(request);
        }
        self.changed.notify_all();
    }

    /// Waits until what is held may go on; not if the proxy ends before.
    fn is_released(&self) -> bool {
        let state = self.state.lock().unwrap();
        let is_waiting = |it: &mut State| !it.ended && !it.released;
        self.changed.wait_while(state, is_waiting).unwrap().released
    }

    /// Waits as long, or until the proxy ends.
    fn stall(&self, duration: Duration) {
        let until = Instant::now() + duration;
        let mut state = self.state.lock().unwrap();
        while !state.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }
}

/// A part of a stream: it fails when so many bytes went through.
struct Cut<'a> {
    to: &'a TcpStream,
    left: u64,
}

impl Cut<'_> {
    /// How many of so many bytes go through.
    fn lets(&self, bytes: &[u8]) -> u64 {
        self.left.min(bytes.len() as u64)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let n = self.lets(bytes);
        self.to.write_all(&bytes[..usize::try_from(n).unwrap()])?;
        self.left -= n;
        if n < bytes.len() as u64 { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

/// Serves one client until it has nothing more to ask, or is cut off.
fn serve(client: &TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut from_client = BufReader::with_capacity(256 << 10, client);
    while let Some(head) = Head::read(&mut from_client)? {
        let (index, method, fault) = shared.begin(&head);
        match &fault {
            Some(Fault::Held) if !shared.is_released() => return Ok(()),
            Some(Fault::Internal | Fault::SlowDown | Fault::NoSuchUpload | Fault::Denied) => {
                read_body(&mut from_client, head.request_length(), &mut |_| Ok(()))?;
                refuse(client, shared, index, fault.as_ref())?;
                continue;
            }
            _ => {}
        }
        let server = TcpStream::connect(shared.server)?;
        server.set_nodelay(true)?;
        let mut kept = Vec::new();
        let mut cut = Cut { to: &server, left: u64::MAX };
        if let Some(Fault::CutRequest(n)) = fault {
            cut.left = n;
        }
        cut.put(&head.bytes)?;
        let keep = fault == Some(Fault::SentTwice);
        read_body(&mut from_client, head.request_length(), &mut |piece| {
            shared.update(index, |it| it.sent_bytes += cut.lets(piece));
            if keep {
                kept.extend_from_slice(piece);
            }
            cut.put(piece)
        })?;
        let server = if keep {
            Answer::read(&server, &method)?;
            let mut again = TcpStream::connect(shared.server)?;
            again.write_all(&head.bytes)?;
            again.write_all(&kept)?;
            shared.update(index, |it| it.sent_bytes += kept.len() as u64);
            again
        } else {
            server
        };
        if answer(client, &server, shared, index, &method, fault.as_ref())? {
            return Ok(());
        }
    }
    Ok(())
}

/// An answer of ours, in the server's place.
fn refuse(
    client: &TcpStream,
    shared: &Shared,
    index: usize,
    fault: Option<&Fault>,
) -> io::Result<()> {
    let (status, reason, code) = match fault {
        Some(Fault::SlowDown) => (503, "Slow Down", "SlowDown"),
        Some(Fault::NoSuchUpload) => (404, "Not Found", "NoSuchUpload"),
        Some(Fault::Denied) => (403, "Forbidden", "AccessDenied"),
        _ => (500, "Internal Server Error", "InternalError"),
    };
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
         <Message>A test asked for this.</Message></Error>"
    );
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/xml\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut to = client;
    to.write_all(format!("{head}{body}").as_bytes())?;
    shared.update(index, |it| it.status = status);
    Ok(())
}

/// A whole answer.
struct Answer {
    head: Head,
    body: Vec<u8>,
}

impl Answer {
    fn read(server: &TcpStream, method: &str) -> io::Result<Self> {
        let mut from = BufReader::new(server);
        let head = Head::read(&mut from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut body = Vec::new();
        read_body(&mut from, head.answer_length(method), &mut |piece| {
            body.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Self { head, body })
    }

    /// The same answer as the fault makes it.
    fn spoiled(mut self, fault: &Fault) -> Self {
        match fault {
            Fault::ShortBody(n) => {
                let left = (self.body.len() as u64).saturating_sub(*n);
                self.body.truncate(usize::try_from(left).unwrap());
                self.head = self.head.with("content-length", Some(&left.to_string()));
            }
            Fault::FlippedByte(n) => {
                if let Some(byte) = self.body.get_mut(usize::try_from(*n).unwrap()) {
                    *byte ^= 1;
                }
            }
            Fault::WrongEtag => {
                self.head = self.head.with("etag", Some("\"0123456789abcdef0123456789abcdef\""));
                if let Ok(text) = std::str::from_utf8(&self.body)
                    && let Some((before, rest)) = text.split_once("<ETag>")
                    && let Some((etag, after)) = rest.split_once("</ETag>")
                {
                    // The length stays as it was declared.
                    let other = "0".repeat(etag.len());
                    self.body = format!("{before}<ETag>{other}</ETag>{after}").into_bytes();
                }
            }
            _ => {}
        }
        self
    }
}

/// Passes the server's answer on, as the fault makes it; whether the client is cut off behind it.
fn answer(
    client: &TcpStream,
    server: &TcpStream,
    shared: &Shared,
    index: usize,
    method: &str,
    fault: Option<&Fault>,
) -> io::Result<bool> {
    let mut to_client = Cut { to: client, left: u64::MAX };
    match fault {
        Some(Fault::LostAnswer | Fault::HeldAnswer) => {
            let whole = Answer::read(server, method)?;
            shared.update(index, |it| it.status = whole.head.status());
            if fault == Some(&Fault::HeldAnswer) {
                shared.stall(FOR_EVER);
            }
            return Ok(true);
        }
        Some(
            Fault::AnsweredTwice | Fault::ShortBody(_) | Fault::WrongEtag | Fault::FlippedByte(_),
        ) => {
            let whole = Answer::read(server, method)?;
            let closes = whole.head.closes();
            let whole = whole.spoiled(fault.expect("it is one of those"));
            let times = if fault == Some(&Fault::AnsweredTwice) { 2 } else { 1 };
            shared.update(index, |it| {
                it.status = whole.head.status();
                it.got_bytes = whole.body.len() as u64 * times;
            });
            for _ in 0..times {
                to_client.put(&whole.head.bytes)?;
                to_client.put(&whole.body)?;
            }
            return Ok(closes);
        }
        Some(Fault::CutAnswer(n)) => to_client.left = *n,
        Some(Fault::Stall(duration)) => shared.stall(*duration),
        _ => {}
    }
    let mut from = BufReader::with_capacity(256 << 10, server);
    let head = Head::read(&mut from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let length = head.answer_length(method);
    shared.update(index, |it| it.status = head.status());
    to_client.put(&head.bytes)?;
    read_body(&mut from, length, &mut |piece| {
        shared.update(index, |it| it.got_bytes += to_client.lets(piece));
        to_client.put(piece)
    })?;
    let is_cut = matches!(fault, Some(Fault::CutAnswer(_)));
    Ok(is_cut || head.closes() || length == Length::UntilClosed)
}
