//! Objects that are asked for before their turn: where many small ones are read one after another,
//! each would otherwise wait for the store.
//!
//! Leaves out: files of this machine, and what is asked for within one object (`object`).
//!
//! Invariants:
//! 1. What is asked for changes nothing but when bytes come: an input is read from what was asked for
//!    it, or as if nothing had been.
//! 2. A reader has asked for at most [`MOST_ASKED`] objects and [`AHEAD_BYTES`] that it has not taken;
//!    what it passes over, and all when it ends, is given up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::object::first_bytes;
use crate::inputs::Input;
use crate::remote::{Object, Pending, Remote};

/// Most objects that a reader asks for before their turn.
const MOST_ASKED: usize = 32;
/// Most bytes of them.
pub(super) const AHEAD_BYTES: u64 = 4 << 20;

/// The first bytes of an object, which may still be on their way.
pub(super) type FirstBytes = Pending<(Object, Bytes)>;

/// What the readers of one place have asked for and not taken.
#[derive(Debug, Default)]
pub(super) struct Asked {
    waiting: Mutex<Vec<Waiting>>,
    n_readers: AtomicU64,
}

#[derive(Debug)]
struct Waiting {
    reader: u64,
    input: Input,
    first: FirstBytes,
}

impl Asked {
    /// The first bytes of `input`, if a reader asked for them.
    pub(super) fn take(&self, input: &Input) -> Option<FirstBytes> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let place = waiting.iter().position(|it| it.input == *input)?;
        Some(waiting.remove(place).first)
    }
}

/// What one reader asks for; nothing, where it reads files.
#[derive(Debug)]
pub(super) struct Ahead {
    remote: Option<Remote>,
    asked: Arc<Asked>,
    reader: u64,
}

impl Ahead {
    /// For a new reader of the place at `remote`.
    pub(super) fn new(remote: Option<&Remote>, asked: &Arc<Asked>) -> Self {
        let reader = asked.n_readers.fetch_add(1, Ordering::Relaxed);
        Self { remote: remote.cloned(), asked: Arc::clone(asked), reader }
    }

    /// Asks for the inputs that are opened next, in that order, as many as may be.
    pub(super) fn ask<'a>(&self, upcoming: impl Iterator<Item = &'a Input>) {
        let Some(remote) = &self.remote else { return };
        let mut waiting = self.asked.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = Vec::new();
        for it in waiting.extract_if(.., |it| it.reader == self.reader) {
            own.push(it);
        }
        let mut own = own.into_iter();
        let (mut n_asked, mut n_bytes) = (0, 0);
        for input in upcoming {
            let range = first_bytes(0..input.size);
            n_asked += 1;
            n_bytes += range.end;
            if n_asked > MOST_ASKED || n_bytes > AHEAD_BYTES {
                break;
            }
            if range.is_empty() {
                continue;
            }
            // Inputs come in one order: what stands before it was passed over.
            let known = own.as_slice().iter().position(|it| it.input == *input);
            if let Some(known) = known.and_then(|place| own.nth(place)) {
                waiting.push(known);
            } else if let Ok(first) = remote.begin_read(&input.path, range, None) {
                waiting.push(Waiting { reader: self.reader, input: input.clone(), first });
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut waiting = self.asked.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|it| it.reader != self.reader);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test puts files where a store finds them")]
mod tests {
    use super::super::object::as_input;
    use super::*;
    use crate::remote::RemoteOptions;

    #[test]
    fn what_is_asked_for_is_bounded_and_given_up_when_it_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let remote = Remote::open(&url, &RemoteOptions::default()).unwrap();
        let inputs: Vec<Input> = (0..100)
            .map(|i| {
                let name = format!("{i:03}");
                std::fs::write(dir.path().join(&name), vec![b'x'; i % 3 * 10]).unwrap();
                let object = remote.head(&name).unwrap();
                as_input(name, &object)
            })
            .collect();
        let asked = Arc::new(Asked::default());
        let waiting = || -> Vec<String> {
            asked.waiting.lock().unwrap().iter().map(|it| it.input.path.clone()).collect()
        };
        let (first, second) =
            (Ahead::new(Some(&remote), &asked), Ahead::new(Some(&remote), &asked));
        first.ask(inputs.iter());
        let n = waiting().len();
        assert!(n > 16 && n <= MOST_ASKED, "{n}");
        assert!(!waiting().contains(&"000".to_owned()), "nothing is asked of what is empty");
        first.ask(inputs[20..].iter());
        assert_eq!(waiting()[0], "020");
        second.ask([&inputs[20], &inputs[20]].into_iter());
        let of_20 = || waiting().iter().filter(|path| *path == "020").count();
        assert_eq!(of_20(), 3, "as often as it is opened");
        assert_eq!(asked.take(&inputs[20]).unwrap().wait().unwrap().1.len(), 20);
        assert_eq!(of_20(), 2);
        assert!(asked.take(&Input { size: 19, ..inputs[20].clone() }).is_none());
        drop(first);
        assert_eq!(waiting(), ["020", "020"]);
        drop(second);
        assert!(waiting().is_empty());
        let huge = Input { size: 1 << 40, ..inputs[1].clone() };
        let ahead = Ahead::new(Some(&remote), &asked);
        ahead.ask(std::iter::repeat_n(&huge, 100));
        assert_eq!(waiting().len(), 8);
        Ahead::new(None, &asked).ask(inputs.iter());
        assert_eq!(waiting().len(), 8, "files are opened when they are read");
    }
}
