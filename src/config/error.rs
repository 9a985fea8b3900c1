//! What is wrong with a definition, where it stands, and what to do about it.
//!
//! Invariants:
//! 1. A problem with something that the file or an override says shows the line that says it.
//! 2. Rendering never fails, whatever the text: columns count characters, and characters that a
//!    terminal would act on are replaced.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::codes::Code;

/// Most problems that are shown at once; the rest are counted.
const MAX_SHOWN: usize = 20;
/// Widest source line that is shown whole, in characters.
const MAX_LINE: usize = 160;

/// Where a key or value was written. Whatever an override says comes after the whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At {
    /// These bytes of the file.
    File(Range<usize>),
    /// The override of this index.
    Set(usize),
}

impl At {
    /// Sorts places in reading order.
    pub(crate) fn order(&self) -> (usize, usize) {
        match self {
            At::File(span) => (0, span.start),
            At::Set(index) => (1, *index),
        }
    }
}

/// Something wrong, not yet looked up in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// What kind of problem it is.
    pub(crate) code: Code,
    /// Where, if it can be pointed at.
    pub(crate) at: Option<At>,
    /// What.
    pub(crate) message: String,
    /// What to do.
    pub(crate) hint: Option<String>,
}

impl Problem {
    /// A problem at `at`.
    pub(crate) fn new(at: &At, message: impl Into<String>) -> Self {
        let code = Code::DefinitionValue;
        Self { code, at: Some(at.clone()), message: message.into(), hint: None }
    }

    /// The same, of another kind than a value that makes no sense.
    pub(crate) fn code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what to do about it, where that is known.
    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

/// What a definition was read from, for pointing at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a> {
    /// The file, as the user called it.
    pub(crate) path: &'a Path,
    /// What is in it.
    pub(crate) content: &'a str,
    /// The overrides, as they were given.
    pub(crate) sets: &'a [String],
}

impl Text<'_> {
    /// Looks a problem up in the text.
    pub(crate) fn locate(&self, problem: &Problem) -> ConfigError {
        let place = match &problem.at {
            Some(At::File(span)) => Some(self.place(span)),
            Some(At::Set(index)) => {
                self.sets.get(*index).map(|set| Place::Override(printable(set)))
            }
            None => Some(Place::File(self.path.to_owned())),
        };
        let hint = problem.hint.as_deref().map(printable);
        let (message, place) = (printable(&problem.message), place.map(Box::new));
        ConfigError { code: problem.code, message, hint, place }
    }

    /// Looks problems up in the text, in reading order.
    pub(crate) fn locate_all(&self, mut problems: Vec<Problem>) -> Vec<ConfigError> {
        problems.sort_by_key(|p| p.at.as_ref().map(At::order));
        problems.dedup();
        // Looking up a line takes time in the length of the file; only those that are shown get one.
        let located = problems.into_iter().enumerate().map(|(i, problem)| match i {
            0..MAX_SHOWN => self.locate(&problem),
            _ => ConfigError {
                code: problem.code,
                message: problem.message,
                hint: problem.hint,
                place: None,
            },
        });
        located.collect()
    }

    fn place(&self, span: &Range<usize>) -> Place {
        let start = floor_char(self.content, span.start);
        let end = floor_char(self.content, span.end).max(start);
        let before = self.content.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let rest = self.content.get(line_start..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        let count =
            |from: usize, to: usize| self.content.get(from..to).map_or(0, |s| s.chars().count());
        let line_end = line_start + line.len();
        Place::Line {
            path: self.path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: count(line_start, start) + 1,
            width: count(start, end.min(line_end)).max(1),
            text: line.strip_suffix('\r').unwrap_or(line).to_owned(),
        }
    }
}

/// Where a problem stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The file as a whole.
    File(PathBuf),
    /// Characters of a line.
    Line { path: PathBuf, line: usize, column: usize, width: usize, text: String },
    /// An override.
    Override(String),
}

/// One thing that is wrong with a definition.
///
/// Displays as the message, the line that it is about, and the hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    code: Code,
    message: String,
    hint: Option<String>,
    /// On the heap: errors travel through many results.
    place: Option<Box<Place>>,
}

impl ConfigError {
    /// A problem with a file that could not be read at all.
    pub(crate) fn of_file(path: &Path, message: impl Into<String>, hint: &str) -> Self {
        let (code, place) = (Code::DefinitionFile, Some(Box::new(Place::File(path.to_owned()))));
        Self { code, message: message.into(), hint: Some(hint.to_owned()), place }
    }

    /// A problem with an override that could not be read at all.
    pub(crate) fn of_override(given: &str, message: impl Into<String>, hint: &str) -> Self {
        let place = Some(Box::new(Place::Override(printable(&format!("--set {given}")))));
        let code = Code::DefinitionOverride;
        Self { code, message: message.into(), hint: Some(hint.to_owned()), place }
    }

    /// What kind of problem it is.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Line and column (in characters), from 1, where one line is to blame.
    #[must_use]
    pub fn line_column(&self) -> Option<(usize, usize)> {
        match self.place.as_deref() {
            Some(Place::Line { line, column, .. }) => Some((*line, *column)),
            _ => None,
        }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match self.place.as_deref() {
            Some(Place::File(path)) => write!(f, "\n --> {}", path.display())?,
            Some(Place::Override(given)) => write!(f, "\n --> {given}")?,
            Some(Place::Line { path, line, column, width, text }) => {
                let (text, column_shown, width) = window(text, *column, *width);
                let gutter = " ".repeat(line.to_string().len());
                write!(f, "\n{gutter}--> {}:{line}:{column}", path.display())?;
                write!(f, "\n{gutter} |\n{line} | {text}")?;
                write!(f, "\n{gutter} | {}{}", " ".repeat(column_shown - 1), "^".repeat(width))?;
            }
            None => {}
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Everything found wrong with a definition, in reading order; never empty.
///
/// Displays as one error after another, the first without its `error[code]: `, so that whoever prints
/// errors with that in front prints all of them alike. Exit code 2: trying again is no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The errors in reading order.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.0
    }

    /// `errors` as an error, unless there are none.
    pub(crate) fn check(errors: Vec<ConfigError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().take(MAX_SHOWN).enumerate() {
            if i > 0 {
                write!(f, "\n\nerror[{}]: ", error.code.name())?;
            }
            write!(f, "{error}")?;
        }
        match self.0.len().checked_sub(MAX_SHOWN) {
            Some(more) if more > 0 => write!(f, "\n\nerror: {more} more not shown"),
            _ => Ok(()),
        }
    }
}

/// The part of a line that is shown, with the column and width of its mark in it.
fn window(line: &str, column: usize, width: usize) -> (String, usize, usize) {
    let n_chars = line.chars().count();
    if n_chars <= MAX_LINE {
        return (printable(line), column, width);
    }
    let start = (column - 1).saturating_sub(MAX_LINE / 2);
    let part: String = line.chars().skip(start).take(MAX_LINE).collect();
    let (before, dots) = if start > 0 { ("…", 1) } else { ("", 0) };
    let after = if start + MAX_LINE < n_chars { "…" } else { "" };
    let column = column - start + dots;
    let width = width.min((MAX_LINE + dots + 1).saturating_sub(column)).max(1);
    (format!("{before}{}{after}", printable(&part)), column, width)
}

/// `text` with every character that would move a cursor replaced by one of the same width.
fn printable(text: &str) -> String {
    let safe = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(safe).collect()
}

/// The start of the character that byte `at` of `text` belongs to.
fn floor_char(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, span: Range<usize>) -> String {
        let text = Text { path: Path::new("p.toml"), content: text, sets: &[] };
        text.locate(&Problem::new(&At::File(span), "bad")).to_string()
    }

    #[test]
    fn the_mark_stands_under_the_characters_meant() {
        for (name, text, span, want) in [
            ("first", "ab = 1\n", 0..2, "bad\n --> p.toml:1:1\n  |\n1 | ab = 1\n  | ^^"),
            ("second line", "a\nbc = 1", 2..4, "bad\n --> p.toml:2:1\n  |\n2 | bc = 1\n  | ^^"),
            (
                "after umlauts",
                "k = 'äö' x",
                11..12,
                "bad\n --> p.toml:1:10\n  |\n1 | k = 'äö' x\n  |          ^",
            ),
            ("tab", "\tx", 1..2, "bad\n --> p.toml:1:2\n  |\n1 |  x\n  |  ^"),
            ("crlf", "x\r\ny\r\n", 3..4, "bad\n --> p.toml:2:1\n  |\n2 | y\n  | ^"),
            ("end of text", "x =", 3..3, "bad\n --> p.toml:1:4\n  |\n1 | x =\n  |    ^"),
            ("beyond the text", "x", 90..95, "bad\n --> p.toml:1:2\n  |\n1 | x\n  |  ^"),
            ("several lines", "[\n1]", 0..4, "bad\n --> p.toml:1:1\n  |\n1 | [\n  | ^"),
            ("inside a character", "ä", 1..2, "bad\n --> p.toml:1:1\n  |\n1 | ä\n  | ^"),
            ("escape", "\u{1b}[2J", 1..2, "bad\n --> p.toml:1:2\n  |\n1 | \u{fffd}[2J\n  |  ^"),
        ] {
            assert_eq!(shown(text, span), want, "{name}");
        }
    }

    #[test]
    fn a_long_line_is_shown_around_the_mark() {
        let line = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let shown = shown(&line, 500..501);
        let lines: Vec<&str> = shown.lines().collect();
        let column = lines[4].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[3].chars().nth(column), Some('X'));
        assert!(lines[3].chars().count() < MAX_LINE + 10);
        assert_eq!(lines[1], " --> p.toml:1:501");
    }

    #[test]
    fn many_errors_are_counted() {
        let error = ConfigError::of_file(Path::new("p"), "bad", "fix");
        let all = ConfigErrors(vec![error; 22]).to_string();
        assert_eq!(all.matches("error[definition-file]: bad").count(), 19);
        assert!(all.ends_with("error: 2 more not shown"));
    }
}
