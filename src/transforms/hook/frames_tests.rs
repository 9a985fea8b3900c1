//! Streams, whole, broken and cut, read as frames.

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
