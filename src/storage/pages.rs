//! A file of the model: the bytes that are there, those on the medium, and what lies between.
//!
//! Invariants:
//! 1. Pages of 4 KiB and sizes reach the medium in any order: a file may be long and empty.
//! 2. A growth within a page is one operation however many appends it came in; one across pages
//!    is one for each, because the system moves the size page by page.
//! 3. Bytes below the synced size and below every later cut never change.

use std::collections::BTreeSet;

/// What the medium keeps or loses as one.
const PAGE: usize = 4096;

/// What a page holds that never reached the medium, in a file whose size says it has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lost {
    /// Zeros, as file systems leave that clear a block before they hand it out.
    #[default]
    Zeros,
    /// What an earlier file left in the block: bytes that are not zero.
    Stale,
}

/// A size that a file has had and that may not be on the medium.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) len: usize,
    is_cut: bool,
}

impl Size {
    /// Gives `bytes` this size.
    pub(super) fn reach(self, bytes: &mut Vec<u8>, lost: Lost) {
        let old = bytes.len();
        bytes.resize(self.len, 0);
        if lost == Lost::Stale {
            for (at, byte) in bytes.iter_mut().enumerate().skip(old) {
                *byte = stale(at);
            }
        }
    }
}

/// A byte that is never zero and differs from its neighbours.
fn stale(at: usize) -> u8 {
    0x80 | u8::try_from(at % 127).unwrap_or_default()
}

#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Sizes since the last sync, in order.
    sizes: Vec<Size>,
    /// Pages written since then.
    dirty: BTreeSet<usize>,
}

impl FileNode {
    /// A file all of which is on the medium.
    pub(super) fn durable_from(bytes: &[u8]) -> Self {
        Self { live: bytes.to_vec(), durable: bytes.to_vec(), ..Self::default() }
    }

    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn sizes(&self) -> &[Size] {
        &self.sizes
    }

    pub(super) fn dirty_pages(&self) -> impl Iterator<Item = usize> {
        self.dirty.iter().copied()
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let old = self.live.len();
            let (now, later) = rest.split_at(rest.len().min(PAGE - old % PAGE));
            self.live.extend_from_slice(now);
            self.dirty.insert(old / PAGE);
            let len = self.live.len();
            match self.sizes.last_mut() {
                Some(last) if !last.is_cut && !old.is_multiple_of(PAGE) => last.len = len,
                _ => self.sizes.push(Size { len, is_cut: false }),
            }
            rest = later;
        }
    }

    /// Cuts the file to `len` bytes, which it has.
    pub(super) fn cut(&mut self, len: usize) {
        if len < self.live.len() {
            self.live.truncate(len);
            self.dirty.retain(|page| page * PAGE < len);
            self.sizes.push(Size { len, is_cut: true });
        }
    }

    /// Makes the first `len` bytes durable, those that a handle answers for.
    pub(super) fn sync(&mut self, len: usize) {
        // What is below every pending size is on the medium already.
        let floor = self.sizes.iter().map(|s| s.len).min().unwrap_or(usize::MAX);
        let floor = floor.min(self.durable.len());
        let len = len.min(self.live.len()).max(floor);
        self.durable.truncate(floor);
        self.durable.extend(self.live.iter().skip(floor).take(len - floor));
        let whole = self.live.len();
        self.sizes.retain(|s| s.len > len);
        self.dirty.retain(|page| whole.min((page + 1) * PAGE) > len);
    }

    /// Puts a page of this file, as it is now, into what the medium holds of it.
    pub(super) fn put_page(&self, medium: &mut [u8], page: usize) {
        let start = page * PAGE;
        let end = medium.len().min(start + PAGE);
        for (at, byte) in medium.iter_mut().enumerate().take(end).skip(start) {
            *byte = self.live.get(at).copied().unwrap_or(0);
        }
    }

    /// Replaces the file's bytes as far as they are seen, and nothing on the medium.
    pub(super) fn show(&mut self, bytes: &[u8]) {
        self.live = bytes.to_vec();
    }

    /// Changes the file behind the system's back, on the medium too.
    pub(super) fn damage(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        self.sync(usize::MAX);
        change(&mut self.live);
        self.durable.clone_from(&self.live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(file: &FileNode, sizes: &[usize], pages: &[usize], lost: Lost) -> Vec<u8> {
        let mut medium = file.durable().to_vec();
        for &n in sizes {
            file.sizes()[n].reach(&mut medium, lost);
        }
        for &page in pages {
            file.put_page(&mut medium, page);
        }
        medium
    }

    #[test]
    fn appends_within_a_page_are_one_size_and_one_page() {
        let mut file = FileNode::default();
        for _ in 0..10 {
            file.append(b"0123456789");
        }
        assert_eq!(file.sizes().len(), 1);
        assert_eq!(file.dirty_pages().count(), 1);
        file.append(&[1; 3 * PAGE]);
        let sizes: Vec<_> = file.sizes().iter().map(|s| s.len).collect();
        assert_eq!(sizes, [PAGE, 2 * PAGE, 3 * PAGE, 3 * PAGE + 100]);
        assert_eq!(file.dirty_pages().count(), 4);
    }

    #[test]
    fn a_page_that_was_lost_holds_zeros_or_stale_bytes_and_synced_bytes_stay() {
        let mut file = FileNode::default();
        file.append(&[7; 10]);
        file.sync(usize::MAX);
        file.append(&[8; 10]);
        assert_eq!(after(&file, &[], &[], Lost::Zeros), [7; 10]);
        assert_eq!(after(&file, &[], &[0], Lost::Zeros), [7; 10], "the page without the size");
        let zeros = after(&file, &[0], &[], Lost::Zeros);
        assert_eq!((&zeros[..10], &zeros[10..]), (&[7; 10][..], &[0; 10][..]));
        let stale = after(&file, &[0], &[], Lost::Stale);
        assert_eq!(&stale[..10], [7; 10]);
        assert!(stale[10..].iter().all(|&b| b != 0));
        assert_eq!(after(&file, &[0], &[0], Lost::Stale), file.live());
    }

    #[test]
    fn a_cut_that_is_lost_brings_the_old_bytes_back() {
        let mut file = FileNode::durable_from(b"AAAABBBB");
        file.cut(4);
        file.append(b"CC");
        for (name, sizes, pages, want) in [
            ("nothing", &[][..], &[][..], "AAAABBBB"),
            ("cut", &[0], &[], "AAAA"),
            ("growth without page", &[0, 1], &[], "AAAA\0\0"),
            ("growth without cut", &[1], &[], "AAAABB"),
            ("page only", &[], &[0], "AAAACC\0\0"),
            ("all", &[0, 1], &[0], "AAAACC"),
        ] {
            assert_eq!(after(&file, sizes, pages, Lost::Zeros), want.as_bytes(), "{name}");
        }
        file.sync(usize::MAX);
        assert_eq!(file.durable(), b"AAAACC");
    }

    #[test]
    fn a_sync_of_an_earlier_length_leaves_the_rest_pending() {
        let mut file = FileNode::default();
        file.append(&[1; 100]);
        file.append(&[2; 2 * PAGE]);
        file.sync(100);
        assert_eq!(file.durable(), [1; 100]);
        assert_eq!((file.sizes().len(), file.dirty_pages().count()), (3, 3));
        file.sync(PAGE);
        assert_eq!(file.durable().len(), PAGE);
        assert_eq!((file.sizes().len(), file.dirty_pages().count()), (2, 2));
        file.sync(usize::MAX);
        assert_eq!(file.durable(), file.live());
        assert_eq!((file.sizes().len(), file.dirty_pages().count()), (0, 0));
    }

    #[test]
    fn a_late_sync_of_an_earlier_length_undoes_nothing() {
        let mut file = FileNode::default();
        file.append(&[1; 100]);
        file.sync(usize::MAX);
        file.append(&[2; 50]);
        file.sync(60);
        assert_eq!(file.durable(), [1; 100]);
        file.sync(usize::MAX);
        assert_eq!(file.durable().len(), 150);
    }
}
