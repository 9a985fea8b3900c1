//! A limit of bytes per second.
//!
//! Invariant: over any time since the first byte no more bytes are let through than the limit allows
//! in it, and those of the last piece.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lets bytes through at a limited rate, pieces one after another.
#[derive(Debug)]
pub(super) struct Throttle {
    bytes_per_second: Option<u64>,
    /// When the next piece may go.
    free_at: Mutex<Option<Instant>>,
}

impl Throttle {
    /// A throttle; without a rate it holds nothing back.
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, free_at: Mutex::new(None) }
    }

    /// Waits until `bytes` more may go.
    pub(super) async fn pass(&self, bytes: u64) {
        let now = Instant::now();
        let at = self.turn(now, bytes);
        if at > now {
            tokio::time::sleep_until(at).await;
        }
    }

    /// When `bytes` more may go that are ready at `now`.
    fn turn(&self, now: Instant, bytes: u64) -> Instant {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else { return now };
        let micros = u128::from(bytes) * 1_000_000 / u128::from(rate);
        let takes = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free_at.map_or(now, |at| at.max(now));
        *free_at = at.checked_add(takes);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_wait_for_those_before_them() {
        let (throttle, began) = (Throttle::new(Some(1000)), Instant::now());
        for (bytes, at) in [(500, 0), (2000, 500), (1, 2500)] {
            let turn = throttle.turn(began, bytes);
            assert_eq!((turn - began).as_millis(), at, "{bytes}");
        }
        let later = began + Duration::from_secs(9);
        assert_eq!(throttle.turn(later, 1), later, "what was not used is not owed");
        let unlimited = Throttle::new(None);
        assert_eq!((unlimited.turn(began, 9), unlimited.turn(began, 9)), (began, began));
    }
}
