//! The decision that follows from a call of a listener. A pure function, so that every case can be read here:
//!
//! ```text
//!   result of the call          row                        attempts
//!   ──────────────────────────  ─────────────────────────  ─────────────────────
//!   Done                        DONE                       unchanged
//!   RetryAfter(d)               RETRY in d                 unchanged
//!   error, panic, time-out      RETRY or DEAD by policy    + 1, DEAD at the limit
//!   error with retry-after d    RETRY in d                 + 1, DEAD at the limit
//!   permanent error             DEAD                       + 1
//!   unreachable                 RETRY when the pause ends  unchanged
//!   cancelled                   due now                    unchanged
//!   no listener                 DEAD                       unchanged
//!   settled by its transaction  unchanged                  unchanged
//!   in a transaction:
//!     database unavailable      RETRY by the policy        unchanged
//!     claimed by another node   due now                    unchanged
//!     outcome unknown           left to its lease          unchanged
//! ```

use std::time::Duration;

use crate::event::{EventEnvelope, Verdict};
use crate::listener::{ListenerError, ListenerErrorKind, Outcome};
use crate::retry::{FailedAttempt, Failure, Retry, RetryPolicy};

/// How a call of a listener ended.
#[derive(Debug)]
pub(crate) enum CallResult {
    /// The listener returned, or an interceptor refused the call.
    Answered(Result<Outcome, ListenerError>),
    Panicked {
        error: String,
    },
    /// It took longer than its time-out.
    TimedOut(Duration),
    /// The node shuts down.
    Cancelled,
    /// No listener handles the event.
    Unroutable {
        error: String,
    },
    /// Its transaction was committed, and has settled its event.
    Settled,
    /// Another node has claimed the event; the transaction was rolled back.
    Overtaken,
    /// The database could not be reached, so that the listener could not do its work.
    Unavailable(ListenerError),
    /// The database did not answer whether it has committed the transaction.
    Unknown,
}

impl CallResult {
    /// Calls a function with the error, if there is one.
    pub(super) fn with_error<T>(&self, inspect: impl FnOnce(Option<&ListenerError>) -> T) -> T {
        match self {
            Self::Answered(answer) => inspect(answer.as_ref().err()),
            Self::TimedOut(after) => inspect(Some(&timed_out(*after).into())),
            Self::Cancelled => inspect(Some(&"the call was cancelled".into())),
            Self::Panicked { error } | Self::Unroutable { error } => {
                inspect(Some(&error.as_str().into()))
            }
            Self::Settled => inspect(None),
            Self::Overtaken => inspect(Some(&"the lease had expired".into())),
            Self::Unavailable(error) => inspect(Some(error)),
            Self::Unknown => {
                inspect(Some(&"it is unknown whether the transaction was committed".into()))
            }
        }
    }

    /// Returns the error and its causes, if the listener could not reach what it depends on.
    pub(crate) fn unreachable(&self) -> Option<String> {
        match self {
            Self::Answered(Err(error)) if error.kind() == ListenerErrorKind::Unreachable => {
                Some(chain(error))
            }
            _ => None,
        }
    }
}

fn timed_out(after: Duration) -> String {
    format!("the listener took longer than {after:?}")
}

/// The shortest delay: the poller does not claim more often.
const SHORTEST_DELAY: Duration = Duration::from_millis(50);

/// The delay while the database is unavailable, if the policy has none.
const DELAY_IN_OUTAGE: Duration = Duration::from_secs(1);

/// What a decision depends on beside the call.
pub(crate) struct Circumstances<'a> {
    pub(crate) event: &'a EventEnvelope,
    /// The number of attempts that had failed before.
    pub(crate) attempts: u32,
    pub(crate) max_attempts: u32,
    pub(crate) retry: &'a dyn RetryPolicy,
    /// How long the circuit breaker pauses the listener, if the call was unreachable.
    pub(crate) breaker_pause: Duration,
}

/// Decides what follows from a call. `None` if that is unknown: the row is left alone until its lease expires,
/// because it may be locked by a transaction that only the server can end.
pub(crate) fn decide(call: &CallResult, circumstances: &Circumstances<'_>) -> Option<Verdict> {
    let Circumstances { event, attempts, max_attempts, retry, breaker_pause } = *circumstances;
    let failures = attempts.saturating_add(1);
    let is_last = failures >= max_attempts;
    let ask = |failure| match is_last {
        true => Retry::GiveUp,
        false => retry.retry(&FailedAttempt::new(event, failures, failure)),
    };
    let failed = |retry: Retry, error: String| match retry {
        Retry::After(delay) if !is_last => Verdict::Retry { attempts: failures, delay, error },
        Retry::After(_) | Retry::GiveUp => Verdict::Dead { attempts: failures, error },
    };
    Some(match call {
        CallResult::Answered(Ok(Outcome::Done)) | CallResult::Settled => Verdict::Done,
        CallResult::Answered(Ok(Outcome::RetryAfter(delay))) => {
            Verdict::Deferred { delay: (*delay).max(SHORTEST_DELAY) }
        }
        CallResult::Answered(Err(error)) => match error.kind() {
            ListenerErrorKind::Permanent => {
                Verdict::Dead { attempts: attempts.saturating_add(1), error: chain(error) }
            }
            ListenerErrorKind::RetryAfter(delay) => {
                failed(Retry::After(delay.max(SHORTEST_DELAY)), chain(error))
            }
            ListenerErrorKind::Unreachable => Verdict::Deferred { delay: breaker_pause },
            ListenerErrorKind::Failed
            | ListenerErrorKind::Decode
            | ListenerErrorKind::MissingState
            | ListenerErrorKind::MissingTransaction => {
                failed(ask(Failure::Error(error)), chain(error))
            }
        },
        CallResult::Panicked { error } => failed(ask(Failure::Panicked), error.clone()),
        CallResult::TimedOut(after) => failed(ask(Failure::TimedOut(*after)), timed_out(*after)),
        CallResult::Cancelled => Verdict::Cancelled,
        CallResult::Unroutable { error } => Verdict::Dead { attempts, error: error.clone() },
        CallResult::Overtaken => Verdict::Released,
        CallResult::Unavailable(error) => {
            let first = FailedAttempt::new(event, 1, Failure::Error(error));
            let delay = match retry.retry(&first) {
                Retry::After(delay) => delay.max(SHORTEST_DELAY),
                // An outage of the database is no reason to give an event up.
                Retry::GiveUp => DELAY_IN_OUTAGE,
            };
            Verdict::Deferred { delay }
        }
        CallResult::Unknown => return None,
    })
}

/// An error and what caused it.
fn chain(error: &ListenerError) -> String {
    crate::error::chain(error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl RetryPolicy for Fixed {
        fn retry(&self, attempt: &FailedAttempt<'_>) -> Retry {
            match attempt.failure {
                Failure::Error(error) if error.to_string() == "hopeless" => Retry::GiveUp,
                _ => Retry::After(Duration::from_secs(attempt.attempts.into())),
            }
        }
    }

    fn decided(call: &CallResult, attempts: u32) -> String {
        let breaker_pause = Duration::from_secs(7);
        let event = &EventEnvelope::json("A", "{}").unwrap();
        let circumstances =
            Circumstances { event, attempts, max_attempts: 3, retry: &Fixed, breaker_pause };
        decide(call, &circumstances).map_or("left to its lease".to_owned(), |v| format!("{v:?}"))
    }

    fn error(error: ListenerError) -> CallResult {
        CallResult::Answered(Err(error))
    }

    #[test]
    fn every_call_result_has_its_verdict() {
        let second = Duration::from_secs(9);
        let answered = |outcome| CallResult::Answered(Ok(outcome));
        for (call, attempts, expected) in [
            (answered(Outcome::Done), 2, "Done"),
            (answered(Outcome::RetryAfter(second)), 2, "Deferred { delay: 9s }"),
            (answered(Outcome::RetryAfter(Duration::ZERO)), 2, "Deferred { delay: 50ms }"),
            (error("x".into()), 0, "Retry { attempts: 1, delay: 1s, error: \"x\" }"),
            (error("x".into()), 1, "Retry { attempts: 2, delay: 2s, error: \"x\" }"),
            (error("x".into()), 2, "Dead { attempts: 3, error: \"x\" }"),
            (error("x".into()), u32::MAX, "Dead { attempts: 4294967295, error: \"x\" }"),
            (
                error(ListenerError::retry_after(second, "x")),
                0,
                "Retry { attempts: 1, delay: 9s, error: \"x\" }",
            ),
            (
                error(ListenerError::retry_after(second, "x")),
                2,
                "Dead { attempts: 3, error: \"x\" }",
            ),
            (error(ListenerError::permanent("x")), 0, "Dead { attempts: 1, error: \"x\" }"),
            (error(ListenerError::unreachable("x")), 2, "Deferred { delay: 7s }"),
            (error("hopeless".into()), 0, "Dead { attempts: 1, error: \"hopeless\" }"),
            (CallResult::Unavailable("hopeless".into()), 0, "Deferred { delay: 1s }"),
            (
                CallResult::Panicked { error: "x".to_owned() },
                2,
                "Dead { attempts: 3, error: \"x\" }",
            ),
            (CallResult::Cancelled, 2, "Cancelled"),
            (CallResult::Settled, 2, "Done"),
            (CallResult::Overtaken, 2, "Released"),
            (CallResult::Unavailable("x".into()), 2, "Deferred { delay: 1s }"),
            (CallResult::Unknown, 2, "left to its lease"),
            (
                CallResult::Unroutable { error: "x".to_owned() },
                2,
                "Dead { attempts: 2, error: \"x\" }",
            ),
        ] {
            assert_eq!(decided(&call, attempts), expected, "{call:?}");
        }
    }

    #[test]
    fn causes_are_named_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::num::ParseIntError);
        let cause = "x".parse::<u8>().unwrap_err();
        let text = chain(&ListenerError::from(Outer(cause)));
        assert_eq!(text, "outer: invalid digit found in string");
    }
}
