//! The `path` setting of a source: paths and globs, relative to its root.
//!
//! In a glob, `*` and `?` stand within one name, `**` for any folders, `[ab]` and `{a,b}` for one
//! of several, and `\` takes the next character as it is. A name that begins with a dot is met only
//! by a pattern of which some part begins with a dot.
//!
//! Leaves out: looking at the disk (`listing`).

use globset::{GlobBuilder, GlobMatcher};

use super::SettingsError;

/// One path or glob.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// As it was written, without `.` and empty parts.
    pub(super) text: String,
    /// What it matches, `None` where it is a plain path.
    pub(super) glob: Option<Glob>,
}

/// A pattern with wildcards.
#[derive(Debug, Clone)]
pub(super) struct Glob {
    /// The folders that its first parts name without wildcards.
    pub(super) base: String,
    /// What the next part begins with before its first wildcard.
    pub(super) start: String,
    whole: GlobMatcher,
    /// The parts that match exactly one name each, from the first on.
    steps: Vec<GlobMatcher>,
    /// Whether more follows, of any depth.
    is_open: bool,
    takes_dots: bool,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, SettingsError> {
        let refuse = |message: String, hint: &str| {
            Err(SettingsError { at: vec!["path".to_owned()], message, hint: Some(hint.to_owned()) })
        };
        if text.contains("://") {
            return refuse(
                format!("`{text}` is a URL"),
                "`root` is the URL of the place, and `path` is relative to it",
            );
        }
        if text.starts_with('/') {
            return refuse(format!("`{text}` is an absolute path"), "put the folder into `root`");
        }
        let parts: Vec<&str> = text.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
        if parts.contains(&"..") {
            return refuse(
                format!("`{text}` leads out of the root with `..`"),
                "let `root` be the folder that holds all inputs",
            );
        }
        if parts.is_empty() {
            return refuse(format!("`{text}` names no file"), "`**` takes every file in the root");
        }
        let text = parts.join("/");
        if !has_wildcards(&text) {
            return Ok(Self { text, glob: None });
        }
        let first = parts.iter().position(|p| has_wildcards(p)).unwrap_or(0);
        // A part that holds an unclosed brace or bracket goes on behind the next slash.
        let is_step = |part: &&&str| {
            !part.contains("**")
                && part.matches('{').count() == part.matches('}').count()
                && part.matches('[').count() == part.matches(']').count()
        };
        let n_steps = parts.iter().take_while(is_step).count();
        let steps = parts.iter().take(n_steps).map(|p| compile(p));
        let glob = Glob {
            base: parts.get(..first).unwrap_or_default().join("/"),
            start: literal(parts.get(first).unwrap_or(&"")).to_owned(),
            whole: compile(&text)?,
            steps: steps.collect::<Result<_, _>>()?,
            is_open: n_steps < parts.len(),
            takes_dots: parts.iter().any(|p| p.starts_with('.')),
        };
        Ok(Self { text, glob: Some(glob) })
    }
}

impl Glob {
    /// Whether the file at `path` is one of those meant.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.takes_names(path) && self.whole.is_match(path)
    }

    /// Whether such files may lie in the folder at `path`.
    pub(super) fn may_enter(&self, path: &str) -> bool {
        let depth = path.split('/').count();
        self.takes_names(path)
            && (self.is_open || depth < self.steps.len())
            && path.split('/').zip(&self.steps).all(|(name, step)| step.is_match(name))
    }

    fn takes_names(&self, path: &str) -> bool {
        self.takes_dots || !path.split('/').any(|name| name.starts_with('.'))
    }
}

/// A glob over names, not paths, as `at` in a definition gives it.
pub(super) fn name_glob(at: &str, text: &str) -> Result<GlobMatcher, SettingsError> {
    if text.is_empty() || text.contains('/') {
        return Err(SettingsError {
            at: vec![at.to_owned()],
            message: format!("`{text}` is not the name of a file"),
            hint: Some("a name or a glob without `/`, such as `LICENSE*`".to_owned()),
        });
    }
    compile(text).map_err(|e| SettingsError { at: vec![at.to_owned()], ..e })
}

const WILDCARDS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

fn has_wildcards(text: &str) -> bool {
    text.contains(WILDCARDS)
}

/// What stands before the first wildcard.
fn literal(text: &str) -> &str {
    text.split(WILDCARDS).next().unwrap_or_default()
}

fn compile(text: &str) -> Result<GlobMatcher, SettingsError> {
    let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
    glob.map(|g| g.compile_matcher()).map_err(|e| SettingsError {
        at: vec!["path".to_owned()],
        message: format!("`{text}` is not a glob: {}", e.kind()),
        hint: Some("a `\\` before `*`, `?`, `[` or `{` takes it as it is".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_paths_and_enter_only_folders_that_may_hold_matches() {
        // (pattern, path, is a match, may be entered)
        for (pattern, path, matches, enters) in [
            ("*.csv", "a.csv", true, false),
            ("*.csv", "a/b.csv", false, false),
            ("a/*.csv", "a", false, true),
            ("a/*.csv", "b", false, false),
            ("a/*/c/*.csv", "a/x/c", false, true),
            ("a/*/c/*.csv", "a/x/d", false, false),
            ("a/**/*.csv", "a/x/y", false, true),
            ("a/**/*.csv", "a/x.csv", true, true),
            ("**", "x/y/z", true, true),
            ("**", "x/.git/z", false, false),
            ("**/.*", "x/.git", true, true),
            ("{a/b,c}/*.csv", "a/b/x.csv", true, true),
            ("{a,c}/*.csv", "c", false, true),
            ("{a,c}/*.csv", "b", false, false),
            ("a\\[1\\].csv", "a[1].csv", true, false),
            ("./a//*.csv", "a/x.csv", true, false),
        ] {
            let glob = Pattern::new(pattern).unwrap().glob.unwrap();
            assert_eq!(glob.matches(path), matches, "{pattern} matches {path}");
            assert_eq!(glob.may_enter(path), enters, "{pattern} enters {path}");
        }
    }

    #[test]
    fn what_stands_before_the_first_wildcard_narrows_a_listing() {
        for (pattern, base, start) in [
            ("**", "", ""),
            ("a/b/**/*.csv", "a/b", ""),
            ("a/2020-*/x.csv", "a", "2020-"),
            ("part-0[12].csv", "", "part-0"),
            ("a{b,c}/d", "", "a"),
            ("a\\*", "", "a"),
        ] {
            let glob = Pattern::new(pattern).unwrap().glob.unwrap();
            assert_eq!((glob.base.as_str(), glob.start.as_str()), (base, start), "{pattern}");
        }
    }

    #[test]
    fn patterns_that_leave_the_root_are_refused() {
        for (pattern, part) in [
            ("../a/*", "leads out of the root"),
            ("a/../b", "leads out of the root"),
            ("/a/*", "absolute path"),
            ("s3://bucket/a", "is a URL"),
            ("", "names no file"),
            ("./", "names no file"),
            ("a[", "is not a glob"),
        ] {
            let refused = Pattern::new(pattern).unwrap_err();
            assert!(refused.message.contains(part), "{pattern}: {refused}");
            assert!(refused.hint.is_some(), "{pattern}");
        }
    }
}
