//! Memory of answers that nobody holds any more, for the next ones.
//!
//! Memory that a process touches for the first time is slower than a pipe.
//!
//! Invariants:
//! 1. Never more than a quarter of the bytes that an answer may have is kept, nor more than
//!    [`MOST_BYTES`]: answers that nearly use up what is set aside for them leave nothing here.
//! 2. An answer has at most an eighth more memory than it needs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

/// Most bytes that are kept for a hook.
const MOST_BYTES: usize = 8 << 20;
/// A smaller piece is not worth keeping.
const LEAST_BYTES: usize = 64 << 10;

/// What is kept for a hook.
#[derive(Debug, Clone)]
pub(super) struct Spares {
    kept: Arc<Kept>,
}

#[derive(Debug)]
struct Kept {
    most_bytes: usize,
    /// Whatever is in them; the youngest last.
    pieces: Mutex<Vec<Vec<u8>>>,
}

impl Kept {
    fn pieces(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, piece: Vec<u8>) {
        if !(LEAST_BYTES..=self.most_bytes).contains(&piece.len()) {
            return;
        }
        let mut pieces = self.pieces();
        let mut bytes: usize = piece.len() + pieces.iter().map(Vec::len).sum::<usize>();
        // What nobody has asked for since is the least likely to fit.
        let n_old = pieces.iter().take_while(|old| {
            let is_over = bytes > self.most_bytes;
            bytes -= if is_over { old.len() } else { 0 };
            is_over
        });
        let n_old = n_old.count();
        pieces.drain(..n_old);
        pieces.push(piece);
    }
}

impl Spares {
    /// Answers have at most `answer_bytes`.
    pub(super) fn new(answer_bytes: u64) -> Self {
        let quarter = usize::try_from(answer_bytes / 4).unwrap_or(usize::MAX);
        let kept = Kept { most_bytes: quarter.min(MOST_BYTES), pieces: Mutex::default() };
        Self { kept: Arc::new(kept) }
    }

    /// Memory for an answer, with whatever is in it.
    pub(super) fn take(&self, n_bytes: usize) -> Lent {
        let fits = |piece: &Vec<u8>| (n_bytes..=n_bytes + n_bytes / 8).contains(&piece.len());
        let mut pieces = self.kept.pieces();
        let found = pieces.iter().rposition(fits).map(|at| pieces.remove(at));
        drop(pieces);
        let piece = found.unwrap_or_else(|| vec![0; n_bytes]);
        Lent { piece, n_bytes, to: Arc::downgrade(&self.kept) }
    }
}

/// Memory that is kept again when nobody holds it any more.
#[derive(Debug)]
pub(super) struct Lent {
    piece: Vec<u8>,
    n_bytes: usize,
    to: Weak<Kept>,
}

impl Lent {
    /// What is to be filled.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.piece.get_mut(..self.n_bytes).unwrap_or_default()
    }

    /// What was filled.
    pub(super) fn filled(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.piece.get(..self.n_bytes).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(kept) = self.to.upgrade() {
            kept.keep(std::mem::take(&mut self.piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of what is kept.
    fn kept(spares: &Spares) -> Vec<usize> {
        spares.kept.pieces().iter().map(Vec::len).collect()
    }

    #[test]
    fn what_nobody_holds_any_more_is_lent_again_where_it_fits() {
        const K: usize = 1 << 10;
        let spares = Spares::new(4 << 20);
        for (name, lent, bytes, want) in [
            ("as large", 100 * K, 100 * K, true),
            ("a little larger", 100 * K, 90 * K, true),
            ("much larger", 100 * K, 80 * K, false),
            ("smaller", 100 * K, 101 * K, false),
            ("too small to be kept", 10 * K, 10 * K, false),
            ("too large to be kept", 1025 * K, 1025 * K, false),
        ] {
            spares.kept.pieces().clear();
            let mut first = spares.take(lent);
            first.room().fill(7);
            let first = first.filled();
            assert_eq!((first.len(), kept(&spares)), (lent, vec![]), "{name}");
            let part = first.slice(5..9);
            drop(first);
            assert_eq!(kept(&spares), [0; 0], "{name}: a part is still held");
            drop(part);
            let mut again = spares.take(bytes);
            assert_eq!(again.room().len(), bytes, "{name}");
            assert_eq!(again.room().starts_with(&[7]), want, "{name}");
        }
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_the_oldest_goes_first() {
        let spares = Spares::new(4 << 20);
        let sizes = [300 << 10, 400 << 10, 200 << 10, 500 << 10];
        let lent: Vec<_> = sizes.iter().map(|n| spares.take(*n)).collect();
        drop(lent);
        assert_eq!(kept(&spares), [200 << 10, 500 << 10]);
        assert_eq!(Spares::new(u64::MAX).kept.most_bytes, MOST_BYTES);
        let late = spares.take(1 << 20);
        drop(spares);
        // Nobody is there to keep it.
        drop(late);
    }
}
