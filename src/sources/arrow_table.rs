//! One open Arrow IPC file or stream: its schema, and its rows.
//!
//! Leaves out: what is done with rows that cannot be read (`table`).
//!
//! Invariants:
//! 1. Nothing is allocated for a length that the file alone claims: a message, what its buffers say
//!    that they decompress to, and its rows are compared with bounds first.
//! 2. A file and a stream are read by the same code: a stream's messages are found by walking over it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::{
    Block, MessageHeader, MetadataVersion, root_as_footer_with_opts, root_as_message_with_opts,
};
use arrow_schema::{ArrowError, FieldRef, Schema};
use flatbuffers::VerifierOptions;

use super::BadRow;
use super::columnar::{SCHEMA_MISMATCH, Selected, pick, plain_schema};
use super::input::PlacedInput;
use super::table::{Flaw, Place, Table, contain};

/// Code of a record batch that takes more memory than the definition allows.
const BATCH_TOO_LARGE: &str = "batch_too_large";

/// What a file begins and ends with.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Length of a footer, and the mark behind it.
const END_BYTES: u64 = 10;
/// Most tables of a head: a column is two or more, as it has a type, and takes about a kibibyte.
const MOST_TABLES: usize = 100_000;
/// Most record batches whose heads are read to tell the number of a row that stands behind them.
const MOST_COUNTED: usize = 10_000;
/// The same in a store, where each is a request.
const MOST_ASKED_FOR: usize = 100;
/// What stands before the length of a message since version 0.15.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Where the footer of a file lies, with the mark behind it.
pub(super) fn footer_range(input: &PlacedInput) -> Result<Range<u64>, Flaw> {
    let size = input.size();
    let no_footer = |detail: &str| Flaw::damaged("the footer cannot be read", &detail);
    let at = size.checked_sub(END_BYTES).ok_or_else(|| no_footer("the file is too short"))?;
    let mut end = [0; 10];
    input.read_at(at, &mut end).map_err(Flaw::Input)?;
    let length = read_footer_length(end).map_err(|e| no_footer(&e.to_string()))?;
    let start = at.checked_sub(length as u64);
    Ok(start.ok_or_else(|| no_footer("it is longer than the file"))?..size)
}

/// Where the messages of an input are.
enum Messages {
    /// A file's footer says where the record batches are.
    File { batches: Vec<Block> },
    /// A stream is walked over.
    Stream {
        /// The first message behind the schema.
        first: u64,
        /// The message that is looked at next, and how many record batches stand before it.
        next: (u64, usize),
    },
}

/// An open file or stream, or the record batches of it that begin in a range.
pub(super) struct ArrowTable {
    input: PlacedInput,
    messages: Messages,
    decoder: FileDecoder,
    has_dictionaries: bool,
    /// Bytes of the dictionaries that the decoder holds.
    dictionaries: HashMap<i64, u64>,
    /// The columns as they are decoded, and as they come out.
    decoded: Vec<FieldRef>,
    schema: Arc<Schema>,
    groups: Range<usize>,
    place: Place,
    /// The record batch that `place` is in.
    batch: Option<(usize, RecordBatch)>,
    most_bytes: u64,
}

/// A message that was looked at.
struct Message {
    block: Block,
    kind: MessageHeader,
    version: MetadataVersion,
}

impl ArrowTable {
    pub(super) fn new(
        input: PlacedInput,
        range: Option<&Range<u64>>,
        selected: &Selected,
        most_bytes: u64,
    ) -> Result<Self, Flaw> {
        let mut mark = [0; 6];
        let is_file = input.size() >= 6 && {
            input.read_at(0, &mut mark).map_err(Flaw::Input)?;
            &mark == MAGIC
        };
        let opened = if is_file {
            Head::of_file(&input, most_bytes)
        } else {
            Head::of_stream(&input, most_bytes)
        };
        let head = opened.map_err(|flaw| unless_changed(&input, flaw))?;
        if let Some((path, near)) = selected.missing(head.schema.fields()) {
            let message = format!("there is no column `{path}`, which `columns` names");
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "it has no columns".to_owned(),
            };
            return Err(Flaw::Rest(BadRow::new(SCHEMA_MISMATCH, message).hint(hint)));
        }
        let chosen = selected.indexed(head.schema.fields());
        let projection = chosen.iter().map(|(i, _)| *i).collect();
        let columns: Vec<FieldRef> = chosen.into_iter().map(|(_, field)| field).collect();
        let schema = plain_schema(&Schema::new(columns.clone()));
        let whole = Arc::new(head.schema);
        let decoder = FileDecoder::new(whole, head.version).with_projection(projection);
        let groups = match (&head.messages, range) {
            (Messages::File { batches }, Some(range)) => {
                let at = |block: &Block| u64::try_from(block.offset()).unwrap_or(u64::MAX);
                let from = batches.partition_point(|block| at(block) < range.start);
                let to = batches.partition_point(|block| at(block) < range.end);
                from..to.max(from)
            }
            (Messages::File { batches }, None) => 0..batches.len(),
            (Messages::Stream { .. }, _) => 0..usize::MAX,
        };
        let mut table = Self {
            input,
            messages: head.messages,
            decoder,
            has_dictionaries: head.has_dictionaries,
            dictionaries: HashMap::new(),
            decoded: columns,
            schema,
            place: Place { group: groups.start, row: 0 },
            groups,
            batch: None,
            most_bytes,
        };
        for block in &head.dictionaries {
            let read = table.read_dictionary(block);
            read.map_err(|flaw| unless_changed(&table.input, flaw))?;
        }
        Ok(table)
    }

    /// Where record batches begin, if ranges can be read apart; without the first.
    pub(super) fn group_starts(&self) -> Vec<u64> {
        let Messages::File { batches } = &self.messages else { return Vec::new() };
        let starts = batches.iter().map(|block| u64::try_from(block.offset()));
        let starts: Vec<_> = starts.collect::<Result<_, _>>().unwrap_or_default();
        if self.has_dictionaries || !starts.is_sorted_by(|a, b| a < b) {
            return Vec::new();
        }
        starts.get(1..).unwrap_or_default().to_vec()
    }

    /// All rows of a file, by the heads of its record batches.
    pub(super) fn n_rows(&self) -> Option<u64> {
        let Messages::File { batches } = &self.messages else { return None };
        self.rows_of(batches)
    }

    fn rows_of(&self, batches: &[Block]) -> Option<u64> {
        let rows = batches.iter().map(|block| {
            let bytes = u64::try_from(block.metaDataLength()).ok()?;
            let head = read(&self.input, at_of(block)?, bytes, self.most_bytes).ok()?;
            let batch = message_of(&head).ok()?.header_as_record_batch()?;
            u64::try_from(batch.length()).ok()
        });
        rows.sum()
    }

    /// A message with its body, if it is not too large.
    fn read_block(&self, block: &Block, others: u64) -> Result<(Buffer, u64), Flaw> {
        let sizes = (
            at_of(block),
            u64::try_from(block.metaDataLength()),
            u64::try_from(block.bodyLength()),
        );
        let (Some(at), Ok(head), Ok(body)) = sizes else {
            return Err(Flaw::damaged("a message is nowhere in the file", &"a size below zero"));
        };
        let most = self.most_bytes.saturating_sub(others);
        let buffer = read(&self.input, at, head.saturating_add(body), most)?;
        let claimed = contain("a message cannot be read", || claimed_bytes(&buffer, head))?;
        if claimed > most {
            return Err(larger(claimed, self.most_bytes));
        }
        let bytes = claimed.max(buffer.len() as u64);
        Ok((buffer, bytes))
    }

    fn read_dictionary(&mut self, block: &Block) -> Result<(), Flaw> {
        let others: u64 = self.dictionaries.values().sum();
        let (buffer, bytes) = self.read_block(block, others)?;
        let cannot = "a dictionary cannot be read";
        let (id, is_delta) = contain(cannot, || {
            let batch = message_of(&buffer)?.header_as_dictionary_batch();
            let batch = batch.ok_or_else(|| ArrowError::IpcError("no dictionary".to_owned()))?;
            Ok::<_, ArrowError>((batch.id(), batch.isDelta()))
        })?;
        contain(cannot, || self.decoder.read_dictionary(block, &buffer)).map_err(of_all_rows)?;
        let known = self.dictionaries.entry(id).or_default();
        *known = if is_delta { known.saturating_add(bytes) } else { bytes };
        Ok(())
    }

    fn decode(&self, block: &Block) -> Result<RecordBatch, Flaw> {
        let others: u64 = self.dictionaries.values().sum();
        let (buffer, _) = self.read_block(block, others)?;
        let decode = || {
            let batch = self.decoder.read_record_batch(block, &buffer)?;
            let batch = batch.ok_or_else(|| ArrowError::IpcError("an empty message".to_owned()))?;
            let columns = batch.columns().iter().zip(&self.decoded);
            let columns = columns.map(|(column, field)| pick(column, field.data_type()));
            let fields = Schema::new(self.decoded.clone());
            let options =
                arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = columns.collect::<Result<_, _>>()?;
            RecordBatch::try_new_with_options(Arc::new(fields), columns, &options)
        };
        contain("a record batch cannot be read", decode).map_err(of_all_rows)
    }

    /// Decodes record batch `group`; `None` if there are fewer.
    fn load(&mut self, group: usize) -> Result<Option<()>, Flaw> {
        if self.batch.as_ref().is_some_and(|(loaded, _)| *loaded == group) {
            return Ok(Some(()));
        }
        self.batch = None;
        if !self.groups.contains(&group) {
            return Ok(None);
        }
        let block = match &self.messages {
            Messages::File { batches } => batches.get(group).copied(),
            Messages::Stream { .. } => self.walk_to(group)?,
        };
        let Some(block) = block else { return Ok(None) };
        self.batch = Some((group, self.decode(&block)?));
        Ok(Some(()))
    }

    /// Goes to record batch `group` of a stream, by way of the dictionaries before it.
    fn walk_to(&mut self, group: usize) -> Result<Option<Block>, Flaw> {
        let Messages::Stream { first, next } = self.messages else { return Ok(None) };
        let (mut at, mut index) = if next.1 <= group { next } else { (first, 0) };
        if next.1 > group {
            self.dictionaries.clear();
        }
        while let Some(message) = look(&self.input, at, self.most_bytes)? {
            let block = message.block;
            let end = end_of(&block);
            let is_here = message.kind == MessageHeader::RecordBatch && index == group;
            if !is_here {
                at = end.ok_or_else(|| Flaw::damaged("a message has no end", &"its size"))?;
                match message.kind {
                    MessageHeader::RecordBatch => index += 1,
                    MessageHeader::DictionaryBatch => self.read_dictionary(&block)?,
                    other => {
                        let detail = format!("a message of kind {other:?}");
                        return Err(Flaw::damaged("the stream is out of order", &detail));
                    }
                }
            }
            if let Messages::Stream { next, .. } = &mut self.messages {
                *next = (at, index);
            }
            if is_here {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    fn advance(&mut self) -> Result<Option<(Place, RecordBatch)>, Flaw> {
        while self.load(self.place.group)?.is_some() {
            let place = self.place;
            let Some((_, batch)) = self.batch.take() else { break };
            self.place = Place { group: place.group + 1, row: 0 };
            let row = usize::try_from(place.row).unwrap_or(usize::MAX).min(batch.num_rows());
            if row < batch.num_rows() {
                return Ok(Some((place, batch.slice(row, batch.num_rows() - row))));
            }
        }
        Ok(None)
    }
}

impl Table for ArrowTable {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn place(&self) -> Place {
        self.place
    }

    fn seek(&mut self, place: Place) -> Result<bool, Flaw> {
        let loaded = self.load(place.group);
        if loaded.map_err(|flaw| unless_changed(&self.input, flaw))?.is_none() {
            return Ok(false);
        }
        self.place = place;
        let n_rows = self.batch.as_ref().map_or(0, |(_, batch)| batch.num_rows() as u64);
        Ok(place.row <= n_rows)
    }

    fn suggest(&self) -> usize {
        // A record batch is decoded as a whole: to read fewer rows of it helps nobody.
        1
    }

    fn shares_buffers(&self) -> bool {
        true
    }

    fn rows_before(&self) -> Option<u64> {
        let Messages::File { batches } = &self.messages else { return None };
        let before = batches.get(..self.groups.start)?;
        let most = if self.input.is_distant() { MOST_ASKED_FOR } else { MOST_COUNTED };
        (before.len() <= most).then(|| self.rows_of(before))?
    }

    fn next(&mut self, _: usize) -> Result<Option<(Place, RecordBatch)>, Flaw> {
        self.advance().map_err(|flaw| unless_changed(&self.input, flaw))
    }
}

/// What a file or stream says before its first rows.
struct Head {
    schema: Schema,
    version: MetadataVersion,
    messages: Messages,
    dictionaries: Vec<Block>,
    has_dictionaries: bool,
}

impl Head {
    fn of_file(input: &PlacedInput, most_bytes: u64) -> Result<Self, Flaw> {
        let range = footer_range(input)?;
        let bytes = range.end - range.start - END_BYTES;
        let buffer = read(input, range.start, bytes, most_bytes / 8)?;
        contain("the footer cannot be read", || {
            let footer = root_as_footer_with_opts(&bounds(), &buffer);
            let footer = footer.map_err(|e| ArrowError::IpcError(e.to_string()))?;
            let schema = schema_of(footer.schema())?;
            let dictionaries: Vec<Block> =
                footer.dictionaries().iter().flatten().copied().collect();
            let has_dictionaries = !dictionaries.is_empty();
            let batches = footer.recordBatches().iter().flatten().copied().collect();
            let messages = Messages::File { batches };
            let version = footer.version();
            Ok::<_, ArrowError>(Self { schema, version, messages, dictionaries, has_dictionaries })
        })
    }

    fn of_stream(input: &PlacedInput, most_bytes: u64) -> Result<Self, Flaw> {
        let no_stream = |detail: &dyn std::fmt::Display| {
            Flaw::damaged("this is neither an Arrow IPC file nor a stream", detail)
        };
        let message = look(input, 0, most_bytes)?.ok_or_else(|| no_stream(&"it is empty"))?;
        if message.kind != MessageHeader::Schema {
            return Err(no_stream(&format!("its first message is of kind {:?}", message.kind)));
        }
        let bytes = u64::try_from(message.block.metaDataLength()).unwrap_or(0);
        let buffer = read(input, 0, bytes, most_bytes / 8)?;
        let first = end_of(&message.block).ok_or_else(|| no_stream(&"a schema without end"))?;
        let schema = contain("the schema cannot be read", || {
            schema_of(message_of(&buffer)?.header_as_schema())
        })?;
        Ok(Self {
            schema,
            version: message.version,
            messages: Messages::Stream { first, next: (first, 0) },
            dictionaries: Vec::new(),
            has_dictionaries: false,
        })
    }
}

fn schema_of(schema: Option<arrow_ipc::Schema<'_>>) -> Result<Schema, ArrowError> {
    let schema = schema.ok_or_else(|| ArrowError::IpcError("there is no schema".to_owned()))?;
    if !schema.endianness().equals_to_target_endianness() {
        return Err(ArrowError::IpcError("the byte order is not this machine's".to_owned()));
    }
    try_fb_to_schema(schema)
}

/// A part of the input, if it lies in it and is not larger than `most`.
fn read(input: &PlacedInput, at: u64, bytes: u64, most: u64) -> Result<Buffer, Flaw> {
    if at.checked_add(bytes).is_none_or(|end| end > input.size()) {
        return Err(Flaw::damaged("a message goes past the end of the input", &bytes));
    }
    if bytes > most {
        return Err(larger(bytes, most));
    }
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut buffer = MutableBuffer::from_len_zeroed(length);
    input.read_at(at, &mut buffer).map_err(Flaw::Input)?;
    Ok(buffer.into())
}

fn larger(bytes: u64, most: u64) -> Flaw {
    let message =
        format!("a message takes {bytes} bytes, more than the {most} that are left for it");
    let hint = "raise `max_batch_bytes`, or write smaller record batches";
    Flaw::Rest(BadRow::new(BATCH_TOO_LARGE, message).hint(hint))
}

/// The head of the message at `at`; `None` at the end of the stream.
fn look(input: &PlacedInput, at: u64, most_bytes: u64) -> Result<Option<Message>, Flaw> {
    let left = input.size().saturating_sub(at);
    if left == 0 {
        return Ok(None);
    }
    let mut prefix = [0; 8];
    let n = usize::try_from(left.min(8)).unwrap_or(8);
    input.read_at(at, prefix.get_mut(..n).unwrap_or_default()).map_err(Flaw::Input)?;
    let (start, rest) = (prefix.first_chunk().copied(), prefix.last_chunk().copied());
    let (start, rest) = (start.unwrap_or_default(), rest.unwrap_or_default());
    let (length, n_prefix) = match start {
        CONTINUATION => (i32::from_le_bytes(rest), 8_u64),
        length => (i32::from_le_bytes(length), 4),
    };
    if left < n_prefix {
        return Err(Flaw::damaged("the stream ends within a message", &"its length"));
    }
    if length == 0 {
        return Ok(None);
    }
    let torn = "a message cannot be read";
    let length = u64::try_from(length).map_err(|e| Flaw::damaged(torn, &e))?;
    let head = read(input, at, n_prefix + length, most_bytes)?;
    contain(torn, || {
        let message = message_of(&head)?;
        let too_far = |_| ArrowError::IpcError("the stream is too long".to_owned());
        let at = i64::try_from(at).map_err(too_far)?;
        let head_bytes = i32::try_from(head.len()).map_err(too_far)?;
        let block = Block::new(at, head_bytes, message.bodyLength());
        let (kind, version) = (message.header_type(), message.version());
        Ok::<_, ArrowError>(Some(Message { block, kind, version }))
    })
}

/// Bounds of what is read out of a head. A few bytes may stand for many fields: tables may be shared,
/// and each time counts.
fn bounds() -> VerifierOptions {
    VerifierOptions { max_depth: 64, max_tables: MOST_TABLES, ..VerifierOptions::default() }
}

/// The head of a message, verified.
fn message_of(bytes: &[u8]) -> Result<arrow_ipc::Message<'_>, ArrowError> {
    let skipped = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    let head = bytes.get(skipped..).unwrap_or_default();
    root_as_message_with_opts(&bounds(), head).map_err(|e| ArrowError::IpcError(e.to_string()))
}

/// Bytes that the buffers of a message take once they are decompressed, and its rows with a size for
/// each; the length of the message where it is not compressed.
fn claimed_bytes(message: &Buffer, head_bytes: u64) -> Result<u64, ArrowError> {
    let parsed = message_of(message)?;
    let dictionary = parsed.header_as_dictionary_batch();
    let batch = parsed.header_as_record_batch().or_else(|| dictionary.and_then(|d| d.data()));
    let Some(batch) = batch else { return Ok(message.len() as u64) };
    let n_rows = u64::try_from(batch.length());
    let n_rows = n_rows.map_err(|_| ArrowError::IpcError("rows below zero".to_owned()))?;
    let mut bytes = message.len() as u64;
    if batch.compression().is_some() {
        for buffer in batch.buffers().iter().flatten() {
            let at = u64::try_from(buffer.offset()).ok().and_then(|at| at.checked_add(head_bytes));
            let at = at.and_then(|at| usize::try_from(at).ok());
            let prefix = at.and_then(|at| message.get(at..)?.first_chunk::<8>());
            if let (Some(prefix), true) = (prefix, buffer.length() > 0) {
                let length = u64::try_from(i64::from_le_bytes(*prefix)).unwrap_or(0);
                bytes = bytes.saturating_add(length);
            }
        }
    }
    Ok(bytes.max(n_rows.saturating_mul(size_of::<u64>() as u64)))
}

fn at_of(block: &Block) -> Option<u64> {
    u64::try_from(block.offset()).ok()
}

fn end_of(block: &Block) -> Option<u64> {
    let head = u64::try_from(block.metaDataLength()).ok()?;
    let body = u64::try_from(block.bodyLength()).ok()?;
    at_of(block)?.checked_add(head)?.checked_add(body)
}

/// A record batch is decoded as a whole: where one text of it is bad, no row of it is known.
fn of_all_rows(flaw: Flaw) -> Flaw {
    match flaw {
        Flaw::Row(bad) => Flaw::Rest(BadRow { code: super::INPUT_DAMAGED, ..bad }),
        flaw => flaw,
    }
}

fn unless_changed(input: &PlacedInput, flaw: Flaw) -> Flaw {
    input.check_unchanged().map_or_else(Flaw::Input, |()| flaw)
}
