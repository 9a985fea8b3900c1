//! What a disk knows, and what it has only been told: the state behind `Memory`.
//!
//! Every file and directory is kept twice, as the running system sees it and as the medium holds
//! it, with the operations between the two. It leaves out handles, locks and the counting of
//! operations, which are `memory`'s, and the bytes of a file, which are `pages`'s.
//!
//! Invariants:
//! 1. What was synced is on the medium whatever survives of the rest.
//! 2. What was not survives or not, each operation on its own: each page of a file, each size, each
//!    change of a directory. A rename within a directory is one change.
//! 3. Bytes below a file's synced size and below every later cut never change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

use super::pages::{FileNode, Lost};

/// How many symbolic links a path may lead through.
const LINKS: usize = 40;

/// Names a file, directory or link whatever it is called.
pub(super) type Id = u64;

const ROOT: Id = 0;

type Names = BTreeMap<String, Id>;

#[derive(Debug, Clone, Default)]
pub(super) struct DirNode {
    pub(super) live: Names,
    durable: Names,
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    File(FileNode),
    Dir(DirNode),
    Link(String),
}

/// A name in a directory stands for something else from now on.
#[derive(Debug, Clone)]
struct Edit {
    dir: Id,
    name: String,
    old: Option<Id>,
    new: Option<Id>,
}

/// Edits that survive together.
#[derive(Debug, Clone)]
struct Change {
    verb: &'static str,
    edits: Vec<Edit>,
}

/// One operation that has not been made durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pending {
    /// A change of names, in words.
    Names(String),
    /// A file has this size.
    Size(String, usize),
    /// A file's page, by its number, holds what was appended.
    Page(String, usize),
}

impl Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(change) => f.write_str(change),
            Self::Size(file, len) => write!(f, "size {len} of {file}"),
            Self::Page(file, page) => write!(f, "page {page} of {file}"),
        }
    }
}

/// A pending operation by its place.
#[derive(Clone, Copy)]
enum Place {
    Change(usize),
    Size(Id, usize),
    Page(Id, usize),
}

#[derive(Debug, Clone)]
pub(super) struct Disk {
    nodes: BTreeMap<Id, Node>,
    changes: Vec<Change>,
    next: Id,
    /// A rename across directories is one change, not two.
    pub(super) whole_renames: bool,
}

impl Disk {
    pub(super) fn new(whole_renames: bool) -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::Dir(DirNode::default()))]);
        Self { nodes, changes: Vec::new(), next: ROOT + 1, whole_renames }
    }

    // Finding things.

    pub(super) fn node(&self, id: Id) -> io::Result<&Node> {
        self.nodes.get(&id).ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(super) fn dir(&self, id: Id) -> io::Result<&DirNode> {
        match self.node(id)? {
            Node::Dir(dir) => Ok(dir),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn file(&self, id: Id) -> io::Result<&FileNode> {
        match self.node(id)? {
            Node::File(file) => Ok(file),
            Node::Dir(_) => Err(ErrorKind::IsADirectory.into()),
            Node::Link(_) => Err(ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn file_mut(&mut self, id: Id) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(ErrorKind::IsADirectory.into()),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    fn dir_mut(&mut self, id: Id) -> io::Result<&mut DirNode> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(dir)) => Ok(dir),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// What `path` leads to. A link at its end is followed if asked; one on the way always is.
    pub(super) fn find(&self, path: &Path, follow: bool) -> io::Result<Id> {
        let mut way = vec![ROOT];
        let mut todo: Vec<String> = steps(path);
        let mut links = 0;
        while let Some(step) = todo.pop() {
            let here = way.last().copied().unwrap_or(ROOT);
            let dir = self.dir(here)?;
            if step == ".." {
                way.pop();
                continue;
            }
            let id = *dir.live.get(&step).ok_or(ErrorKind::NotFound)?;
            match self.node(id)? {
                Node::Link(target) if follow || !todo.is_empty() => {
                    links += 1;
                    if links > LINKS {
                        return Err(io::Error::other("too many levels of symbolic links"));
                    }
                    if target.starts_with('/') {
                        way.clear();
                    }
                    todo.extend(steps(Path::new(target)));
                }
                _ => way.push(id),
            }
        }
        Ok(way.last().copied().unwrap_or(ROOT))
    }

    /// The directory that holds, or would hold, the last name of `path`, and that name.
    pub(super) fn place(&self, path: &Path) -> io::Result<(Id, String)> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let dir = self.find(super::parent(path), true)?;
        self.dir(dir)?;
        Ok((dir, name.to_string_lossy().into_owned()))
    }

    fn held(&self, dir: Id, name: &str) -> io::Result<Id> {
        self.dir(dir)?.live.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    // Changing names.

    /// Puts something new in place under a name that is not there.
    pub(super) fn make(&mut self, verb: &'static str, path: &Path, node: Node) -> io::Result<Id> {
        let (dir, name) = self.place(path)?;
        if self.dir(dir)?.live.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        self.change(verb, vec![Edit { dir, name, old: None, new: Some(id) }])?;
        Ok(id)
    }

    pub(super) fn remove(&mut self, path: &Path, want_dir: bool) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        let id = self.held(dir, &name)?;
        match self.node(id)? {
            Node::Dir(_) if !want_dir => return Err(ErrorKind::IsADirectory.into()),
            Node::Dir(inner) if !inner.live.is_empty() => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            Node::File(_) | Node::Link(_) if want_dir => {
                return Err(ErrorKind::NotADirectory.into());
            }
            _ => {}
        }
        self.change("remove", vec![Edit { dir, name, old: Some(id), new: None }])
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from_name) = self.place(from)?;
        let (to_dir, to_name) = self.place(to)?;
        let id = self.held(from_dir, &from_name)?;
        let replaced = self.dir(to_dir)?.live.get(&to_name).copied();
        if replaced == Some(id) {
            return Ok(());
        }
        let is_dir = matches!(self.node(id)?, Node::Dir(_));
        if is_dir && self.is_below(to_dir, id) {
            return Err(ErrorKind::InvalidInput.into());
        }
        if let Some(replaced) = replaced {
            match self.node(replaced)? {
                Node::Dir(_) if !is_dir => return Err(ErrorKind::IsADirectory.into()),
                Node::Dir(inner) if !inner.live.is_empty() => {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
                Node::File(_) | Node::Link(_) if is_dir => {
                    return Err(ErrorKind::NotADirectory.into());
                }
                _ => {}
            }
        }
        let arrive = Edit { dir: to_dir, name: to_name, old: replaced, new: Some(id) };
        let leave = Edit { dir: from_dir, name: from_name, old: Some(id), new: None };
        if from_dir == to_dir || self.whole_renames {
            self.change("rename", vec![leave, arrive])
        } else {
            self.change("rename to", vec![arrive])?;
            self.change("rename from", vec![leave])
        }
    }

    fn is_below(&self, dir: Id, above: Id) -> bool {
        dir == above
            || self.dir(above).is_ok_and(|d| d.live.values().any(|&id| self.is_below(dir, id)))
    }

    fn change(&mut self, verb: &'static str, edits: Vec<Edit>) -> io::Result<()> {
        for edit in &edits {
            apply(edit, &mut self.dir_mut(edit.dir)?.live);
        }
        self.changes.push(Change { verb, edits });
        Ok(())
    }

    /// Makes the names in a directory durable, and with a change that spans two directories what
    /// it stands on in the other.
    pub(super) fn sync_dir(&mut self, id: Id) -> io::Result<()> {
        self.dir(id)?;
        let mut dirs = BTreeSet::from([id]);
        let mut kept = Vec::new();
        let mut synced = Vec::new();
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            if change.edits.iter().any(|e| dirs.contains(&e.dir)) {
                dirs.extend(change.edits.iter().map(|e| e.dir));
                synced.push(change);
            } else {
                kept.push(change);
            }
        }
        kept.reverse();
        self.changes = kept;
        for edit in synced.iter().rev().flat_map(|c| &c.edits) {
            apply(edit, &mut self.dir_mut(edit.dir)?.durable);
        }
        Ok(())
    }

    // What a power cut may leave.

    /// What can still be reached after some cut, with one of its names: the rest is of no interest.
    fn reachable(&self) -> BTreeMap<Id, String> {
        let mut names: BTreeMap<Id, Vec<(&String, Id)>> = BTreeMap::new();
        for (&id, node) in &self.nodes {
            if let Node::Dir(dir) = node {
                let held = dir.live.iter().chain(&dir.durable);
                names.entry(id).or_default().extend(held.map(|(n, &i)| (n, i)));
            }
        }
        for edit in self.changes.iter().flat_map(|c| &c.edits) {
            if let Some(new) = edit.new {
                names.entry(edit.dir).or_default().push((&edit.name, new));
            }
        }
        let mut found = BTreeMap::from([(ROOT, String::new())]);
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            let above = found.get(&id).cloned().unwrap_or_default();
            for (name, inner) in names.get(&id).into_iter().flatten() {
                if !found.contains_key(inner) {
                    found.insert(*inner, format!("{above}/{name}"));
                    open.push(*inner);
                }
            }
        }
        found
    }

    fn places(&self, reachable: &BTreeMap<Id, String>) -> Vec<Place> {
        let mut places = Vec::new();
        for (n, change) in self.changes.iter().enumerate() {
            if change.edits.iter().any(|e| reachable.contains_key(&e.dir)) {
                places.push(Place::Change(n));
            }
        }
        for &id in reachable.keys() {
            if let Some(Node::File(file)) = self.nodes.get(&id) {
                places.extend((0..file.sizes().len()).map(|n| Place::Size(id, n)));
                places.extend(file.dirty_pages().map(|page| Place::Page(id, page)));
            }
        }
        places
    }

    /// The operations that a power cut may undo, in the order in which `survives` is asked.
    pub(super) fn pending(&self) -> Vec<Pending> {
        let reachable = self.reachable();
        let name = |id: Id| reachable.get(&id).cloned().unwrap_or_default();
        let describe = |place| match place {
            Place::Change(n) => Pending::Names(self.changes.get(n).map_or(String::new(), |c| {
                let paths: Vec<_> =
                    c.edits.iter().map(|e| format!("{}/{}", name(e.dir), e.name)).collect();
                format!("{} {}", c.verb, paths.join(" → "))
            })),
            Place::Size(id, n) => {
                let size = self.file(id).ok().and_then(|f| f.sizes().get(n));
                Pending::Size(name(id), size.map_or(0, |s| s.len))
            }
            Place::Page(id, page) => Pending::Page(name(id), page),
        };
        self.places(&reachable).into_iter().map(describe).collect()
    }

    /// The disk as the next boot sees it, all of it durable.
    pub(super) fn after_power_cut(&self, lost: Lost, survives: &dyn Fn(usize) -> bool) -> Self {
        let mut names: BTreeMap<Id, Names> = BTreeMap::new();
        let mut files: BTreeMap<Id, Vec<u8>> = BTreeMap::new();
        for (&id, node) in &self.nodes {
            match node {
                Node::Dir(dir) => drop(names.insert(id, dir.durable.clone())),
                Node::File(file) => drop(files.insert(id, file.durable().to_vec())),
                Node::Link(_) => {}
            }
        }
        let places = self.places(&self.reachable());
        for (_, &place) in places.iter().enumerate().filter(|(n, _)| survives(*n)) {
            match place {
                Place::Change(n) => {
                    for edit in self.changes.get(n).into_iter().flat_map(|c| &c.edits) {
                        apply(edit, names.entry(edit.dir).or_default());
                    }
                }
                Place::Size(id, n) => {
                    let size = self.file(id).ok().and_then(|f| f.sizes().get(n));
                    if let (Some(bytes), Some(size)) = (files.get_mut(&id), size) {
                        size.reach(bytes, lost);
                    }
                }
                Place::Page(id, page) => {
                    if let (Some(bytes), Ok(file)) = (files.get_mut(&id), self.file(id)) {
                        file.put_page(bytes, page);
                    }
                }
            }
        }
        let mut next = Self::new(self.whole_renames);
        let root = self.rebuild(&mut next, ROOT, &names, &files, &mut Vec::new());
        next.nodes.insert(ROOT, root);
        next
    }

    /// Copies what `id` holds into `next`. What two names lead to becomes two things, as a check
    /// of the file system would make of it.
    fn rebuild(
        &self,
        next: &mut Self,
        id: Id,
        names: &BTreeMap<Id, Names>,
        files: &BTreeMap<Id, Vec<u8>>,
        above: &mut Vec<Id>,
    ) -> Node {
        if let Some(Node::Link(target)) = self.nodes.get(&id) {
            return Node::Link(target.clone());
        }
        if let Some(bytes) = files.get(&id) {
            return Node::File(FileNode::durable_from(bytes));
        }
        above.push(id);
        let mut live = Names::new();
        for (name, &inner) in names.get(&id).into_iter().flatten() {
            if above.contains(&inner) {
                continue;
            }
            let node = self.rebuild(next, inner, names, files, above);
            let fresh = next.next;
            next.next += 1;
            next.nodes.insert(fresh, node);
            live.insert(name.clone(), fresh);
        }
        above.pop();
        Node::Dir(DirNode { durable: live.clone(), live })
    }
}

fn apply(edit: &Edit, names: &mut Names) {
    match edit.new {
        Some(new) => drop(names.insert(edit.name.clone(), new)),
        None if names.get(&edit.name).copied() == edit.old => drop(names.remove(&edit.name)),
        None => {}
    }
}

/// The steps of a path from the last to the first. Absolute and relative paths start at one root.
fn steps(path: &Path) -> Vec<String> {
    let step = |c| match c {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        Component::ParentDir => Some("..".to_owned()),
        _ => None,
    };
    path.components().rev().filter_map(step).collect()
}
