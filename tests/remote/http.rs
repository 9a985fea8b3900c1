//! As much of HTTP/1.1 as is needed to pass messages on: heads, and where bodies end.

use std::io::{self, BufRead, Read};

/// The longest head that is passed on.
const MAX_HEAD: usize = 64 << 10;

/// The first lines of a request or an answer, as they came.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// All lines with the empty one behind them.
    pub(crate) bytes: Vec<u8>,
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// After so many bytes.
    Known(u64),
    /// After an empty chunk.
    Chunked,
    /// With the connection.
    UntilClosed,
}

impl Head {
    /// Reads the next head; `None` where the connection ends before it.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        loop {
            let start = bytes.len();
            let room = (MAX_HEAD - start) as u64;
            if from.by_ref().take(room).read_until(b'\n', &mut bytes)? == 0 {
                let whole = start == 0;
                return if whole { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            if matches!(&bytes[start..], b"\r\n" | b"\n") {
                return Ok(Some(Self { bytes }));
            }
        }
    }

    fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// The words of the first line.
    pub(crate) fn first(&self) -> Vec<String> {
        self.text().lines().next().unwrap_or_default().split(' ').map(str::to_owned).collect()
    }

    /// The status of an answer.
    pub(crate) fn status(&self) -> u16 {
        self.first().get(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.text().lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    /// The same head with another value of a header that it has, or without it.
    pub(crate) fn with(&self, name: &str, value: Option<&str>) -> Self {
        let mut bytes = String::new();
        for line in self.text().split_inclusive('\n') {
            match line.split_once(':') {
                Some((key, _)) if key.eq_ignore_ascii_case(name) => {
                    if let Some(value) = value {
                        bytes.extend([key, ": ", value, "\r\n"]);
                    }
                }
                _ => bytes.push_str(line),
            }
        }
        Self { bytes: bytes.into_bytes() }
    }

    fn is_chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked"))
    }

    fn declared(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    /// Where the body behind a request's head ends.
    pub(crate) fn request_length(&self) -> Length {
        if self.is_chunked() {
            Length::Chunked
        } else {
            Length::Known(self.declared().unwrap_or(0))
        }
    }

    /// Where the body behind the head of the answer to a request of this method ends.
    pub(crate) fn answer_length(&self, method: &str) -> Length {
        let is_empty = method == "HEAD" || matches!(self.status(), 100..=199 | 204 | 304);
        match self.declared() {
            _ if is_empty => Length::Known(0),
            _ if self.is_chunked() => Length::Chunked,
            Some(n) => Length::Known(n),
            None => Length::UntilClosed,
        }
    }

    /// Whether nothing follows this message on its connection.
    pub(crate) fn closes(&self) -> bool {
        self.header("connection").is_some_and(|it| it.eq_ignore_ascii_case("close"))
    }
}

/// Reads a body of that length with what frames it, and gives `each` piece as it comes.
pub(crate) fn read_body(
    from: &mut impl BufRead,
    length: Length,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    match length {
        Length::Known(n) => exactly(from, n, each),
        Length::UntilClosed => pass(from, each).map(|_| ()),
        Length::Chunked => loop {
            let mut line = Vec::new();
            from.take(1024).read_until(b'\n', &mut line)?;
            each(&line)?;
            let digits = String::from_utf8_lossy(&line);
            let digits = digits.trim().split(';').next().unwrap_or_default();
            let n = u64::from_str_radix(digits, 16).map_err(io::Error::other)?;
            // The line end behind the chunk, and behind the last, where we know of no trailers.
            exactly(from, n + 2, each)?;
            if n == 0 {
                return Ok(());
            }
        },
    }
}

fn exactly(
    from: &mut impl BufRead,
    n: u64,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let got = pass(&mut from.take(n), each)?;
    if got == n { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn pass(from: &mut impl BufRead, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut total = 0;
    loop {
        let n = {
            let piece = from.fill_buf()?;
            if piece.is_empty() {
                return Ok(total);
            }
            each(piece)?;
            piece.len()
        };
        from.consume(n);
        total += n as u64;
    }
}
