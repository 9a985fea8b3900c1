//! Calls code that may panic on bytes of others.
//!
//! Invariants:
//! 1. Of a panic that is caught here nothing is printed: what is said of it is an error of ours.
//! 2. Every other panic is told as it was before, also on other threads at the same time.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is within [`contained`].
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Tells of a panic.
type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// What `act` gives, or the text that it panicked with. Nothing that it changed is used after a panic.
pub(crate) fn contained<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| set_hook(unless_contained(take_hook())));
    let before = IS_CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(act));
    IS_CONTAINED.set(before);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("an assertion").to_owned()
    })
}

fn unless_contained(hook: Hook) -> Hook {
    Box::new(move |info| {
        if !IS_CONTAINED.get() {
            hook(info);
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_panics_that_are_contained_are_not_told() {
        assert_eq!(contained(|| 7), Ok(7));
        let (told, me) = (Arc::new(AtomicUsize::new(0)), std::thread::current().id());
        let (count, others) = (Arc::clone(&told), take_hook());
        set_hook(unless_contained(Box::new(move |info| {
            if std::thread::current().id() == me {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                others(info);
            }
        })));
        let n: usize = 3;
        for (name, text, want) in [("a text", "broken", "broken"), ("a format", "", "3 is odd")] {
            let act = || match text {
                "" => panic!("{n} is odd"),
                text => std::panic::panic_any(text),
            };
            assert_eq!(contained(act), Err::<(), _>(want.to_owned()), "{name}");
        }
        assert_eq!(told.load(Ordering::Relaxed), 0);
        assert!(catch_unwind(|| panic!("told")).is_err());
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}
