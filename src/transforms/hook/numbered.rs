//! The number of a batch, in the metadata of the message that carries it.
//!
//! Each batch that a process is sent has its number, from 0 on, under [`KEY`]; an answer that has one
//! is the answer to the batch of that number. Arrow's writer leaves no place for the metadata of a
//! message, so [`Numbered`] stands behind it and writes the heads of batches anew.
//!
//! Invariant: of what is written, nothing but the heads of batches changes.

use std::io::{self, Write};

use arrow_ipc::{
    KeyValue, KeyValueArgs, Message, MessageArgs, MessageHeader, RecordBatch, RecordBatchArgs,
    root_as_message,
};
use flatbuffers::FlatBufferBuilder;

/// What the number is called.
pub(super) const KEY: &str = "rowmill:batch";
/// Bytes before each head: a mark, and how long the head is.
const PREFIX_BYTES: usize = 8;
/// The body begins at a multiple of this many bytes behind the beginning of the message.
const ALIGNED_BYTES: usize = 64;

/// The number that a message has, as it stands there.
pub(super) fn number_of<'a>(message: &Message<'a>) -> Option<&'a str> {
    let entries = message.custom_metadata()?;
    let entry = entries.iter().find(|entry| entry.key() == Some(KEY))?;
    entry.value()
}

/// Takes an Arrow IPC stream and gives its batches their number.
#[derive(Debug)]
pub(super) struct Numbered<W> {
    to: W,
    /// Of the next batch.
    pub(super) number: u64,
    /// What has come of the head of a message.
    head: Vec<u8>,
    /// What has not come of the body behind it.
    body_bytes: u64,
}

impl<W: Write> Numbered<W> {
    /// The first batch has the number 0.
    pub(super) fn new(to: W) -> Self {
        Self { to, number: 0, head: Vec::new(), body_bytes: 0 }
    }

    /// Gives back what it wrote to.
    #[cfg(test)]
    pub(super) fn into_inner(self) -> W {
        self.to
    }

    /// How long the head is, where that has come, with what stands before it.
    fn wanted(&self) -> usize {
        let length = self.head.get(PREFIX_BYTES - 4..PREFIX_BYTES);
        let length = length.and_then(|it| it.try_into().ok()).map_or(0, u32::from_le_bytes);
        PREFIX_BYTES + usize::try_from(length).unwrap_or(usize::MAX - PREFIX_BYTES)
    }

    /// Writes a head that is there as a whole.
    fn pass_head(&mut self) -> io::Result<()> {
        let head = std::mem::take(&mut self.head);
        let Some(bytes) = head.get(PREFIX_BYTES..).filter(|bytes| !bytes.is_empty()) else {
            // The end of the stream.
            return self.to.write_all(&head);
        };
        let message = root_as_message(bytes).map_err(io::Error::other)?;
        self.body_bytes = u64::try_from(message.bodyLength()).map_err(io::Error::other)?;
        if message.header_type() != MessageHeader::RecordBatch {
            return self.to.write_all(&head);
        }
        let head = with_number(&message, self.number).map_err(io::Error::other)?;
        self.number += 1;
        self.to.write_all(&head)
    }
}

impl<W: Write> Write for Numbered<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.body_bytes > 0 {
            let n = usize::try_from(self.body_bytes).unwrap_or(usize::MAX).min(bytes.len());
            let (body, _) = bytes.split_at(n);
            self.to.write_all(body)?;
            self.body_bytes -= n as u64;
            return Ok(n);
        }
        let n = (self.wanted() - self.head.len()).min(bytes.len());
        let (head, _) = bytes.split_at(n);
        self.head.extend_from_slice(head);
        if self.head.len() >= PREFIX_BYTES && self.head.len() == self.wanted() {
            self.pass_head()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The head of a batch with its number, and what stands before it.
fn with_number(message: &Message<'_>, number: u64) -> Result<Vec<u8>, &'static str> {
    let batch = message.header_as_record_batch().filter(|batch| batch.compression().is_none());
    let batch = batch.ok_or("a batch is compressed")?;
    let mut to = FlatBufferBuilder::new();
    let nodes: Vec<_> = batch.nodes().into_iter().flatten().copied().collect();
    let buffers: Vec<_> = batch.buffers().into_iter().flatten().copied().collect();
    let counts: Option<Vec<i64>> = batch.variadicBufferCounts().map(|it| it.iter().collect());
    let header = RecordBatchArgs {
        length: batch.length(),
        nodes: Some(to.create_vector(&nodes)),
        buffers: Some(to.create_vector(&buffers)),
        variadicBufferCounts: counts.map(|counts| to.create_vector(&counts)),
        compression: None,
    };
    let header = RecordBatch::create(&mut to, &header);
    let (key, value) = (to.create_string(KEY), to.create_string(&number.to_string()));
    let entry = KeyValue::create(&mut to, &KeyValueArgs { key: Some(key), value: Some(value) });
    let message = MessageArgs {
        version: message.version(),
        header_type: MessageHeader::RecordBatch,
        header: Some(header.as_union_value()),
        bodyLength: message.bodyLength(),
        custom_metadata: Some(to.create_vector(&[entry])),
    };
    let message = Message::create(&mut to, &message);
    to.finish(message, None);
    let bytes = to.finished_data();
    let all_bytes = (PREFIX_BYTES + bytes.len()).next_multiple_of(ALIGNED_BYTES);
    let length = u32::try_from(all_bytes - PREFIX_BYTES).map_err(|_| "a head is too long")?;
    let mut head = Vec::with_capacity(all_bytes);
    head.extend_from_slice(&[0xff; 4]);
    head.extend_from_slice(&length.to_le_bytes());
    head.extend_from_slice(bytes);
    head.resize(all_bytes, 0);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int8Type;
    use arrow_array::{
        ArrayRef, DictionaryArray, Int64Array, NullArray, RecordBatch, StringViewArray,
    };
    use arrow_ipc::reader::StreamReader;
    use arrow_ipc::writer::StreamWriter;

    use super::*;

    /// Hands on what it is written in pieces of this many bytes.
    struct Pieces<W>(usize, W);

    impl<W: Write> Write for Pieces<W> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            for piece in bytes.chunks(self.0) {
                self.1.write_all(piece)?;
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.1.flush()
        }
    }

    fn batches() -> Vec<RecordBatch> {
        let batch = |n: i64| {
            let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(n), None, Some(n + 1)]));
            let long = "a text that is not kept in the view itself";
            let views: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b", long]));
            let of = ["x", "x", if n == 0 { "y" } else { "x" }];
            let codes: ArrayRef = Arc::new(of.into_iter().collect::<DictionaryArray<Int8Type>>());
            let nulls: ArrayRef = Arc::new(NullArray::new(3));
            RecordBatch::try_from_iter_with_nullable([
                ("numbers", numbers, true),
                ("views", views, false),
                ("codes", codes, false),
                ("nulls", nulls, true),
            ])
            .unwrap()
        };
        vec![batch(0), batch(5), batch(5).slice(1, 2), batch(7).slice(0, 0)]
    }

    /// The numbers of the batches in a stream.
    fn numbers(mut stream: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        while stream.len() > PREFIX_BYTES {
            let length = u32::from_le_bytes(stream[4..8].try_into().unwrap());
            let (head, rest) = stream[8..].split_at(usize::try_from(length).unwrap());
            let message = root_as_message(head).unwrap();
            found.extend(number_of(&message).map(str::to_owned));
            let is_batch = message.header_type() == MessageHeader::RecordBatch;
            assert_eq!(is_batch, number_of(&message).is_some());
            assert_eq!((PREFIX_BYTES + head.len()) % ALIGNED_BYTES, 0);
            stream = &rest[usize::try_from(message.bodyLength()).unwrap()..];
        }
        found
    }

    #[test]
    fn batches_have_numbers_and_are_the_same_however_they_are_cut_up() {
        for piece in [1, 7, 64, 1 << 20] {
            let batches = batches();
            let numbered = Numbered::new(Vec::new());
            let mut writer =
                StreamWriter::try_new(Pieces(piece, numbered), &batches[0].schema()).unwrap();
            for batch in &batches {
                writer.write(batch).unwrap();
            }
            let stream = writer.into_inner().unwrap().1.to;
            let read: Vec<_> =
                StreamReader::try_new(&*stream, None).unwrap().map(Result::unwrap).collect();
            assert_eq!(read, batches, "{piece}");
            assert_eq!(numbers(&stream), ["0", "1", "2", "3"], "{piece}");
        }
    }
}
