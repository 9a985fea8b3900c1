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
mod tests {
    use std::io::Write;

    use arrow_array::types::Int8Type;
    use arrow_array::{Array, DictionaryArray, Int64Array, StringArray};
    use arrow_ipc::writer::StreamWriter;
    use proptest::prelude::*;

    use super::super::notice::NoticeKind;
    use super::super::numbered::Numbered;
    use super::*;

    impl Output for &[u8] {
        fn has_head(&self) -> bool {
            self.len() >= HEAD_BYTES
        }
    }

    fn stream(n_batches: i64) -> Vec<u8> {
        let batch = |n: i64| {
            let numbers: Arc<dyn Array> = Arc::new(Int64Array::from(vec![n, n + 1]));
            let texts: Arc<dyn Array> = Arc::new(StringArray::from(vec!["a", "bc"]));
            RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
        };
        let mut writer = StreamWriter::try_new(Vec::new(), &batch(0).schema()).unwrap();
        for n in 0..n_batches {
            writer.write(&batch(n)).unwrap();
        }
        writer.finish().unwrap();
        writer.into_inner().unwrap()
    }

    /// Frames of which there may be so many.
    fn frames(bytes: &[u8], most_bytes: u64, n_asked: u64) -> Frames<&[u8]> {
        let n_asked = Arc::new(AtomicU64::new(n_asked));
        Frames::new(bytes, most_bytes, n_asked, Spares::new(most_bytes), Arc::default())
    }

    fn read(bytes: &[u8], most_bytes: u64) -> (usize, Option<Broken>) {
        let mut frames = frames(bytes, most_bytes, 3);
        let mut n = 0;
        loop {
            match frames.next() {
                Ok(Some(_)) => n += 1,
                Ok(None) => return (n, frames.rest().err()),
                Err(broken) => return (n, Some(broken)),
            }
        }
    }

    /// Answers in a stream, each with the number that is given for it.
    fn numbered(numbers: &[&str]) -> Vec<u8> {
        let whole = stream(1);
        let (schema, batch) = whole[..whole.len() - 8].split_at(schema_bytes(&whole));
        let mut bytes = schema.to_vec();
        for number in numbers {
            let mut numbered = Numbered::new(Vec::new());
            if let Ok(number) = number.parse() {
                numbered.number = number;
                numbered.write_all(batch).unwrap();
                bytes.extend(numbered.into_inner());
            } else {
                bytes.extend(batch);
            }
        }
        bytes
    }

    #[test]
    fn a_batch_without_a_body_comes_before_the_next() {
        let nulls: Arc<dyn Array> = Arc::new(arrow_array::NullArray::new(3));
        let batch = RecordBatch::try_from_iter([("x", nulls)]).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        for _ in 0..2 {
            writer.write(&batch).unwrap();
        }
        writer.flush().unwrap();
        let stream = writer.get_ref().clone();
        assert_eq!(read(&stream, 1 << 20), (2, None));
        // Nothing behind the first one is needed to read it.
        let one = stream.len() - (stream.len() - schema_bytes(&stream)) / 2;
        assert_eq!(read(&stream[..one], 1 << 20), (1, None));
    }

    /// Where the first message of a stream, its schema, ends.
    fn schema_bytes(stream: &[u8]) -> usize {
        8 + usize::try_from(u32::from_le_bytes(stream[4..8].try_into().unwrap())).unwrap()
    }

    #[test]
    fn a_schema_in_the_midst_is_that_of_what_follows() {
        let mut twice = stream(1);
        twice.truncate(twice.len() - 8);
        let numbers: Arc<dyn Array> = Arc::new(Int64Array::from(vec![5]));
        let other = RecordBatch::try_from_iter([("other", numbers)]).unwrap();
        let mut writer = StreamWriter::try_new(twice, &other.schema()).unwrap();
        writer.write(&other).unwrap();
        writer.finish().unwrap();
        let bytes = writer.into_inner().unwrap();
        let mut frames = frames(&bytes, 1 << 20, 2);
        assert!(matches!(frames.next(), Ok(Some(Frame::Batch(batch))) if batch.num_columns() == 2));
        assert_eq!(frames.next(), Ok(Some(Frame::Batch(other))));
        assert_eq!(frames.next(), Ok(None));
    }

    #[test]
    fn notices_stand_where_answers_would() {
        let notice = Notice {
            kind: notice::NoticeKind::Raised,
            what: "it raised ValueError".to_owned(),
            more: String::new(),
            batch: Some("1".to_owned()),
        };
        let mut bytes = stream(1);
        bytes.truncate(bytes.len() - 8);
        notice.write(&mut bytes).unwrap();
        let mut both = frames(&bytes, 1 << 20, 2);
        assert!(matches!(both.next(), Ok(Some(Frame::Batch(_)))));
        assert_eq!(both.next(), Ok(Some(Frame::Notice(notice))));
        assert_eq!(both.next(), Ok(None));
        let mut one = frames(&bytes, 1 << 20, 1);
        assert!(matches!(one.next(), Ok(Some(Frame::Batch(_)))));
        assert_eq!(one.next(), Err(doubtful(TOO_MANY)));
        for (bytes, want) in [
            (&b"\xfe\xff\xff\xff\xff\xff\xff\xff"[..], "a notice has 4294967295 bytes"),
            (b"\xfe\xff\xff\xff\x02\0\0\0{}", "a notice is broken: missing field `kind`"),
        ] {
            match frames(bytes, 1 << 20, 1).next() {
                Err(Broken::Garbled(it)) => assert!(it.how.starts_with(want), "{}", it.how),
                other => panic!("{other:?}"),
            }
        }
    }

    fn garbled(how: &str) -> Broken {
        Garbled::broken(how.to_owned(), ONE_FOR_EACH)
    }

    fn doubtful(how: &str) -> Broken {
        let (how, hint) = (how.to_owned(), ONE_FOR_EACH);
        Broken::Garbled(Garbled { how, hint, is_doubtful: true })
    }

    #[test]
    fn an_answer_that_says_its_batch_is_the_answer_to_that_one() {
        for (name, numbers, want) in [
            ("none", &["", "", ""][..], (3, None)),
            ("right ones", &["0", "1", "2"], (3, None)),
            ("some", &["", "1", ""], (3, None)),
            ("twice, and late", &["0", "0"], (1, Some(garbled(TOO_MANY)))),
            (
                "another",
                &["0", "2"],
                (1, Some(garbled("it answered to batch 2, and was to answer to batch 1"))),
            ),
            ("one more", &["0", "1", "2", "3"], (2, Some(garbled(TOO_MANY)))),
            ("one more without a number", &["", "", "", ""], (2, Some(doubtful(TOO_MANY)))),
        ] {
            assert_eq!(read(&numbered(numbers), 1 << 20), want, "{name}");
        }
        let notice = |batch: &str| Notice {
            kind: NoticeKind::Misfit,
            what: String::new(),
            more: String::new(),
            batch: Some(batch.to_owned()),
        };
        for (batch, want) in [
            ("0", Ok(Some(Frame::Notice(notice("0"))))),
            ("x", Err(garbled("it answered to a batch `x`, which is none"))),
        ] {
            let mut bytes = Vec::new();
            notice(batch).write(&mut bytes).unwrap();
            assert_eq!(frames(&bytes, 1 << 20, 1).next(), want, "{batch}");
        }
    }

    #[test]
    fn what_is_no_stream_is_told_from_one_that_ends() {
        let whole = stream(3);
        let garbled = |text: &str| Some(garbled(text));
        for (name, bytes, most, want) in [
            ("whole", whole.clone(), 1 << 20, (3, None)),
            ("nothing", Vec::new(), 1 << 20, (0, None)),
            ("one too many", stream(4), 1 << 20, (2, Some(doubtful(TOO_MANY)))),
            ("no end", whole[..whole.len() - 8].to_vec(), 1 << 20, (3, None)),
            ("cut", whole[..whole.len() - 20].to_vec(), 1 << 20, (2, Some(Broken::Cut))),
            (
                "printed",
                b"loading the model".to_vec(),
                1 << 20,
                (0, garbled("what it prints is no Arrow stream: it begins with \"loading \"")),
            ),
            (
                "behind the end",
                [&whole[..], b"bye"].concat(),
                1 << 20,
                (3, garbled("it writes on behind the end of its stream: it begins with \"bye\"")),
            ),
        ] {
            let found = read(&bytes, most);
            assert_eq!(found, want, "{name}");
        }
        let (n, broken) = read(&whole, 16);
        let Some(Broken::Garbled(large)) = broken else { panic!("{broken:?}") };
        assert!(large.how.ends_with(" bytes, and may have 16"), "{}", large.how);
        assert_eq!((n, large.hint), (0, ANSWER_BYTES));
    }

    #[test]
    fn dictionaries_are_refused_before_they_are_read() {
        let column: DictionaryArray<Int8Type> = ["a", "a"].into_iter().collect();
        let column: Arc<dyn Array> = Arc::new(column);
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        let (_, broken) = read(&writer.into_inner().unwrap(), 1 << 20);
        let Some(Broken::Garbled(Garbled { how, .. })) = broken else { panic!("{broken:?}") };
        assert_eq!(how, "it answered with a dictionary: columns are to hold their values");
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_panic(at in 0usize..2000, bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            let mut stream = stream(2);
            let at = at % stream.len();
            for (place, byte) in stream.iter_mut().skip(at).zip(bytes) {
                *place = byte;
            }
            read(&stream, 1 << 20);
        }
    }
}
