//! Memory that parts of files are read into, used again.
//!
//! The system clears memory before it hands it out, page by page, which takes as long as reading the
//! file; a push would have that done for each part.
//!
//! Invariant: what is kept was in use at the same time once, so it is no more than the pieces that
//! were on their way at once.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Smaller pieces are not worth keeping.
const MIN_BYTES: usize = 1 << 20;

/// Memory of pieces that have gone out.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// `len` bytes that `read` fills; it is handed bytes of any value, and has to write all of them.
    ///
    /// # Errors
    /// That of `read`.
    pub(super) fn fill<E>(
        self: &Arc<Self>,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        if len < MIN_BYTES {
            let mut bytes = vec![0; len];
            read(&mut bytes)?;
            return Ok(bytes.into());
        }
        let mut bytes = self.lock().pop().unwrap_or_default();
        if bytes.len() < len {
            // What it holds is not to be copied into the larger memory.
            bytes = vec![0; len];
        }
        let mut piece = Piece { bytes, len, to: Arc::clone(self) };
        read(piece.bytes.get_mut(..len).unwrap_or_default())?;
        Ok(Bytes::from_owner(piece))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes whose memory goes back when nobody holds them any more.
struct Piece {
    bytes: Vec<u8>,
    len: usize,
    to: Arc<Buffers>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.to.lock().push(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_holds_what_was_read() {
        let buffers = Arc::new(Buffers::default());
        let of = |byte: u8, len: usize| {
            let filled: Result<Bytes, ()> = buffers.fill(len, |bytes| {
                bytes.fill(byte);
                Ok(())
            });
            filled.unwrap()
        };
        let first = of(1, MIN_BYTES);
        let second = of(2, MIN_BYTES + 1);
        assert!(first.iter().all(|byte| *byte == 1) && first.len() == MIN_BYTES);
        let (place, kept) = (second.as_ptr(), second.slice(7..9));
        drop(second);
        assert!(of(3, MIN_BYTES).as_ptr() != place, "a slice holds it");
        assert_eq!(kept, [2, 2][..]);
        let n_free = buffers.lock().len();
        drop((first, kept));
        assert_eq!(buffers.lock().len(), n_free + 2);
        assert_eq!(of(4, MIN_BYTES + 1).as_ptr(), place);
        let third = of(5, MIN_BYTES);
        assert_eq!((third.as_ptr(), third.len()), (place, MIN_BYTES), "the larger one serves");
        assert_eq!(of(6, 3), [6, 6, 6][..]);
        let failed = buffers.fill(MIN_BYTES, |_| Err("disk"));
        assert_eq!((failed, buffers.lock().len()), (Err("disk"), n_free + 1), "nothing is lost");
    }
}
