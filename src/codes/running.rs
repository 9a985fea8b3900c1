//! Codes of what goes wrong while rows are built, kept, read or checked, and of commands.

macro_rules! running_codes {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*]
            $($before)*
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
    };
}
