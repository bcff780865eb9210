//! What follows from a listener's answer. A pure function, so that every case can be read here:
//!
//! ```text
//!   answer                      row                        attempts
//!   ──────────────────────────  ─────────────────────────  ─────────────────────
//!   Done                        DONE                       as they are
//!   RetryAfter(d)               RETRY in d                 as they are
//!   error, panic, time-out      RETRY by the policy        + 1, DEAD at the limit
//!   error with retry-after d    RETRY in d                 + 1, DEAD at the limit
//!   permanent error             DEAD                       + 1
//!   unreachable                 RETRY when the pause ends  as they are
//!   cancelled                   due now                    as they are
//!   marked by itself            as it is
//!   in a transaction: no        RETRY by the policy        as they are
//!     database, or overtaken      or due now
//!   nobody knows the end        left to its lease
//! ```

use std::time::Duration;

use crate::listener::{ListenerError, ListenerErrorKind, Outcome};
use crate::retry::RetryPolicy;
use crate::store::Verdict;

/// How a call ended.
#[derive(Debug)]
pub(crate) enum CallResult {
    /// The listener answered, or something before it refused.
    Answered(Result<Outcome, ListenerError>),
    /// It panicked.
    Panicked,
    /// It took too long.
    TimedOut(Duration),
    /// The node stops.
    Cancelled,
    /// Its event was marked in its own transaction.
    Acknowledged,
    /// Somebody else has the event by now; what the listener wrote is undone.
    Overtaken,
    /// The database could not be reached, and so the listener could not do its work.
    Unavailable(ListenerError),
    /// The database did not say whether it has committed.
    Unknown,
}

impl CallResult {
    /// Shows the error, if it is one.
    pub(super) fn with_error(&self, peek: impl FnOnce(Option<&ListenerError>)) {
        match self {
            Self::Answered(answer) => peek(answer.as_ref().err()),
            Self::Panicked => peek(Some(&PANICKED.into())),
            Self::TimedOut(after) => peek(Some(&took_too_long(*after).into())),
            Self::Cancelled => peek(Some(&"the listener was cancelled".into())),
            Self::Acknowledged => peek(None),
            Self::Overtaken => peek(Some(&"the lease had ended".into())),
            Self::Unavailable(error) => peek(Some(error)),
            Self::Unknown => peek(Some(&"nobody knows whether it was committed".into())),
        }
    }
}

const PANICKED: &str = "the listener panicked";

fn took_too_long(after: Duration) -> String {
    format!("the listener took longer than {after:?}")
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Decision {
    /// To be recorded.
    Record(Verdict),
    /// The listener pauses, for this reason.
    Pause { error: String },
    /// Its row needs no mark: it has one.
    Marked,
    /// Its row is left alone until its lease has ended: it may be locked by a transaction that nobody
    /// can end but the server.
    Leave,
}

/// The shortest delay: the poller looks no more often.
const SHORTEST: Duration = Duration::from_millis(50);

/// What follows, given how many attempts have failed before.
pub(crate) fn decide(
    ended: &CallResult,
    attempts: u32,
    max_attempts: u32,
    policy: &dyn RetryPolicy,
) -> Decision {
    let failed = |delay: Option<Duration>, error: String| {
        let attempts = attempts.saturating_add(1);
        if attempts >= max_attempts {
            return Verdict::Dead { attempts, error };
        }
        let delay = delay.unwrap_or_else(|| policy.delay(attempts));
        Verdict::Retry { attempts, delay, error }
    };
    Decision::Record(match ended {
        CallResult::Answered(Ok(Outcome::Done)) => Verdict::Done,
        CallResult::Answered(Ok(Outcome::RetryAfter(delay))) => {
            Verdict::Deferred { delay: (*delay).max(SHORTEST) }
        }
        CallResult::Answered(Err(error)) => match error.kind() {
            ListenerErrorKind::Permanent => {
                Verdict::Dead { attempts: attempts.saturating_add(1), error: chain(error) }
            }
            ListenerErrorKind::RetryAfter(delay) => failed(Some(delay.max(SHORTEST)), chain(error)),
            ListenerErrorKind::Unreachable => return Decision::Pause { error: chain(error) },
            ListenerErrorKind::Failed
            | ListenerErrorKind::Decode
            | ListenerErrorKind::MissingState
            | ListenerErrorKind::MissingTransaction => failed(None, chain(error)),
        },
        CallResult::Panicked => failed(None, PANICKED.to_owned()),
        CallResult::TimedOut(after) => failed(None, took_too_long(*after)),
        CallResult::Cancelled => Verdict::Cancelled,
        CallResult::Overtaken => Verdict::Released,
        CallResult::Unavailable(_) => Verdict::Deferred { delay: policy.delay(1).max(SHORTEST) },
        CallResult::Acknowledged => return Decision::Marked,
        CallResult::Unknown => return Decision::Leave,
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
        fn delay(&self, failures: u32) -> Duration {
            Duration::from_secs(failures.into())
        }
    }

    fn decided(ended: CallResult, attempts: u32) -> String {
        match decide(&ended, attempts, 3, &Fixed) {
            Decision::Record(finished) => format!("{finished:?}"),
            other => format!("{other:?}"),
        }
    }

    fn error(error: ListenerError) -> CallResult {
        CallResult::Answered(Err(error))
    }

    #[test]
    fn every_answer_has_its_consequence() {
        let second = Duration::from_secs(9);
        let answered = |outcome| CallResult::Answered(Ok(outcome));
        for (ended, attempts, expected) in [
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
            (error(ListenerError::unreachable("x")), 2, "Pause { error: \"x\" }"),
            (CallResult::Panicked, 2, "Dead { attempts: 3, error: \"the listener panicked\" }"),
            (CallResult::Cancelled, 2, "Cancelled"),
            (CallResult::Acknowledged, 2, "Marked"),
            (CallResult::Overtaken, 2, "Released"),
            (CallResult::Unavailable("x".into()), 2, "Deferred { delay: 1s }"),
            (CallResult::Unknown, 2, "Leave"),
        ] {
            let text = format!("{ended:?}");
            assert_eq!(decided(ended, attempts), expected, "{text}");
        }
    }

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::num::ParseIntError);
        let cause = "x".parse::<u8>().unwrap_err();
        let text = chain(&ListenerError::from(Outer(cause)));
        assert_eq!(text, "outer: invalid digit found in string");
    }
}
