//! The codes of errors and rejects: what each means, why it happens, what to do.
//!
//! Leaves out: which error has which code, which `cli::error_code` decides, and the definition for its
//! own problems.
//!
//! Invariants:
//! 1. A code is stable: it is never given to anything else, and what it means never changes.
//! 2. Every code has all its texts, because the table is where codes are made.

macro_rules! codes {
    ($($name:ident = $code:literal: $means:literal, $why:literal, $todo:literal, $example:literal;)*) => {
        /// What kind of error it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $means] $name,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What is known about it.
            #[must_use]
            pub fn entry(self) -> Entry {
                match self {
                    $(Self::$name => Entry {
                        code: $code, means: $means, why: $why, todo: $todo, example: $example,
                    },)*
                }
            }
        }
    };
}

/// What is known about a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// The code: words with `-` for errors, with `_` for what is wrong with one row, which is also
    /// the code of its reject.
    pub code: &'static str,
    /// What it means.
    pub means: &'static str,
    /// Why it happens.
    pub why: &'static str,
    /// What to do.
    pub todo: &'static str,
    /// What such an error says.
    pub example: &'static str,
}

impl Code {
    /// The code as it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().code
    }

    /// Whether it is about one row, and so the code of its reject.
    #[must_use]
    pub fn is_of_row(self) -> bool {
        let is_one_word =
            matches!(self, Self::RowNull | Self::RowShape | Self::RowAxis | Self::RowCategory);
        is_one_word || self.name().contains('_')
    }

    /// The code of that name; `-` and `_` are one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| is_same_code(code.name(), name))
    }
}

/// Whether two texts name one code; `-` and `_` are one.
#[must_use]
pub fn is_same_code(one: &str, other: &str) -> bool {
    one.replace('_', "-") == other.replace('_', "-")
}

codes! {
    DefinitionFile = "definition-file":
        "The definition cannot be read.",
        "There is no such file, it is a folder, it is no text, or you may not read it.",
        "Name a TOML file that holds a definition; `rowmill init` prints one to begin with.",
        "there is no such file";
    DefinitionSyntax = "definition-syntax":
        "The definition is not TOML.",
        "A quote or bracket is missing, or a key stands twice.",
        "Look at the marked place and the line before it; strings need quotes.",
        "this is not TOML";
    DefinitionUnknownKey = "definition-unknown-key":
        "A key is not known where it stands.",
        "It is misspelt, in the wrong table, or of another version. Unknown keys are refused so that no setting is lost silently.",
        "Take the name that is suggested, or look it up: `rowmill schema` lists all keys.",
        "unknown key `contnt` in [sources.files]";
    DefinitionMissingKey = "definition-missing-key":
        "A table lacks a key that it needs.",
        "Some settings have no default, because any would be a guess.",
        "Add the key that is named.",
        "[sources.files] needs `path`";
    DefinitionValue = "definition-value":
        "A setting has a value that it cannot take.",
        "It is of another type, out of range, or contradicts another setting.",
        "Correct the marked value as the hint says.",
        "`jobs` is 0, and it takes 1 to 4096";
    DefinitionUnknownName = "definition-unknown-name":
        "A name stands for nothing: a kind of source or transform, or a stage.",
        "It is misspelt, or the stage is defined under another name.",
        "Take the name that is suggested; `rowmill schema` lists all kinds.",
        "unknown source type `flies`";
    DefinitionVariable = "definition-variable":
        "A variable in the definition cannot be replaced.",
        "It is not set, or not listed in `env`: only listed variables are read, so that a definition says what it depends on.",
        "Set it, give a default with `${NAME:-default}`, or add the name to `env`.",
        "${HOME} is not listed in `env`";
    DefinitionOverride = "definition-override":
        "A `--set` cannot be understood.",
        "It has not the form KEY=VALUE, or the value is not TOML.",
        "Write `--set dataset.shard_bytes=64MiB`; quote strings for your shell.",
        "an override has the form KEY=VALUE";
    DefinitionColumns = "definition-columns":
        "The columns that reach a stage or the dataset are not what the definition says.",
        "A setting names a column that is not there, or of a type that cannot be used so.",
        "`rowmill check` shows the columns behind each stage; take one of them.",
        "[transforms.counts], `input`: there is no column `txt`";
    StageSettings = "stage-settings":
        "A source or transform refuses its settings.",
        "Each is valid, but together they make no sense; or a hook is not as they have it: its `entry` is not there, or loads what is not among its `files`.",
        "Change them as the hint says.",
        "stage `files`: the settings contradict each other";
    DatasetSchema = "dataset-schema":
        "Columns cannot be stored as fields.",
        "A type has no layout, or batches do not have the columns that were planned.",
        "Cast or leave out the column with a transform, or describe it in [dataset.fields].",
        "dataset: field `when`: it has no layout";
    SourceNoInput = "source-no-input":
        "A source matches no file.",
        "`root` or `path` lead elsewhere, or the files are not there yet.",
        "Correct them, or set `allow_empty = true` on the source.",
        "source `files` matches no input below `in`";
    SourceListing = "source-listing":
        "The folder of a source is not what the definition says.",
        "The root is not there, or a name in it cannot stand for an input.",
        "Correct `root` and `path`, or rename the file.",
        "`inn` is not there";
    MemoryTooSmall = "memory-too-small":
        "The memory that was given cannot hold what a run may need.",
        "Each stage must be able to hold the largest row that `max_row_bytes` allows; nothing is started that might not fit.",
        "Raise `memory`, or lower `max_row_bytes`, `jobs` or `batch_bytes`; `rowmill plan` shows the parts.",
        "memory = 1048576 bytes (1.00 MiB) cannot hold 1 partition at once";
    DiskTooSmall = "disk-too-small":
        "The disk has less room than the inputs take, or what is to be pulled.",
        "`check` expects a dataset of about the size of its inputs; `pull` knows how many bytes are to come.",
        "Free some space (`rowmill clean` shows what can go), or let it go to a folder on another disk.",
        "only 1.00 GiB are free in `data`, and the dataset may take 2.00 GiB";
    InputUnreadable = "input-unreadable":
        "The system refused to read an input.",
        "It may not be read, was removed, or its disk failed.",
        "Mend it and run the same command again; it goes on from there.",
        "cannot read `b.csv`: Permission denied";
    InputInvalid = "input-invalid":
        "An input is not what the definition says, in a way that is not one row's fault.",
        "Its header is another, it is of another format, or its first rows decide no type.",
        "Correct the input or the settings of its source.",
        "`b.csv`, line 1: the header is another than that of `a.csv`";
    InputChanged = "input-changed":
        "An input changed while it was read.",
        "Something writes to it. Rows of two versions are never mixed.",
        "Wait until nothing writes to the inputs, and run the same command again.",
        "`b.csv` changed while it was read";
    BatchRefused = "batch-refused":
        "Arrow could not make or compute a batch.",
        "A column holds what its type does not allow, or is too large for it.",
        "Look at the cause that follows; run with --log-level debug and report it if the data is right.",
        "cannot make a batch";
    InputsDivided = "inputs-divided":
        "The inputs cannot be divided into partitions.",
        "One is listed twice, out of order, or cut where it cannot be.",
        "List each file once: look for globs that overlap.",
        "input `a.csv` is listed after `b.csv`";
    RowInputDamaged = "input_damaged":
        "An input cannot be read from this row on.",
        "It is truncated, a compressed block is damaged, or it is not of this format at all.",
        "Fetch the file again. With `on_error = \"quarantine\"` its rest is one reject.",
        "`b.csv.gz`, row 17: the compressed data ends too early";
    RowNotUtf8 = "not_utf8":
        "A text of a row is not UTF-8.",
        "The file has another encoding, or bytes that are no text.",
        "Convert the file, read the column as binary, or reject such rows with `on_error = \"quarantine\"`.",
        "`a.csv`, line 3, field `name`: not UTF-8";
    RowTooLarge = "row_too_large":
        "A row has more bytes than `max_row_bytes`.",
        "The bound is what memory is planned with.",
        "Raise `max_row_bytes` in [dataset], drop such rows before, or reject them.",
        "`b.csv`, row 0: 23 bytes, and a row may have 22";
    RowValue = "value_misfit":
        "A value cannot be what its column or field holds.",
        "It is no number, out of range, or not among the declared ones.",
        "Choose a wider type, correct the input, or reject such rows with `on_error = \"quarantine\"`.",
        "`b.csv`, line 3, row 1, field `n`: \"x\" is no int64";
    RowNull = "null":
        "A value is absent where there must be one.",
        "The field is not nullable.",
        "Fill it before, set `nullable = true` in [dataset.fields], or reject such rows.",
        "`b.csv`, row 1, field `n`: there is no value";
    RowNullItem = "null_item":
        "A list holds a null.",
        "The values of a list lie one after another; there is no place for nulls between them.",
        "Fill them before, store the field as `dtype = \"json\"`, or reject such rows.",
        "`b.jsonl`, row 1, field `points`: a null within a list";
    RowOutOfRange = "out_of_range":
        "A number does not fit its field's dtype.",
        "The dtype is too narrow, or the number is not whole.",
        "Choose a wider dtype in [dataset.fields], or reject such rows.",
        "`b.csv`, row 1, field `n`: 400 is no int8";
    RowShape = "shape":
        "An array has another shape than its field.",
        "Its lists are longer, shorter, or not rectangular.",
        "Correct the shape in [dataset.fields], or reject such rows.",
        "`b.jsonl`, row 1, field `panel`: 5 values where 6 belong";
    RowAxis = "axis":
        "Lists that share an axis have different lengths in a row.",
        "Fields on one axis have the same number of entries in each row.",
        "Give them axes of their own in [dataset.fields], or reject such rows.",
        "`b.jsonl`, row 1, field `mass`: 3 entries, and axis `atoms` has 4";
    RowNotJson = "not_json":
        "A value has no form in JSON, or a text is no JSON.",
        "The field is stored as JSON.",
        "Store it as text, or reject such rows.",
        "`b.csv`, row 1, field `meta`: this is not JSON";
    RowCategory = "category":
        "A value is not in the declared list of a categorical field.",
        "The list is incomplete, or the value is misspelt.",
        "Add it to the list, at its end (`rowmill init categories` prints one of the data), or reject such rows.",
        "`b.csv`, row 1, field `word`: \"four\" is not in `categorical`";
    RowFieldCount = "field_count":
        "A record has more or fewer fields than there are columns.",
        "A delimiter stands in a value without quotes, or the record is cut off.",
        "Correct the record, check `delimiter` and `quote`, or reject such rows.",
        "`a.csv`, line 3: 4 fields, and there are 3 columns";
    RowUnclosedQuote = "unclosed_quote":
        "A quoted field has no end.",
        "A quote is missing, or stands within a value without being doubled.",
        "Correct the record, or check `quote`.",
        "`a.csv`, line 3: a quoted field is not closed";
    RowLineEnd = "line_end_in_value":
        "A quoted field holds a line end where none is allowed.",
        "`newlines_in_values = false` promises that there are none.",
        "Set it to `true`, correct the record, or reject such rows.",
        "`a.csv`, line 3: a line end within quotes";
    RowRepeatedKey = "repeated_key":
        "A key stands twice in an object.",
        "It was written twice, or two records were joined into one line.",
        "Keep one of the two, or reject such rows with `on_error = \"quarantine\"`.",
        "`a.jsonl`, line 3, row 2: the key `color` stands twice in an object";
    RowUnknownKey = "unknown_key":
        "An object has a key that no column has.",
        "The columns were inferred from the first objects, or declared without it.",
        "Declare the key's type, let the source ignore unknown keys, or reject such rows.",
        "`a.jsonl`, line 3: the key `color` is no column";
    RowSchemaMismatch = "schema_mismatch":
        "An input has other columns than the first one.",
        "It was written by another program or version.",
        "Leave it out, give the columns one type with the source's settings, or reject its rows.",
        "`b.parquet`: column `n` is text here";
    RowPageTooLarge = "page_too_large":
        "Rows lie in a page that takes more memory than the definition allows.",
        "A page is decoded as a whole, however few of its rows are wanted.",
        "Raise `page_bytes` of the source, name fewer `columns`, or write the file with smaller pages.",
        "`a.parquet`, row 7: its page has 999999999 bytes";
    RowBatchTooLarge = "batch_too_large":
        "Rows lie in a record batch that takes more memory than the definition allows.",
        "A batch is decoded as a whole, however few of its rows are wanted.",
        "Raise `max_batch_bytes` of the source, or write the file with smaller batches.",
        "`a.arrow`, row 7: its batch has 999999999 bytes";
    RowRefused = "row-refused":
        "A row cannot be stored or transformed.",
        "The stage that met it says why; its reject has a code of the stage's own.",
        "Correct the input, or reject such rows with `on_error = \"quarantine\"`.",
        "`b.csv`, row 1, field `panel`: lists on one axis have other lengths";
    StageEnded = "stage-ended":
        "A stage ended without an answer.",
        "It panicked, its thread could not be started, or its neighbour went without saying why.",
        "Run the same command again; if it comes again, report it with the log of --log-level debug.",
        "stage `resize` panicked: attempt to divide by zero";
    DiskError = "disk-error":
        "The system refused an operation on a dataset's folder.",
        "The disk failed, a name is taken, or something else works in the folder.",
        "Look at the cause that follows; then run the same command again.",
        "cannot sync `data/t/…/n.bin`: Input/output error";
    DiskFull = "disk-full":
        "The disk is full.",
        "The dataset and what lies beside it take all of it, or a quota is reached.",
        "Free some space (`rowmill clean` shows what can go) and run the same command again; it continues where it stopped.",
        "cannot append to `data/t/…/n.bin`: No space left on device";
    DiskPermission = "disk-permission":
        "The dataset's folder or a file in it may not be written, or not be read.",
        "It belongs to somebody else, or the file system is read-only.",
        "Check who owns it, or let `out` be another folder.",
        "cannot create the directory `data/t`: Permission denied";
    OpenShardDamaged = "open-shard-damaged":
        "An open shard is not what was committed.",
        "Something other than rowmill changed the folder, or the disk did not keep what it had synced.",
        "Look into that first; then delete the folder that is named and run again.",
        "open shard 3/12: the manifest promises 4096 bytes of `n.bin`, but it ends at 4000";
    ShardLost = "shard-lost":
        "A sealed shard that a log promises is not there.",
        "It was removed by hand while its partition was being built.",
        "Delete the files that the hint names and run again; the partition is built anew.",
        "partition 0f…: its log promises shard 3a…, but it is not there";
    ShardDamaged = "shard-damaged":
        "A sealed shard is not what was sealed.",
        "A file of it was changed or removed, or the disk lost bytes.",
        "`rowmill verify` names every damage; remove the shard's folder and run the pipeline again.",
        "`…/words.bin` is missing";
    ShardNotSealed = "shard-not-sealed":
        "The folder is no sealed shard.",
        "It has no `_COMPLETE`: it was never finished, or is the rest of a removal.",
        "Run the pipeline again; it finishes what it had begun.",
        "`…` is no sealed shard: it has no _COMPLETE";
    ShardRemote = "shard-remote":
        "The rows of a shard are not on this disk.",
        "Its field files were removed after it had been pushed.",
        "Bring them back with `rowmill pull URL DIR`; the hint has both.",
        "the rows of shard `…` are only at `…`";
    ShardSchema = "shard-schema":
        "The schema of a shard cannot be used.",
        "A later version wrote it, or it holds something that cannot be shown.",
        "Use the version of rowmill that wrote it, or a later one.",
        "schema: unknown kind `sparse`";
    IndexFailed = "index-failed":
        "`index.parquet` cannot be made.",
        "A value does not fit the Parquet format.",
        "Leave the field out of the index, and report it with the cause that follows.",
        "cannot make `…/index.parquet`";
    NoSuchRow = "no-such-row":
        "There is no row of that number.",
        "Rows are counted from 0.",
        "`rowmill inspect` tells how many there are.",
        "there is no row 7: there are 3, counted from 0";
    NoSuchKey = "no-such-key":
        "No row has that key.",
        "It is misspelt, or its row was dropped, rejected, or never there.",
        "`rowmill cat --columns` prints the keys that there are.",
        "no row has the key `img-17`";
    NoSuchField = "no-such-field":
        "Rows have no field of that name.",
        "It is misspelt, or of another generation.",
        "Take one of those that the hint names.",
        "there is no field `txt`";
    ReadMisuse = "read-misuse":
        "A field or key was asked for something that it does not have.",
        "It is of another kind or type.",
        "`rowmill inspect` shows the fields with their kinds.",
        "rows have no key";
    TransformFailed = "transform-failed":
        "A transform cannot do its part.",
        "What it needs beside its rows is not there, or not what it should be: it says what.",
        "Do as it says and run the same command again.",
        "transform `likeness`: `template.pgm` is no picture";
    HookFailed = "hook-failed":
        "The process of a hook cannot be run, or fails whatever it is asked about.",
        "The program is not there, it needs something that is not, or it cannot take the whole batch.",
        "Look at what it said last; run it by hand; lower `batch_rows` where it takes rows only one by one.",
        "transform `features`: it has never answered: it ended with exit status 2";
    HookAnswer = "hook-answer":
        "A hook answers with something else than was declared.",
        "It prints to stdout, answers more than once, or with other rows, columns, types or shapes.",
        "Make `output` and the hook agree; it writes one batch for each that it reads, and nothing else.",
        "transform `features`: it was sent 8 rows and answered with 7";
    HookDied = "hook_died":
        "The process of a hook ends with this row.",
        "The hook has a bug, or the row is not what it expects. It was asked twice.",
        "Look at what the hook said last, in the log of the run with `--log-level info`; mend the hook, or quarantine such rows.",
        "the hook does not answer: signal 11 ended it";
    HookRaised = "hook_raised":
        "A hook raises an exception on this row.",
        "The hook has a bug, or the row is not what it expects. Two processes raised it.",
        "Look at the traceback, in the log of the run with `--log-level info`; mend the hook, or quarantine such rows.",
        "the hook does not answer: it raised ValueError: no such luck";
    HookTimeout = "hook_timeout":
        "A hook gives no answer to this row in time.",
        "It hangs, it waits for more input before it answers, or `timeout` is too short.",
        "A hook answers each batch before it reads the next; raise its `timeout` if it only needs longer.",
        "the hook does not answer: no answer came within `timeout` (5min)";
    HookMemory = "hook_memory":
        "A hook takes more memory than it may, for this row alone.",
        "The row is large, or the hook keeps what it no longer needs.",
        "Raise the hook's `memory`, or quarantine such rows.",
        "the hook does not answer: it took more than `memory` (1 GiB)";
    HookNull = "hook_null":
        "A hook answers without a value where there must be one.",
        "It has no answer to this row, and its column is not declared as nullable.",
        "Declare the column with `nullable = true`, or let the hook answer with a value.",
        "the hook answered without a value";
    HookNan = "hook_nan":
        "A hook answers with NaN where there may be none.",
        "A division by zero, or an overflow.",
        "Mend the hook, or set `nan = \"allow\"`.",
        "the hook answered with NaN";
    DatasetName = "dataset-name":
        "A text cannot be the name of a dataset's folder.",
        "It is empty, too long, begins with a dot or holds a slash.",
        "Use letters, digits, `-`, `_` and `.`, not at the start.",
        "`te/xts` cannot be the name of a dataset's folder";
    DatasetBusy = "dataset-busy":
        "Another process writes this dataset.",
        "A dataset has one writer. The lock is the system's: it is gone when its holder is.",
        "Wait until it ends, or stop it.",
        "`data/t/…` is being written by another run (pid 12 on host)";
    CurrentNotALink = "current-not-a-link":
        "Something else stands where the link `current` belongs.",
        "It was put there by hand, or copied by a tool that does not keep links.",
        "Move it away and run again.",
        "`data/t/current` is not a symbolic link";
    NoDataset = "no-dataset":
        "There is no complete dataset.",
        "It was never finished, or the path leads elsewhere.",
        "Run the pipeline until it ends with exit code 0, or check the path; `rowmill status` says how far it is.",
        "`data` holds no complete dataset";
    DatasetDamaged = "dataset-damaged":
        "A file of a dataset is not what was written.",
        "It was changed or removed after it was written, or the disk lost bytes.",
        "Delete the file that is named and run the pipeline again.",
        "`…/manifest-….jsonl`: its bytes are not those the sentinel names";
    VersionUnknown = "version-unknown":
        "A file was written by a later version.",
        "This program does not know its layout, and does not guess.",
        "Use the version of rowmill that wrote it, or a later one.",
        "`…/plan.json` has version 2, this program knows 1";
    DatasetEmpty = "dataset-empty":
        "The dataset has no rows.",
        "The inputs have none, or every row was dropped or rejected.",
        "Check sources and filters, or set `allow_empty = true` in [dataset].",
        "the dataset has no rows";
    DatasetTooLarge = "dataset-too-large":
        "The dataset is too large to be held in memory.",
        "At most half of the machine's memory is filled.",
        "Read it mapped, which needs no memory of its own.",
        "`data/t/…` has 99999999999 bytes, this machine 17179869184 bytes of memory";
    TooManyRejects = "too-many-rejects":
        "More rows were rejected than `max_rejects` allows.",
        "The inputs are worse than was expected, or a setting makes good rows look bad.",
        "Look at the rejects and their codes; correct the inputs or the definition, or raise `max_rejects`.",
        "stage `decode` rejected 101 rows, and may reject 100";
    DuplicateKey = "duplicate-key":
        "Two rows have the same key.",
        "The key is not unique, or an input is read twice.",
        "Choose another key, or leave one of the rows out.",
        "two rows have the key 7: row 0 (`a.csv`) and row 9 (`b.csv`)";
    BooksOpen = "books-open":
        "Rows were lost or invented on the way.",
        "A stage counted wrongly. No dataset is completed from such a build.",
        "This is a bug, of rowmill or of a stage of your own: report it with the definition.",
        "partition 0f…: the books do not close";
    Internal = "internal":
        "Something happened that should not be possible.",
        "An earlier error was passed over, or a stage broke a rule.",
        "Run the same command again; if it comes again, report it with the log of --log-level debug.",
        "partition 0f…: an earlier write failed, so nothing more is written";
    SystemRefused = "system-refused":
        "The system refused a thread, a timer or a signal handler.",
        "A limit of processes or memory is reached.",
        "Raise the limit (`ulimit -u`), or lower `jobs`.",
        "the system refused a thread, a timer or a signal handler";
    ValueNotShown = "value-not-shown":
        "A value cannot be shown.",
        "Arrow has no text for it.",
        "Leave the field out with --columns, and report it with the cause that follows.",
        "cannot show a value";
    Stopped = "stopped":
        "The run was stopped before the dataset was complete.",
        "A signal came, or the time of --until was up. Everything committed is kept.",
        "Run the same command again; it goes on from there.",
        "stopped before the dataset was complete";
    CacheBusy = "cache-busy":
        "Somebody else writes to the feature cache.",
        "Another run has it, or `rowmill cache` does: a feature cache has one writer at a time, so that nothing in it is ever half there.",
        "Wait until it has ended, or name another folder as `cache`. Reading is always possible.",
        "the feature cache `features` is being written to by pid 4711 on host";
    CacheDamaged = "cache-damaged":
        "A file of the feature cache is not what it was when it was written.",
        "It was changed or removed by something else, or the disk lost bytes.",
        "`rowmill cache verify` names every damage; remove the section with `rowmill cache prune --signature`, and its features are computed again.",
        "`features/9f…/segments/3`: is not the segment that the log names";
    CacheMisfit = "cache-misfit":
        "What the feature cache holds and what a hook declares do not fit together.",
        "The hook answers with another type or shape than before, under the same `id`, `params` and `files`.",
        "Give the hook a new `id`: what it answers is another feature now.",
        "field `x`: the feature cache holds float32, found float64";
    DamageFound = "damage-found":
        "`rowmill verify` found damage.",
        "Files were changed or removed after they were sealed, or the disk lost bytes.",
        "Each find is printed with what to do about it.",
        "1 damage found in `data/t/current`";
    InputsDiffer = "inputs-differ":
        "Inputs are not what the dataset was built from.",
        "They were changed, removed or added since; `rowmill verify --sources` reads all of them again.",
        "Run the pipeline: the partitions of changed inputs are built anew.",
        "1 input not as `data/t/…` was built from";
    TestFailed = "test-failed":
        "A test of a definition failed.",
        "The transforms make something else of its rows than it expects, or reject them.",
        "Look at what was expected and what came; correct the transform, its hook, or the test.",
        "1 of 3 tests of `p.toml` failed";
    RemoteUrl = "remote-url":
        "A URL cannot be used.",
        "Its scheme is not known, it names no bucket, or it holds a user, a password or a query.",
        "Write s3://BUCKET/PREFIX, gs://, az://, https:// or file:///; credentials come from the environment.",
        "cannot use `ftp://h/p`: this URL cannot be used (it has a scheme that is not known)";
    RemotePlainHttp = "remote-plain-http":
        "The endpoint of an object store is plain HTTP.",
        "Anybody on the way could read and change what is sent, so it must be allowed.",
        "Use an https endpoint, or set `allow_http = true` (AWS_ALLOW_HTTP=true in the environment) for a network that you trust.",
        "cannot use `s3://b/p`: the endpoint is plain HTTP, which is not allowed";
    RemoteSetup = "remote-setup":
        "The settings of an object store in the environment do not fit together.",
        "A variable that begins with AWS_, GOOGLE_ or AZURE_ has a value that it cannot take, or another is missing.",
        "Mend the variable that is named.",
        "cannot set up access to `az://c`: the settings in the environment do not fit together";
    RemoteNoBucket = "remote-no-bucket":
        "There is no such bucket or container.",
        "It was never created, is misspelt, or belongs to another endpoint.",
        "Create it, or correct the URL or the endpoint.",
        "cannot list `s3://b/p`: there is no such bucket (404 NoSuchBucket)";
    RemoteNotFound = "remote-not-found":
        "An object is not there.",
        "The URL is misspelt, or the object was removed.",
        "Look at the URL.",
        "cannot read `s3://b/p/current.json`: it is not there";
    RemoteUploadLost = "remote-upload-lost":
        "A store does not know an upload any more that was begun.",
        "It was aborted, or expired by a rule of the bucket.",
        "Run the same command again; it begins this file from its start.",
        "cannot complete `s3://b/p/x.bin`: the upload is not known any more (404 NoSuchUpload)";
    RemoteDenied = "remote-denied":
        "The credentials do not allow what was tried.",
        "They are good, but lack a permission for this bucket or prefix.",
        "Let them list, read, write and delete below the prefix.",
        "cannot write `s3://b/p/x`: no permission (403 AccessDenied)";
    RemoteCredentials = "remote-credentials":
        "There are no credentials, or the store does not accept them.",
        "Variables are not set, belong to another endpoint, or hold temporary credentials that have expired.",
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your provider has instead.",
        "cannot list `s3://b/p`: the credentials are not accepted (403 SignatureDoesNotMatch)";
    RemoteEndpoint = "remote-endpoint":
        "The region or endpoint is wrong.",
        "The bucket is in another region, or something else than an object store answers.",
        "Check AWS_REGION and AWS_ENDPOINT_URL, or what your provider has instead.",
        "cannot list `s3://b/p`: the region or endpoint is wrong (301 PermanentRedirect)";
    RemoteClock = "remote-clock":
        "The clock of this machine is wrong.",
        "Signatures hold the time, and a store refuses those that are minutes away from its own.",
        "Set the clock of this machine.",
        "cannot list `s3://b/p`: the clock of this machine is wrong (403 RequestTimeTooSkewed)";
    RemoteThrottled = "remote-throttled":
        "A store asks to be asked less, and went on doing so.",
        "More requests came than it takes, from here or elsewhere.",
        "Wait, or lower the number of requests at once, and run the same command again.",
        "cannot write `s3://b/p/x`: the store asks to be asked less (503 SlowDown)";
    RemoteNetwork = "remote-network":
        "No answer of a store came through.",
        "Its name is not known, nobody listens there, the connection was cut or stood still, or its certificate is not trusted.",
        "Check the network and the endpoint, and run the same command again.",
        "cannot list `s3://b/p`: no answer came through (Connection refused)";
    RemoteExists = "remote-exists":
        "An object stands where one was to be created, or is not the one that was to be replaced.",
        "Somebody else has written it meanwhile, or writes it now.",
        "Look at what stands there; run the same command again if it is yours.",
        "cannot create `s3://b/p/_COMPLETE`: it exists already";
    RemoteUnsupported = "remote-unsupported":
        "A store, or a place of that kind, cannot do what was asked.",
        "Places at http and https can only be read, and some stores lack conditional writes.",
        "Use another place.",
        "cannot write to `https://h/p`: the store cannot do this";
    RemoteServer = "remote-server":
        "A store failed, or refused for a reason that is not known here.",
        "What it said stands in the message.",
        "Run the same command again; ask whoever runs the store if it stays.",
        "cannot read `s3://b/p/x`: the store failed (500 InternalError)";
    RemoteDamaged = "remote-damaged":
        "What came from a store is not what was to come.",
        "Bytes were changed on the way, or in the store.",
        "Run the same command again; restore the object if it stays.",
        "cannot write `s3://b/p/x`: what came is not what was to come (400 BadDigest)";
    PushChanged = "push-changed":
        "A local file is not what was sealed, and is not pushed.",
        "It was changed or removed after it was sealed, or the disk lost bytes. Files are hashed as they are sent.",
        "`rowmill verify` names every damage; remove the shard's folder, run the pipeline again, then push.",
        "`data/t/…/x.bin` is not what was sealed, and is not pushed";
    PushConflict = "push-conflict":
        "Something else stands where an object of the dataset belongs, or in the folder of a shard.",
        "Somebody has put it there, or changed it since it was pushed.",
        "Look at who put it there; `rowmill push --replace` puts the file in its place. What is no file of a shard has to be deleted.",
        "`s3://b/t/…/x.bin` is not the file of that name: 12 bytes, not 4096";
    PushNotKept = "push-not-kept":
        "A store does not have what was sent, or not as it was sent.",
        "Somebody has removed or replaced it meanwhile, or the store loses what it confirms.",
        "Run the same command again; it sends what is missing. Find out who else writes there.",
        "`s3://b/t/…/x.bin` was sent and is not there as it was sent: nothing is there";
    PushLost = "push-lost":
        "A shard whose rows are not on this disk is not in the store any more.",
        "Its rows were dropped here after it had been pushed; somebody has removed it there since.",
        "Remove the shard's local folder, which the hint names, and run the pipeline again: it is built again.",
        "`s3://b/t/…/shards/…` is not there any more, and its rows are not here";
    PushOvertaken = "push-overtaken":
        "Another generation was put in the same place since a push began, or since the same generation was pushed from here.",
        "Two machines push datasets of one cache key. The first that ends counts, the other is refused, and none goes back unasked to a generation that it has pushed before.",
        "Find out which of the two is wanted; `rowmill push --replace` lets the sentinel name this one.",
        "`s3://b/t/…` holds generation 9f… now, put there since the push of 3a… began";
    PushContradiction = "push-contradiction":
        "Two machines that build one dataset have made other rows of the same inputs.",
        "A hook does not answer equal batches equally: it draws random numbers, asks a service, or depends on the machine.",
        "Mend the hook and give it another `id`; or remove one of the two records, at the place and in `partitions/` of the machine that has it, and run again.",
        "`s3://b/t/…/partitions/9f…-1.json` and `9f…-2.json` beside it say that the same inputs became other rows";
    PushBusy = "push-busy":
        "Another push of the same dataset to the same place is at work: on this machine, or, for `clean`, on any.",
        "A place has one push of a machine at a time, and nothing is removed beside one. The lock is the system's: it is gone when its holder is; in the store a push that was killed counts for an hour.",
        "Wait until it ends, or stop it.",
        "another push to `s3://b/t` is at work (pid 12 on host)";
    Usage = "usage":
        "What was asked for makes no sense.",
        "An argument has a wrong form, or names nothing.",
        "Do as the hint says; `rowmill help COMMAND` shows the arguments.",
        "`x` names no rows";
    PrintFailed = "print-failed":
        "The result could not be printed.",
        "Stdout is a full disk, or was closed.",
        "Send it elsewhere. What the command had to do is done.",
        "cannot print the result: No space left on device";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_one_word_of_its_own_with_all_its_texts() {
        let mut seen = BTreeSet::new();
        for code in Code::ALL {
            let Entry { code: name, means, why, todo, example } = code.entry();
            assert!(name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_')), "{name}");
            assert!(seen.insert(name.replace('_', "-")), "{name} stands twice");
            for text in [means, why, todo] {
                assert!(text.ends_with('.') && text.len() > 10, "{name}: {text}");
            }
            assert!(!example.is_empty() && !example.ends_with('.'), "{name}: {example}");
            assert_eq!(Code::from_name(name), Some(*code));
            assert_eq!(Code::from_name(&name.replace('-', "_")), Some(*code));
        }
        assert_eq!(Code::from_name("nonsense"), None);
    }
}
