//! Says that a store does not answer, while its clients ask it again.
//!
//! Leaves out: asking again, which the clients do, and what is said when they give up (`error`).
//!
//! Invariants:
//! 1. What is said is said once, until the store has answered again, however many requests wait.
//! 2. Nothing is said before [`PATIENCE`] is over, and nothing of a request whose own bytes may still be
//!    on their way.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use tracing::warn;

use super::sending::Sending;
use super::spelling::as_signed;

/// How long nothing is said.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request that follows so closely on one that failed may be the same again.
const SAME: Duration = Duration::from_secs(10);

/// Requests that fail sooner are refused where they are made: only the pauses between them take time.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Hosts that answer on the machines of a provider alone: who asks them looks for credentials.
const OF_MACHINES: [&str; 4] =
    ["169.254.169.254", "169.254.170.2", "169.254.170.23", "metadata.google.internal"];

/// What is known of each endpoint that this process has asked.
static ENDPOINTS: LazyLock<Mutex<BTreeMap<String, Arc<Endpoint>>>> = LazyLock::new(Mutex::default);

/// Makes clients that say what they wait for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patient {
    /// All pauses between the tries of one request, at most.
    pub(super) pauses: Duration,
    /// How long one request is tried.
    pub(super) most: Duration,
    /// How long an answer may take once the store has all of a request.
    pub(super) read_timeout: Duration,
}

impl HttpConnector for Patient {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let sending = Sending::new(options, self.read_timeout)?;
        Ok(HttpClient::new(Watched { client, sending, patient: *self }))
    }
}

#[derive(Debug)]
struct Watched {
    client: HttpClient,
    /// Takes what is put.
    sending: Sending,
    patient: Patient,
}

impl HttpService for Watched {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.watch(as_signed(request)))
    }
}

impl Watched {
    /// Sends a request, and says when its answer is long in coming while nobody else gets one.
    async fn watch(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let host = request.uri().host().unwrap_or_default();
        if OF_MACHINES.contains(&host) {
            return self.client.execute(request).await;
        }
        let port = request.uri().port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let name = format!("{}://{host}{port}", request.uri().scheme_str().unwrap_or_default());
        let endpoint = Endpoint::of(&name);
        let began = Instant::now();
        let since = endpoint.state().begin(began);
        // Until the answer comes, nobody knows how many of them have been sent.
        let n_bytes = request.body().content_length() as u64;
        let mut answer = pin!(async {
            let puts = request.method().as_str() == "PUT" && n_bytes > 0;
            if puts { self.sending.send(request).await } else { self.client.execute(request).await }
        });
        // Whoever asks again is about to hear that it is refused, unless it takes longer than that.
        let long = (since + PATIENCE).saturating_duration_since(began).max(AT_ONCE);
        let long = tokio::time::sleep(long);
        let answered = tokio::select! {
            biased;
            answered = &mut answer => answered,
            () = long, if n_bytes == 0 => {
                if endpoint.state().waits(since, Instant::now()) {
                    self.patient.say(&name, Silence::NoAnswer, false);
                }
                answer.await
            }
        };
        let silence = match &answered {
            Ok(answer) if is_for_now(answer.status().as_u16()) => Silence::Refuses,
            Ok(_) => {
                endpoint.state().answered(Instant::now());
                return answered;
            }
            Err(_) => Silence::NoAnswer,
        };
        if endpoint.state().failed(since, Instant::now()) {
            self.patient.say(&name, silence, began.elapsed() < AT_ONCE);
        }
        answered
    }
}

impl Patient {
    fn say(&self, endpoint: &str, silence: Silence, is_at_once: bool) {
        let most = if is_at_once { self.pauses.min(self.most) } else { self.most };
        let tried = format!("each request for up to {} s", most.as_secs());
        match silence {
            Silence::NoAnswer => warn!(endpoint, tried, "the store does not answer"),
            Silence::Refuses => warn!(endpoint, tried, "the store refuses for the moment"),
        }
    }
}

/// Whether a client asks again after an answer with this status.
fn is_for_now(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..)
}

/// Why a command does not get on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    NoAnswer,
    Refuses,
}

/// What answers, or does not.
#[derive(Debug, Default)]
struct Endpoint {
    state: Mutex<State>,
}

impl Endpoint {
    fn of(name: &str) -> Arc<Self> {
        let mut endpoints = ENDPOINTS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(endpoints.entry(name.to_owned()).or_default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Since when requests have failed one after another.
    since: Option<Instant>,
    /// When one failed last.
    failed: Option<Instant>,
    /// When one was answered last.
    answered: Option<Instant>,
    is_said: bool,
}

impl State {
    /// Since when somebody waits whose request begins now: it may be one that failed, again.
    fn begin(&self, now: Instant) -> Instant {
        match (self.since, self.failed) {
            (Some(since), Some(failed)) if now.duration_since(failed) < SAME => since,
            _ => now,
        }
    }

    fn answered(&mut self, now: Instant) {
        *self = Self { answered: Some(now), ..Self::default() };
    }

    /// Notes that a request has failed; whether that is to be said.
    fn failed(&mut self, since: Instant, now: Instant) -> bool {
        (self.since, self.failed) = (Some(since), Some(now));
        self.waits(since, now)
    }

    /// Whether it is to be said that somebody waits since `since`.
    fn waits(&mut self, since: Instant, now: Instant) -> bool {
        let since = self.answered.map_or(since, |answered| answered.max(since));
        now.duration_since(since) >= PATIENCE && !std::mem::replace(&mut self.is_said, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of requests that each begin and fail at these seconds, and are answered where there is
    /// no second: the beginnings of those that are told of.
    fn said(requests: &[(u64, Option<u64>)]) -> Vec<u64> {
        let (mut state, start) = (State::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut said = Vec::new();
        for (began, failed) in requests {
            let since = state.begin(at(*began));
            match failed {
                Some(failed) if state.failed(since, at(*failed)) => said.push(*began),
                Some(_) => {}
                None => state.answered(at(*began)),
            }
        }
        said
    }

    #[test]
    fn a_store_that_does_not_answer_is_named_once_until_it_has_answered() {
        for (name, requests, want) in [
            (
                "refused at once",
                &[(0, Some(0)), (2, Some(2)), (5, Some(5)), (8, Some(8))][..],
                &[5][..],
            ),
            ("one that hangs", &[(0, Some(60)), (62, Some(120))], &[0]),
            ("answered in time", &[(0, Some(0)), (3, Some(3)), (4, None), (6, Some(6))], &[]),
            ("twice", &[(0, Some(6)), (7, None), (8, Some(9)), (12, Some(14))], &[0, 12]),
            ("far apart", &[(0, Some(1)), (60, Some(61)), (120, Some(121))], &[]),
        ] {
            assert_eq!(said(requests), want, "{name}");
        }
    }

    #[test]
    fn who_waits_beside_others_that_are_answered_says_nothing() {
        let (mut state, start) = (State::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let since = state.begin(at(0));
        assert!(!state.waits(since, at(4)));
        state.answered(at(5));
        assert!(!state.waits(since, at(9)), "somebody was answered at 5");
        assert!(state.waits(since, at(10)));
        assert!(!state.waits(since, at(11)), "it was said");
    }
}
