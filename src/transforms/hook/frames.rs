//! Reads the Arrow IPC stream that a process writes, and the notices in it.
//!
//! A schema in the midst of the stream is that of the batches behind it.
//!
//! Invariants:
//! 1. Memory is bounded by `most_bytes` and [`MOST_HEAD_BYTES`], whatever sizes the stream claims: of
//!    what nobody asked for, only the head is read.
//! 2. A stream that ends between two messages has ended; one that ends within is cut.
//! 3. There are no more answers than batches, and one that says which batch it belongs to is the answer
//!    to that one. One that says nothing is believed when nothing stands behind it yet.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::{MessageHeader, root_as_message};

use super::notice::{self, Notice, printable};
use super::numbered::number_of;
use super::spares::Spares;
use crate::sources::contained::contained;

/// Most bytes of a message's head.
const MOST_HEAD_BYTES: usize = 1 << 20;
/// Stands before every message.
const CONTINUED: [u8; 4] = [0xff; 4];
/// Bytes that every message begins with.
pub(super) const HEAD_BYTES: usize = 8;

/// Why there is no next batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The stream ends within a message.
    Cut,
    /// It is not what it should be.
    Garbled(Garbled),
}

/// What is wrong with a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Garbled {
    pub(super) how: String,
    /// What to do about it.
    pub(super) hint: &'static str,
    /// Whether earlier answers may belong to other batches.
    pub(super) is_doubtful: bool,
}

impl Garbled {
    fn broken(how: String, hint: &'static str) -> Broken {
        Broken::Garbled(Self { how, hint, is_doubtful: false })
    }
}

/// What a process writes.
pub(super) trait Output: Read {
    /// Whether the beginning of a message is there, so that reading it does not wait.
    fn has_head(&self) -> bool;
}

/// What a process says in one piece.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Frame {
    /// An answer.
    Batch(RecordBatch),
    /// Why there is none.
    Notice(Notice),
}

/// Says that there are more answers than there were batches.
const TOO_MANY: &str = "it answered more than once to a batch";
/// What to do about most streams.
pub(super) const ONE_FOR_EACH: &str = "a hook writes one batch to stdout for each that it reads, and nothing else; what \
                            people are to read goes to stderr";

/// What to do about an answer that is too large.
pub(super) const ANSWER_BYTES: &str =
    "raise `answer_bytes`, or lower `batch_rows` or `batch_bytes`";

/// Reads batches one by one.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: R,
    decoder: StreamDecoder,
    most_bytes: u64,
    n_asked: Arc<AtomicU64>,
    n_answered: u64,
    /// Whether nobody asked for what is being read.
    is_unasked: bool,
    /// Whether an answer did not say which batch it belongs to.
    is_unnumbered: bool,
    /// The same, of all processes of the hook.
    unsure: Arc<AtomicBool>,
    /// The beginning of the next message, where that has been read.
    ahead: Option<[u8; HEAD_BYTES]>,
    spares: Spares,
}

impl<R: Output> Frames<R> {
    /// Batches have at most `most_bytes`. There may be as many as were asked for.
    pub(super) fn new(
        from: R,
        most_bytes: u64,
        n_asked: Arc<AtomicU64>,
        spares: Spares,
        unsure: Arc<AtomicBool>,
    ) -> Self {
        let decoder = StreamDecoder::new();
        Self {
            from,
            decoder,
            most_bytes,
            n_asked,
            n_answered: 0,
            is_unasked: false,
            is_unnumbered: false,
            unsure,
            ahead: None,
            spares,
        }
    }

    /// Waits for the end of what is read, when the stream has ended.
    pub(super) fn rest(&mut self) -> Result<(), Broken> {
        let mut head = [0; HEAD_BYTES];
        match self.fill(&mut head) {
            0 => Ok(()),
            n => {
                let began = began(head.get(..n).unwrap_or_default());
                let how = format!("it writes on behind the end of its stream: {began}");
                Err(Garbled::broken(how, ONE_FOR_EACH))
            }
        }
    }

    /// The next batch or notice; none where the stream ends.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Broken> {
        let frame = match self.frame() {
            Err(Broken::Cut) if self.is_unasked => Err(self.surplus("it began another message")),
            frame => frame,
        }?;
        if frame.is_some() && self.has_answered_all() {
            self.look_ahead()?;
        }
        Ok(frame)
    }

    /// Whether nothing was asked that is not answered.
    fn has_answered_all(&self) -> bool {
        self.n_answered >= self.n_asked.load(Ordering::SeqCst)
    }

    /// Nothing was asked that is not answered: what is there already is no answer.
    fn look_ahead(&mut self) -> Result<(), Broken> {
        while self.ahead.is_none() && self.from.has_head() {
            let mut head = [0; HEAD_BYTES];
            self.fill(&mut head);
            match message_bytes(head).filter(|bytes| *bytes > 0) {
                // That of an answer is refused before its body is read; a schema is none.
                Some(bytes) => drop(self.message(head, bytes)?),
                None => self.ahead = Some(head),
            }
        }
        Ok(())
    }

    fn frame(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            let mut head = [0; HEAD_BYTES];
            let n = match self.ahead.take() {
                Some(ahead) => {
                    head = ahead;
                    HEAD_BYTES
                }
                None => self.fill(&mut head),
            };
            self.is_unasked = self.has_answered_all();
            match n {
                0 => return Ok(None),
                n if n < head.len()
                    && CONTINUED.starts_with(head.get(..n.min(4)).unwrap_or(&[])) =>
                {
                    return Err(Broken::Cut);
                }
                n => {
                    if let Some(bytes) = head.strip_prefix(&notice::MARK) {
                        let bytes = bytes.try_into().map_or(0, u32::from_le_bytes);
                        return self.notice(bytes).map(|notice| Some(Frame::Notice(notice)));
                    }
                    let Some(bytes) = message_bytes(head) else {
                        let began = began(head.get(..n).unwrap_or_default());
                        let how = format!("what it prints is no Arrow stream: {began}");
                        return Err(Garbled::broken(how, ONE_FOR_EACH));
                    };
                    if bytes == 0 {
                        return Ok(None);
                    }
                    if let Some(batch) = self.message(head, bytes)? {
                        return Ok(Some(Frame::Batch(batch)));
                    }
                }
            }
        }
    }

    /// Reads the message that begins with `head`.
    fn message(
        &mut self,
        head: [u8; HEAD_BYTES],
        bytes: u32,
    ) -> Result<Option<RecordBatch>, Broken> {
        let broken = |how: String| Garbled::broken(how, ONE_FOR_EACH);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > MOST_HEAD_BYTES {
            return Err(broken(format!("the head of a message has {bytes} bytes")));
        }
        let mut message = vec![0; head.len() + bytes];
        if let Some((before, rest)) = message.split_at_mut_checked(head.len()) {
            before.copy_from_slice(&head);
            self.fill_whole(rest)?;
        }
        let (body_bytes, is_batch) = {
            let parsed = root_as_message(message.get(head.len()..).unwrap_or_default());
            let parsed = parsed.map_err(|e| broken(format!("a message is broken: {e}")))?;
            let is_packed =
                parsed.header_as_record_batch().is_some_and(|batch| batch.compression().is_some());
            if is_packed {
                let hint = "let it write its batches without compression";
                return Err(Garbled::broken("a batch is compressed".to_owned(), hint));
            }
            match parsed.header_type() {
                MessageHeader::RecordBatch => self.count(number_of(&parsed))?,
                MessageHeader::DictionaryBatch => {
                    let how = "it answered with a dictionary: columns are to hold their values";
                    let hint = "let it unpack dictionaries before it answers";
                    return Err(Garbled::broken(how.to_owned(), hint));
                }
                MessageHeader::Schema => self.decoder = StreamDecoder::new(),
                _ => {}
            }
            let is_batch = parsed.header_type() == MessageHeader::RecordBatch;
            (u64::try_from(parsed.bodyLength()).unwrap_or(u64::MAX), is_batch)
        };
        if body_bytes > self.most_bytes {
            let how = format!("an answer has {body_bytes} bytes, and may have {}", self.most_bytes);
            return Err(Garbled::broken(how, ANSWER_BYTES));
        }
        let mut body = self.spares.take(usize::try_from(body_bytes).unwrap_or(usize::MAX));
        self.fill_whole(body.room())?;
        let body = if is_batch && body_bytes == 0 {
            // The decoder gives a batch without a body only when it sees what follows; it takes none
            // of it.
            Buffer::from_vec(vec![0_u8])
        } else {
            Buffer::from(body.filled())
        };
        for mut part in [Buffer::from_vec(message), body] {
            while !part.is_empty() {
                // Whatever bytes a process writes are its own fault.
                let decoded = contained(|| self.decoder.decode(&mut part));
                let decoded = decoded.map_err(|_| broken("an answer is broken".to_owned()))?;
                let batch = decoded.map_err(|e| broken(format!("an answer is broken: {e}")))?;
                if batch.is_some() {
                    return Ok(batch);
                }
            }
        }
        Ok(None)
    }

    /// Counts an answer, which may say what batch it belongs to.
    fn count(&mut self, number: Option<&str>) -> Result<(), Broken> {
        let next = self.n_answered;
        let number = number.map(|it| it.parse::<u64>().map_err(|_| it));
        let how = match number {
            _ if self.has_answered_all() => return Err(self.surplus(TOO_MANY)),
            Some(Ok(number)) if number < next => return Err(self.surplus(TOO_MANY)),
            Some(Ok(number)) if number > next => {
                format!("it answered to batch {number}, and was to answer to batch {next}")
            }
            Some(Err(text)) => {
                format!("it answered to a batch `{}`, which is none", printable(text))
            }
            number => {
                if number.is_none() {
                    self.is_unnumbered = true;
                    self.unsure.store(true, Ordering::Relaxed);
                }
                self.n_answered += 1;
                return Ok(());
            }
        };
        Err(Garbled::broken(how, ONE_FOR_EACH))
    }

    /// Something that nobody asked for: had it come earlier, it would have been believed, unless answers
    /// say which batch they belong to.
    fn surplus(&self, how: &str) -> Broken {
        let is_doubtful = self.is_unnumbered;
        Broken::Garbled(Garbled { how: how.to_owned(), hint: ONE_FOR_EACH, is_doubtful })
    }

    fn notice(&mut self, bytes: u32) -> Result<Notice, Broken> {
        if bytes > notice::MOST_BYTES {
            return Err(Garbled::broken(format!("a notice has {bytes} bytes"), ONE_FOR_EACH));
        }
        let mut json = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        self.fill_whole(&mut json)?;
        let notice: Notice = serde_json::from_slice(&json)
            .map_err(|e| Garbled::broken(format!("a notice is broken: {e}"), ONE_FOR_EACH))?;
        if notice.kind.is_of_a_batch() {
            // It stands where an answer would.
            self.count(notice.batch.as_deref())?;
        }
        Ok(notice)
    }

    fn fill_whole(&mut self, room: &mut [u8]) -> Result<(), Broken> {
        let wanted = room.len();
        if self.fill(room) == wanted { Ok(()) } else { Err(Broken::Cut) }
    }

    /// Fills `room` as far as the stream goes.
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let mut n = 0;
        while let Some(rest) = room.get_mut(n..).filter(|rest| !rest.is_empty()) {
            match self.from.read(rest) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        n
    }
}

/// How long the rest of the head of a message is; none where this is no beginning of one.
fn message_bytes(head: [u8; HEAD_BYTES]) -> Option<u32> {
    let bytes = head.strip_prefix(&CONTINUED)?;
    Some(bytes.try_into().map_or(0, u32::from_le_bytes))
}

/// How bytes that are no message begin.
fn began(bytes: &[u8]) -> String {
    format!("it begins with \"{}\"", printable(&String::from_utf8_lossy(bytes)))
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
