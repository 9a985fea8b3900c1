//! `${VAR}` in the strings of a definition.
//!
//! ```text
//! ${VAR}            the variable; an error if it is not set
//! ${VAR:-default}   the default if it is not set or empty; `${…}` may stand in it, one level deep
//! ${VAR:?why}       an error that says why if it is not set or empty
//! $${               the two characters ${
//! ```
//!
//! Invariants:
//! 1. Values are substituted after parsing: a variable cannot add a key or end a string.
//! 2. Only variables that the definition lists in `env` are looked at, so a definition says what
//!    of the environment it depends on.

use std::ffi::OsString;

use super::error::{At, Problem};
use super::read::nearest;
use super::tree::{Node, Table, Tree};
use crate::codes::Code;

/// Looks an environment variable up.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Substitutes variables.
pub(crate) struct Substitution<'a> {
    /// Names that the definition lists.
    pub(crate) env: &'a [String],
    /// The environment.
    pub(crate) lookup: Lookup<'a>,
    /// What went wrong.
    pub(crate) problems: Vec<Problem>,
}

impl Substitution<'_> {
    /// Substitutes in every string of `table` that the file says.
    pub(crate) fn table(&mut self, table: &mut Table) {
        for entry in table.entries_mut() {
            self.node(&mut entry.node);
        }
    }

    fn node(&mut self, node: &mut Node) {
        match &mut node.value {
            Tree::Text(text) => {
                if matches!(node.at, At::File(_)) && text.contains("${") {
                    match self.text(text, true) {
                        Ok(done) => *text = done,
                        Err(wrong) => {
                            let problem = Problem::new(&node.at, wrong.message)
                                .code(Code::DefinitionVariable);
                            self.problems.push(problem.maybe_hint(wrong.hint));
                        }
                    }
                }
            }
            Tree::List(items) => items.iter_mut().for_each(|item| self.node(item)),
            Tree::Table(table) => self.table(table),
            Tree::Integer(_) | Tree::Float(_) | Tree::Bool(_) => {}
        }
    }

    /// `text` with variables replaced; `${…}` may stand in defaults where `nested`.
    fn text(&mut self, text: &str, nested: bool) -> Result<String, Wrong> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            out.push_str(before);
            let (inner, after) = closing(after).ok_or_else(|| {
                Wrong::new("`${` without its `}`", "write $${ for the characters ${ themselves")
            })?;
            out.push_str(&self.variable(inner, nested)?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// What `${inner}` stands for.
    fn variable(&mut self, inner: &str, nested: bool) -> Result<String, Wrong> {
        let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = inner.split_at(end.unwrap_or(inner.len()));
        if !is_variable(name) {
            return Err(Wrong::new(
                format!("`${{{inner}}}` does not begin with the name of a variable"),
                "write $${ for the characters ${ themselves",
            ));
        }
        if !self.env.iter().any(|n| n == name) {
            let hint = match nearest(name, self.env.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add \"{name}\" to env, or write $${{{name}}} for that text"),
            };
            return Err(Wrong::new(format!("variable `{name}` is not listed in `env`"), hint));
        }
        let value = match (self.lookup)(name).map(OsString::into_string) {
            Some(Err(_)) => {
                let message = format!("variable `{name}` is not UTF-8");
                return Err(Wrong::new(message, format!("set {name} to text")));
            }
            Some(Ok(value)) => Some(value),
            None => None,
        };
        if let Some(default) = rest.strip_prefix(":-") {
            return match value {
                Some(value) if !value.is_empty() => Ok(value),
                _ if nested => self.text(default, false),
                _ if default.contains("${") => Err(Wrong::new(
                    "defaults may nest one level deep",
                    "list one variable fewer, or set it before the run",
                )),
                _ => Ok(default.to_owned()),
            };
        }
        if let Some(why) = rest.strip_prefix(":?") {
            return value.filter(|v| !v.is_empty()).ok_or_else(|| {
                let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                Wrong::new(format!("variable `{name}` is not set{why}"), set_it(name))
            });
        }
        if !rest.is_empty() {
            return Err(Wrong::new(
                format!("`${{{inner}}}` is not understood after `{name}`"),
                format!("write ${{{name}}}, ${{{name}:-default}} or ${{{name}:?why}}"),
            ));
        }
        value.ok_or_else(|| Wrong::new(format!("variable `{name}` is not set"), set_it(name)))
    }
}

/// Whether `name` is one that a shell can set.
pub(crate) fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn set_it(name: &str) -> String {
    format!("set it before the run: {name}=… rowmill …")
}

/// Splits at the `}` that closes what stands before it; `${` inside opens another.
fn closing(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let mut previous = ' ';
    for (i, c) in text.char_indices() {
        match c {
            '{' if previous == '$' => depth += 1,
            '}' if depth == 0 => return Some((text.get(..i)?, text.get(i + 1..)?)),
            '}' => depth -= 1,
            _ => {}
        }
        previous = c;
    }
    None
}

#[derive(Debug)]
struct Wrong {
    message: String,
    hint: Option<String>,
}

impl Wrong {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn substituted(text: &str) -> Result<String, String> {
        let env = ["A", "B", "EMPTY", "UNSET", "ALSO_UNSET"].map(str::to_owned);
        let lookup = |name: &str| match name {
            "A" => Some("a".into()),
            "B" => Some("${A}\"]\n".into()),
            "EMPTY" => Some(OsString::new()),
            "HIDDEN" => Some("secret".into()),
            _ => None,
        };
        let mut it = Substitution { env: &env, lookup: &lookup, problems: Vec::new() };
        it.text(text, true).map_err(|wrong| wrong.message)
    }

    #[test]
    fn variables_are_replaced() {
        for (text, want) in [
            ("", ""),
            ("plain $A } { $", "plain $A } { $"),
            ("${A}", "a"),
            ("x${A}y${A}", "xaya"),
            ("${B}", "${A}\"]\n"),
            ("${EMPTY}", ""),
            ("${EMPTY:-d}", "d"),
            ("${UNSET:-d}", "d"),
            ("${UNSET:-}", ""),
            ("${A:-d}", "a"),
            ("${A:?why}", "a"),
            ("${UNSET:-x/${A}/y}", "x/a/y"),
            ("${UNSET:-${ALSO_UNSET:-d}}", "d"),
            ("${UNSET:-${A:?why}}", "a"),
            ("${A:-${UNSET}}", "a"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
            ("${UNSET:-$${A}}", "${A}"),
            ("${UNSET:-{x}", "{x"),
        ] {
            assert_eq!(substituted(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_an_error() {
        for (text, want) in [
            ("${UNSET}", "variable `UNSET` is not set"),
            ("${UNSET:?}", "variable `UNSET` is not set"),
            ("${UNSET:?folder of images}", "variable `UNSET` is not set: folder of images"),
            ("${EMPTY:?why}", "variable `EMPTY` is not set: why"),
            ("${HIDDEN}", "variable `HIDDEN` is not listed in `env`"),
            ("${UNSET:-${HIDDEN}}", "variable `HIDDEN` is not listed in `env`"),
            ("${A", "`${` without its `}`"),
            ("${UNSET:-${A}", "`${` without its `}`"),
            ("${}", "`${}` does not begin with the name of a variable"),
            ("${1}", "`${1}` does not begin with the name of a variable"),
            ("${A-b}", "`${A-b}` is not understood after `A`"),
            ("${A:b}", "`${A:b}` is not understood after `A`"),
            ("${UNSET:-${UNSET:-${A}}}", "defaults may nest one level deep"),
        ] {
            assert_eq!(substituted(text), Err(want.to_owned()), "{text}");
        }
    }
}
