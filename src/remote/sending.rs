//! How long a store is waited for that is sent bytes.
//!
//! The client counts from the first byte sent to the first of the answer, so with a limit of its own a link
//! that needs longer than that for a part, because eight of them share it, would never get one through.
//!
//! Invariants:
//! 1. A request that puts bytes may take as long as the bytes do at [`LEAST_RATE`], and the store another
//!    [`Sending::patience`]; where requests were answered, some times as long as those.
//! 2. One that took too long is no measure for others: after it they may take longest.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::ClientConfigKey;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    ReqwestConnector,
};

/// What fewer bytes took is no measure for others.
const MANY: u64 = 1 << 20;

/// Bytes per second that each request gets through at least: one of eight over a link of 1 Mbit/s.
const LEAST_RATE: u64 = 16 << 10;

/// How many times as long as one before it a request may take: so many others may share the link since.
const SLOWER: u32 = 64;

/// Sends what is put.
#[derive(Debug)]
pub(super) struct Sending {
    client: HttpClient,
    patience: Duration,
    /// What sending took, of the last that was answered: bytes, and time.
    last: Mutex<Option<(u64, Duration)>>,
}

impl Sending {
    /// One that waits for `patience`, unless the options say how long.
    pub(super) fn new(options: &ClientOptions, patience: Duration) -> object_store::Result<Self> {
        let own = options.get_config_value(&ClientConfigKey::ReadTimeout);
        let own = own.and_then(|it| humantime::parse_duration(&it).ok());
        let options = options.clone().with_read_timeout_disabled();
        let client = ReqwestConnector::default().connect(&options)?;
        Ok(Self { client, patience: own.unwrap_or(patience), last: Mutex::default() })
    }

    /// Sends a request and takes its answer, which is short.
    pub(super) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (bytes, began) = (request.body().content_length() as u64, Instant::now());
        let most = self.most(bytes);
        let answer = tokio::time::timeout(most, self.client.execute(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(too_late(most)));
        if answer.is_err() || bytes >= MANY {
            self.learn(answer.is_ok().then(|| (bytes, began.elapsed())));
        }
        let (head, body) = answer?.into_parts();
        let body = tokio::time::timeout(self.patience, body.bytes()).await;
        let body = body.unwrap_or_else(|_| Err(too_late(self.patience)))?;
        Ok(HttpResponse::from_parts(head, body.into()))
    }

    fn learn(&self, last: Option<(u64, Duration)>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// How long a request of so many bytes may take.
    fn most(&self, bytes: u64) -> Duration {
        let longest = Duration::from_secs(bytes / LEAST_RATE);
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let usual = last.map_or(longest, |(sent, took)| {
            let micros = took.saturating_mul(SLOWER).as_micros() * u128::from(bytes);
            let micros = micros / u128::from(sent.max(1));
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
        });
        self.patience.saturating_add(usual.min(longest))
    }
}

fn too_late(after: Duration) -> HttpError {
    let said = format!("no answer within {} s", after.as_secs());
    HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_take_as_long_as_its_bytes_or_some_times_as_long_as_one_before_it() {
        let options = ClientOptions::new().with_read_timeout(Duration::from_mins(1));
        let sending = Sending::new(&options, Duration::ZERO).unwrap();
        let seconds = |bytes| sending.most(bytes).as_secs();
        let part = 16 << 20;
        for (last, want) in [
            (None, 60 + 1024),
            (Some((part, Duration::from_secs(1))), 60 + 64),
            (Some((part / 2, Duration::from_secs(1))), 60 + 128),
            (Some((part, Duration::from_secs(200))), 60 + 1024),
            (Some((0, Duration::MAX)), 60 + 1024),
        ] {
            sending.learn(last);
            assert_eq!(seconds(part), want, "{last:?}");
        }
    }
}
