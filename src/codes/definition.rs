//! Codes of what is wrong before a row is read: with a definition, what it names, and its inputs.

macro_rules! definition_codes {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*]
            $($before)*
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
        }
    };
}
