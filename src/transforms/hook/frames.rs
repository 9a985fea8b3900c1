//! Reads the Arrow IPC stream that a process writes, and the notices in it.
//!
//! A schema in the midst of the stream is that of the batches behind it.
//!
//! Invariants:
//! 1. Memory is bounded by `most_bytes` and [`MOST_HEAD_BYTES`], whatever sizes the stream claims: of
//!    what nobody asked for, only the head is read.
//! 2. A stream that ends between two messages has ended; one that ends within is cut.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::{MessageHeader, root_as_message};

use super::notice::{self, Notice, printable};
use crate::sources::contained::contained;

/// Most bytes of a message's head.
const MOST_HEAD_BYTES: usize = 1 << 20;
/// Stands before every message.
const CONTINUED: [u8; 4] = [0xff; 4];

/// Why there is no next batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The stream ends within a message.
    Cut,
    /// It is not what it should be; says how.
    Garbled(String),
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

/// Reads batches one by one.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: R,
    decoder: StreamDecoder,
    most_bytes: u64,
    is_asked: Arc<AtomicBool>,
}

impl<R: Read> Frames<R> {
    /// Batches have at most `most_bytes`. There may be one whenever `is_asked` was set since the last.
    pub(super) fn new(from: R, most_bytes: u64, is_asked: Arc<AtomicBool>) -> Self {
        Self { from, decoder: StreamDecoder::new(), most_bytes, is_asked }
    }

    /// The next batch or notice; none where the stream ends.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            let mut head = [0; 8];
            match self.fill(&mut head) {
                0 => return Ok(None),
                n if n < head.len()
                    && CONTINUED.starts_with(head.get(..n.min(4)).unwrap_or(&[])) =>
                {
                    return Err(Broken::Cut);
                }
                n => {
                    if let Some(bytes) = head.strip_prefix(&notice::MARK) {
                        let bytes = bytes.try_into().map_or(0, u32::from_le_bytes);
                        // There will be no answer.
                        self.is_asked.store(false, Ordering::SeqCst);
                        return self.notice(bytes).map(|notice| Some(Frame::Notice(notice)));
                    }
                    let Some(bytes) = head.strip_prefix(&CONTINUED) else {
                        return Err(no_stream(head.get(..n).unwrap_or_default()));
                    };
                    let bytes = bytes.try_into().map_or(0, u32::from_le_bytes);
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
    fn message(&mut self, head: [u8; 8], bytes: u32) -> Result<Option<RecordBatch>, Broken> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > MOST_HEAD_BYTES {
            return Err(Broken::Garbled(format!("the head of a message has {bytes} bytes")));
        }
        let mut message = Vec::with_capacity(head.len() + bytes);
        message.extend_from_slice(&head);
        self.append(&mut message, bytes)?;
        let (body_bytes, is_batch) = {
            let parsed = root_as_message(message.get(head.len()..).unwrap_or_default());
            let parsed =
                parsed.map_err(|e| Broken::Garbled(format!("a message is broken: {e}")))?;
            let is_packed =
                parsed.header_as_record_batch().is_some_and(|batch| batch.compression().is_some());
            if is_packed {
                return Err(Broken::Garbled("a batch is compressed".to_owned()));
            }
            match parsed.header_type() {
                MessageHeader::RecordBatch if !self.is_asked.swap(false, Ordering::SeqCst) => {
                    return Err(Broken::Garbled(TOO_MANY.to_owned()));
                }
                MessageHeader::DictionaryBatch => {
                    let how = "it answered with a dictionary: columns are to hold their values";
                    return Err(Broken::Garbled(how.to_owned()));
                }
                MessageHeader::Schema => self.decoder = StreamDecoder::new(),
                _ => {}
            }
            let is_batch = parsed.header_type() == MessageHeader::RecordBatch;
            (u64::try_from(parsed.bodyLength()).unwrap_or(u64::MAX), is_batch)
        };
        if body_bytes > self.most_bytes {
            return Err(Broken::Garbled(format!(
                "an answer has {body_bytes} bytes, and may have {}",
                self.most_bytes
            )));
        }
        self.append(&mut message, usize::try_from(body_bytes).unwrap_or(usize::MAX))?;
        if is_batch && body_bytes == 0 {
            // The decoder gives a batch without a body only when it sees what follows; it takes none
            // of it.
            message.push(0);
        }
        let mut message = Buffer::from_vec(message);
        let mut batch = None;
        while !message.is_empty() {
            // Whatever bytes a process writes are its own fault.
            let decoded = contained(|| self.decoder.decode(&mut message));
            let decoded = decoded.map_err(|_| Broken::Garbled("an answer is broken".to_owned()))?;
            batch = decoded.map_err(|e| Broken::Garbled(format!("an answer is broken: {e}")))?;
            if batch.is_some() {
                break;
            }
        }
        Ok(batch)
    }

    fn notice(&mut self, bytes: u32) -> Result<Notice, Broken> {
        if bytes > notice::MOST_BYTES {
            return Err(Broken::Garbled(format!("a notice has {bytes} bytes")));
        }
        let mut json = Vec::new();
        self.append(&mut json, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let broken = |e| Broken::Garbled(format!("a notice is broken: {e}"));
        serde_json::from_slice(&json).map_err(broken)
    }

    fn append(&mut self, to: &mut Vec<u8>, bytes: usize) -> Result<(), Broken> {
        let wanted = to.len() + bytes;
        to.resize(wanted, 0);
        let room = to.get_mut(wanted - bytes..).unwrap_or_default();
        if self.fill(room) == bytes { Ok(()) } else { Err(Broken::Cut) }
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

fn no_stream(bytes: &[u8]) -> Broken {
    let text = String::from_utf8_lossy(bytes);
    Broken::Garbled(format!(
        "what it prints is no Arrow stream: it begins with \"{}\"",
        printable(&text)
    ))
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int8Type;
    use arrow_array::{Array, DictionaryArray, Int64Array, StringArray};
    use arrow_ipc::writer::StreamWriter;
    use proptest::prelude::*;

    use super::*;

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

    fn read(bytes: &[u8], most_bytes: u64) -> (usize, Option<Broken>) {
        let is_asked = Arc::new(AtomicBool::new(false));
        let mut frames = Frames::new(bytes, most_bytes, Arc::clone(&is_asked));
        let mut n = 0;
        loop {
            is_asked.store(n != 3, Ordering::SeqCst);
            match frames.next() {
                Ok(Some(_)) => n += 1,
                Ok(None) => return (n, None),
                Err(broken) => return (n, Some(broken)),
            }
        }
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

    fn asked() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(true))
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
        let is_asked = asked();
        let mut frames = Frames::new(bytes.as_slice(), 1 << 20, Arc::clone(&is_asked));
        assert!(matches!(frames.next(), Ok(Some(Frame::Batch(batch))) if batch.num_columns() == 2));
        is_asked.store(true, Ordering::SeqCst);
        assert_eq!(frames.next(), Ok(Some(Frame::Batch(other))));
        assert_eq!(frames.next(), Ok(None));
    }

    #[test]
    fn notices_stand_where_answers_would() {
        let notice = Notice {
            kind: notice::NoticeKind::Raised,
            what: "it raised ValueError".to_owned(),
            more: String::new(),
        };
        let mut bytes = stream(1);
        bytes.truncate(bytes.len() - 8);
        notice.write(&mut bytes).unwrap();
        let mut frames = Frames::new(bytes.as_slice(), 1 << 20, asked());
        assert!(matches!(frames.next(), Ok(Some(Frame::Batch(_)))));
        assert_eq!(frames.next(), Ok(Some(Frame::Notice(notice))));
        assert_eq!(frames.next(), Ok(None));
        for (bytes, want) in [
            (&b"\xfe\xff\xff\xff\xff\xff\xff\xff"[..], "a notice has 4294967295 bytes"),
            (b"\xfe\xff\xff\xff\x02\0\0\0{}", "a notice is broken: missing field `kind`"),
        ] {
            match Frames::new(bytes, 1 << 20, asked()).next() {
                Err(Broken::Garbled(how)) => assert!(how.starts_with(want), "{how}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_stream_is_told_from_one_that_ends() {
        let whole = stream(3);
        let garbled = |text: &str| Some(Broken::Garbled(text.to_owned()));
        for (name, bytes, most, want) in [
            ("whole", whole.clone(), 1 << 20, (3, None)),
            ("nothing", Vec::new(), 1 << 20, (0, None)),
            ("one too many", stream(4), 1 << 20, (3, garbled(TOO_MANY))),
            ("no end", whole[..whole.len() - 8].to_vec(), 1 << 20, (3, None)),
            ("cut", whole[..whole.len() - 20].to_vec(), 1 << 20, (2, Some(Broken::Cut))),
            (
                "printed",
                b"loading the model".to_vec(),
                1 << 20,
                (0, garbled("what it prints is no Arrow stream: it begins with \"loading \"")),
            ),
            ("large", whole, 16, (0, garbled("an answer has 256 bytes, and may have 16"))),
        ] {
            let found = read(&bytes, most);
            assert_eq!(found.0, want.0, "{name}");
            match (&found.1, &want.1) {
                (Some(Broken::Garbled(found)), Some(Broken::Garbled(want))) if name == "large" => {
                    assert!(found.ends_with("and may have 16"), "{found} {want}");
                }
                _ => assert_eq!(found.1, want.1, "{name}"),
            }
        }
    }

    #[test]
    fn dictionaries_are_refused_before_they_are_read() {
        let column: DictionaryArray<Int8Type> = ["a", "a"].into_iter().collect();
        let column: Arc<dyn Array> = Arc::new(column);
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        let (_, broken) = read(&writer.into_inner().unwrap(), 1 << 20);
        let Some(Broken::Garbled(how)) = broken else { panic!("{broken:?}") };
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
