//! What commands print, and how errors look.

use std::borrow::Cow;
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use serde_json::json;

use crate::codes::Code;
use crate::pipeline::{PipelineError, REPORT_VERSION, SourceReport};

/// Stdout for results, stderr for all else. A reader that has gone away is no error of ours.
#[derive(Debug)]
pub struct Console {
    color: bool,
    /// Whether something was printed on stdout.
    has_printed: AtomicBool,
}

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Building or reading failed.
    #[error(transparent)]
    Pipeline(Box<PipelineError>),
    /// What was asked for cannot be read.
    #[error(transparent)]
    Reading(Box<PipelineError>),
    /// Damage was found; what, was printed.
    #[error("{damages} found in `{path}`")]
    Damaged {
        /// "1 damage", "12 damages".
        damages: String,
        /// What was verified.
        path: String,
    },
    /// The system refused to read what was to be verified; nothing that could be read is damaged.
    #[error("{files} not be read, the first is `{first}`")]
    Unreadable {
        /// "1 file could", "12 files could".
        files: String,
        /// One of them.
        first: String,
        /// What the system answered.
        kind: std::io::ErrorKind,
    },
    /// Inputs that were to be compared cannot be read; those that can are the same.
    #[error("{inputs} not be read, the first is `{first}`")]
    InputsUnreadable {
        /// "1 input could", "12 inputs could".
        inputs: String,
        /// One of them.
        first: String,
    },
    /// Inputs are not what a dataset was built from; which, was printed.
    #[error("{inputs} not as `{path}` was built from")]
    InputsDiffer {
        /// "1 input", "12 inputs".
        inputs: String,
        /// The dataset.
        path: String,
    },
    /// Tests of a definition failed; how, was printed.
    #[error("{failed} of {tests} of `{path}` failed")]
    TestsFailed {
        /// How many failed.
        failed: u64,
        /// "1 test", "12 tests".
        tests: String,
        /// The definition.
        path: String,
    },
    /// What was asked for makes no sense.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The result could not be printed.
    #[error("cannot print the result")]
    Print(#[source] std::io::Error),
}

impl From<PipelineError> for CliError {
    fn from(error: PipelineError) -> Self {
        Self::Pipeline(Box::new(error))
    }
}

impl CliError {
    /// Why rows cannot be read.
    pub(super) fn reading(error: PipelineError) -> Self {
        Self::Reading(Box::new(error.of_store()))
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Pipeline(error) | Self::Reading(error) => error.hint(),
            Self::Usage { hint, .. } => hint.clone(),
            Self::InputsDiffer { .. } => Some(
                "a run builds the partitions of changed inputs anew; where sizes and times say nothing of \
                 the change, delete `work/stamps.jsonl` in the dataset's folder first"
                    .to_owned(),
            ),
            Self::Unreadable { .. } | Self::InputsUnreadable { .. } => {
                Some("let the user that runs this read them, and run the same command again".into())
            }
            Self::Damaged { .. } | Self::TestsFailed { .. } | Self::Print(_) => None,
        }
    }

    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Reading(error) if error.is_damage() => 4,
            Self::Pipeline(error) | Self::Reading(error) => error.exit_code(),
            Self::Damaged { .. } | Self::InputsDiffer { .. } | Self::TestsFailed { .. } => 4,
            Self::Usage { .. } => 2,
            Self::Unreadable { .. } | Self::InputsUnreadable { .. } | Self::Print(_) => 1,
        }
    }
}

/// What is said where inputs were not compared by their content.
pub(super) const STAT_NOTE: &str =
    "inputs count as unchanged while size and time of modification are (fingerprint = \"stat\")";

/// "1 row", "1,234 rows".
pub(super) fn counted(n: u64, thing: &str) -> String {
    let many = if n == 1 { "" } else { "s" };
    format!("{} {thing}{many}", HumanCount(n))
}

/// What can be done about rows that a hook did not answer.
pub(super) fn unanswered(n_rows: u64) -> String {
    let rows = counted(n_rows, "row");
    format!("a hook did not answer {rows}: `rowmill run --retry-rejects` asks again")
}

/// The lines of a dataset and its inputs, of each source where there are several.
pub(super) fn of_inputs(
    dataset: &str,
    (inputs, bytes): (u64, u64),
    sources: &[SourceReport],
    line: &mut impl FnMut(&str, String),
) {
    line("dataset", dataset.to_owned());
    line("inputs", format!("{}, {}", counted(inputs, "file"), HumanBytes(bytes)));
    if sources.len() < 2 {
        return;
    }
    for SourceReport { name, inputs, bytes } in sources {
        line("", format!("{name}: {}, {}", counted(*inputs, "file"), HumanBytes(*bytes)));
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl Console {
    /// The process's own stdout and stderr.
    #[must_use]
    pub fn new() -> Self {
        // https://no-color.org: set and not empty.
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let color = std::io::stderr().is_terminal() && !refused && !dumb;
        Self { color, has_printed: AtomicBool::new(false) }
    }

    /// Whether stderr takes colors.
    #[must_use]
    pub fn has_color(&self) -> bool {
        self.color
    }

    /// Prints a result. Control characters, which names of files may have, are spelled.
    ///
    /// # Errors
    /// Stdout cannot be written, for another reason than that its reader has gone.
    pub fn print(&self, text: &str) -> Result<(), CliError> {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.print_some(format!("{}{end}", spelled(text)).as_bytes()).map(drop)
    }

    /// Prints a part of a result. Says whether anybody reads it.
    ///
    /// # Errors
    /// As [`Console::print`].
    pub fn print_some(&self, bytes: &[u8]) -> Result<bool, CliError> {
        self.has_printed.store(true, Ordering::Relaxed);
        let mut out = std::io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(e) => Err(CliError::Print(e)),
        }
    }

    /// Prints a result as one JSON document.
    ///
    /// # Errors
    /// As [`Console::print`].
    pub fn print_json(&self, document: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(document)
            .map_err(|e| CliError::Print(std::io::Error::other(e)))?;
        self.print_some(format!("{text}\n").as_bytes()).map(drop)
    }

    /// Tells something on stderr. If nobody can read it, there is nobody to tell.
    pub fn note(&self, text: &str) {
        writeln!(std::io::stderr(), "{}", spelled(text)).ok();
    }

    /// Prints an error with its causes and what to do.
    pub fn error(&self, error: &CliError) {
        let (red, plain) = if self.color { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        let code = error.code().name();
        let text = with_causes(error);
        writeln!(std::io::stderr(), "{red}error[{code}]:{plain} {}", spelled(&text)).ok();
        if let Some(hint) = error.hint() {
            self.note(&format!("hint: {hint}"));
        }
    }

    /// Prints an error as the one document of a command that has printed none.
    pub fn error_document(&self, code: Code, message: &str, hint: Option<&str>) {
        if self.has_printed.load(Ordering::Relaxed) {
            return;
        }
        let error = json!({"code": code.name(), "message": message, "hint": hint});
        // Who cannot be told on stdout is told on stderr.
        self.print_json(&json!({"version": REPORT_VERSION, "error": error})).ok();
    }
}

/// The text with its control characters as `\u{..}`, but for ends of lines and tabs: a terminal obeys
/// them.
fn spelled(text: &str) -> Cow<'_, str> {
    let is_obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::new();
    for c in text.chars() {
        if is_obeyed(c) {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// What an error says, with its causes.
pub(super) fn with_causes(error: &CliError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
