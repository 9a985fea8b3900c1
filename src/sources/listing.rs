//! Which files a source reads.
//!
//! Leaves out: opening them (`input`).
//!
//! Invariants:
//! 1. A list is sorted by the bytes of its paths and names each path once.
//! 2. No link is followed out of the root. A link within it stands for what it leads to, under the
//!    link's own path; one that leads to a folder around it is refused.
//! 3. What cannot be listed is an error, never left out: a name that is not UTF-8, a link that
//!    leads nowhere, a folder that cannot be read, where an input could be meant by it.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use globset::GlobMatcher;
use walkdir::WalkDir;

use super::input::{Folder, as_input, io};
use super::input_pages::InputPages;
use super::object_listing;
use super::pattern::{Glob, Pattern};
use super::{SettingsError, SourceError, SourceSpec};
use crate::inputs::Input;
use crate::remote::Pace;

/// The paths of a source and the folder that they are relative to.
#[derive(Debug, Clone)]
pub struct Listing {
    source: String,
    folder: Folder,
    patterns: Vec<Pattern>,
}

impl Listing {
    /// What `spec` names by `root` and `path`.
    ///
    /// # Errors
    /// A path that is absolute or holds `..`, or a glob that is none.
    pub fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        if spec.paths.is_empty() {
            return Err(SettingsError {
                at: vec!["path".to_owned()],
                message: "a source needs at least one path".to_owned(),
                hint: Some("`path = \"**\"` takes every file in the root".to_owned()),
            });
        }
        let patterns = spec.paths.iter().map(|p| Pattern::new(p)).collect::<Result<_, _>>()?;
        let folder = Folder::at(&spec.root).map_err(|e| SettingsError {
            at: vec!["root".to_owned()],
            message: e.to_string(),
            hint: e.hint().map(ToOwned::to_owned),
        })?;
        Ok(Self { source: spec.name.clone(), folder, patterns })
    }

    /// Where the inputs are.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Lists the inputs, sorted by path (as bytes), each once.
    ///
    /// # Errors
    /// A root that is not there, and everything of invariant 3.
    pub fn list(&self) -> Result<Vec<Input>, SourceError> {
        let mut found = match self.folder.remote() {
            Some(remote) => object_listing::list(remote, &self.source, &self.patterns)?,
            None => self.list_files()?,
        };
        object_listing::sort(&mut found);
        found.dedup_by(|a, b| a.path == b.path);
        found.shrink_to_fit();
        Ok(found)
    }

    /// The same as they are found, behind those that were `told`; `None` where they are not listed in order,
    /// page by page: files here, and places that only name some. Each takes as much room as `weigh` says.
    ///
    /// # Errors
    /// It cannot be begun; most else is told later.
    pub(crate) fn pages(
        &self,
        told: &[Input],
        pace: &Pace,
        weigh: fn(&Input) -> u64,
    ) -> Result<Option<InputPages>, SourceError> {
        let Some(remote) = self.folder.remote() else { return Ok(None) };
        object_listing::pages((remote, &self.source), &self.patterns, told, pace, weigh)
    }

    fn list_files(&self) -> Result<Vec<Input>, SourceError> {
        let root = self.root()?;
        let mut found = Vec::new();
        for pattern in &self.patterns {
            match &pattern.glob {
                None => found.push(self.single(&root, &pattern.text)?),
                Some(glob) => self.walk(&root, glob, &mut found)?,
            }
        }
        Ok(found)
    }

    /// For each input the file that a name glob finds for it: the first by name in the nearest folder
    /// around the input, up to the root, that has one. Sorted by path, each once.
    ///
    /// # Errors
    /// A folder that cannot be read; a name that is not UTF-8; a link out of the root.
    pub(super) fn nearest(
        &self,
        inputs: &[Input],
        names: &GlobMatcher,
    ) -> Result<Vec<Input>, SourceError> {
        let root = match self.folder.remote() {
            Some(_) => PathBuf::new(),
            None => self.root()?,
        };
        let mut by_folder: HashMap<&str, bool> = HashMap::new();
        let mut found = Vec::new();
        for input in inputs {
            for folder in folders_around(&input.path) {
                if !by_folder.contains_key(folder) {
                    let first = self.first_in(&root, folder, names)?;
                    by_folder.insert(folder, first.is_some());
                    found.extend(first);
                }
                if by_folder.get(folder) == Some(&true) {
                    break;
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn root(&self) -> Result<PathBuf, SourceError> {
        let shown = self.folder.root().display().to_string();
        let advice =
            || Some(format!("`root` of source `{}` is the folder with its inputs", self.source));
        let refuse = |message: &str| SourceError::Listing {
            path: shown.clone(),
            message: message.to_owned(),
            hint: advice(),
        };
        let root = self.folder.resolve("").map_err(|e| match e.kind() {
            ErrorKind::NotFound => refuse("is not there"),
            ErrorKind::NotADirectory => refuse("is not a folder"),
            _ => io(&shown, e),
        })?;
        if root.is_dir() { Ok(root) } else { Err(refuse("is not a folder")) }
    }

    fn single(&self, root: &Path, path: &str) -> Result<Input, SourceError> {
        self.check_inside(root, path)?;
        self.folder.stat(path)
    }

    /// Refuses a path that is not there, or that links lead out of the root.
    fn check_inside(&self, root: &Path, path: &str) -> Result<(), SourceError> {
        let refuse = |message: String, hint: &str| SourceError::Listing {
            path: path.to_owned(),
            message,
            hint: Some(hint.to_owned()),
        };
        let target = self.folder.resolve(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => refuse(
                format!("is not in `{}`, or is a link that leads nowhere", root.display()),
                &format!("correct `path` or `root` of source `{}`", self.source),
            ),
            _ => io(path, e),
        })?;
        if target.starts_with(root) {
            return Ok(());
        }
        Err(refuse(
            "is a link that leads out of the root".to_owned(),
            "let `root` be a folder that holds both, or copy what it leads to",
        ))
    }

    fn walk(&self, root: &Path, glob: &Glob, out: &mut Vec<Input>) -> Result<(), SourceError> {
        if !glob.base.is_empty() {
            self.check_inside(root, &glob.base)?;
        }
        let start = self.folder.root().join(&glob.base);
        let mut walk = WalkDir::new(start).follow_links(true).into_iter();
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    self.judge(e, glob)?;
                    continue;
                }
            };
            let shown = self.relative(entry.path());
            let is_dir = entry.file_type().is_dir();
            let is_meant = if is_dir {
                entry.depth() == 0 || glob.may_enter(&shown)
            } else {
                glob.matches(&shown)
            };
            if !is_meant {
                if is_dir {
                    walk.skip_current_dir();
                }
                continue;
            }
            check_name(entry.path(), &shown)?;
            if entry.path_is_symlink() && entry.depth() > 0 {
                self.check_inside(root, &shown)?;
            }
            if !is_dir {
                let found = entry.metadata().map_err(|e| walk_error(&shown, e))?;
                out.push(as_input(&shown, &found)?);
            }
        }
        Ok(())
    }

    /// Whether a place that the walk could not look at matters to `glob`.
    fn judge(&self, e: walkdir::Error, glob: &Glob) -> Result<(), SourceError> {
        let shown = e.path().map_or_else(String::new, |p| self.relative(p));
        if e.depth() > 0 && !glob.matches(&shown) && !glob.may_enter(&shown) {
            return Ok(());
        }
        if e.loop_ancestor().is_some() {
            return Err(SourceError::Listing {
                path: shown,
                message: "is a link that leads to a folder around it".to_owned(),
                hint: Some("remove the link, or name folders in `path`".to_owned()),
            });
        }
        Err(walk_error(&shown, e))
    }

    fn relative(&self, path: &Path) -> String {
        let inside = path.strip_prefix(self.folder.root()).unwrap_or(path);
        inside.to_string_lossy().into_owned()
    }

    fn first_in(
        &self,
        root: &Path,
        folder: &str,
        names: &GlobMatcher,
    ) -> Result<Option<Input>, SourceError> {
        if let Some(remote) = self.folder.remote() {
            return object_listing::first_in(remote, folder, names);
        }
        let start = self.folder.root().join(folder);
        let mut paths = Vec::new();
        for entry in WalkDir::new(start).min_depth(1).max_depth(1) {
            let entry = entry.map_err(|e| walk_error(folder, e))?;
            if names.is_match(Path::new(&*entry.file_name().to_string_lossy())) {
                let shown = self.relative(entry.path());
                check_name(entry.path(), &shown)?;
                paths.push(shown);
            }
        }
        paths.sort();
        for path in paths {
            self.check_inside(root, &path)?;
            match self.folder.stat(&path) {
                Ok(input) => return Ok(Some(input)),
                // A folder of that name is not the file that is meant.
                Err(SourceError::Listing { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }
}

/// The folder that a path lies in; the root is empty.
pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The folders that a path lies in, from the nearest to the root.
pub(super) fn folders_around(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(folder_of(path)), |folder| {
        (!folder.is_empty()).then(|| folder_of(folder))
    })
}

fn check_name(path: &Path, shown: &str) -> Result<(), SourceError> {
    if path.file_name().is_none_or(|name| name.to_str().is_some()) {
        return Ok(());
    }
    Err(SourceError::Listing {
        path: shown.to_owned(),
        message: "has a name that is not UTF-8".to_owned(),
        hint: Some("rename it; names are shown with \u{fffd} for bytes that are wrong".to_owned()),
    })
}

fn walk_error(shown: &str, e: walkdir::Error) -> SourceError {
    let path = if shown.is_empty() { "." } else { shown };
    let not_there = e.io_error().is_some_and(|e| e.kind() == ErrorKind::NotFound);
    if not_there {
        return SourceError::Listing {
            path: path.to_owned(),
            message: "is a link that leads nowhere, or has just been removed".to_owned(),
            hint: Some("remove the link, or restore what it leads to".to_owned()),
        };
    }
    let source = e.into_io_error().unwrap_or_else(|| std::io::Error::other("the walk ended"));
    io(path, source)
}
