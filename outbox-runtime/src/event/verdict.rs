use std::fmt;
use std::time::Duration;

/// What follows from one delivery of an event.
///
/// A call of a listener ends in a verdict, and so does a claim that never became a call. The verdict is the
/// only source of what is stored ([`Status::after`](super::Status::after)), counted, logged and reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The listener handled the event.
    Done,
    /// The listener failed and will be called again.
    Retry {
        /// The number of failed attempts, this one included.
        attempts: u32,
        /// How long to wait before the next attempt.
        delay: Duration,
        /// Why the attempt failed.
        error: String,
    },
    /// The event is given up.
    Dead {
        /// The number of failed attempts, this one included.
        attempts: u32,
        /// Why the event was given up.
        error: String,
    },
    /// The call ended and is to be repeated later; no attempt is spent.
    Deferred {
        /// How long to wait before the next call.
        delay: Duration,
    },
    /// The listener was not called; the event becomes due later.
    Postponed {
        /// How long to wait before the call.
        delay: Duration,
    },
    /// The listener was not called; the event is due at once, for any node.
    Released,
    /// The call was cancelled by a shutdown; the event is due at once, for any node.
    Cancelled,
}

/// What follows from one delivery of an event.
///
/// [`MetricsExporter::dispatched`](crate::MetricsExporter::dispatched) receives it for every listener call, and the
/// reports of the testing kit contain it. Only [`Retry`](Self::Retry) and [`Dead`](Self::Dead) mean that the attempt
/// failed; only they increase `attempts`, the number of failed attempts.
///
/// | verdict | status afterwards | `attempts` |
/// |---|---|---|
/// | [`Done`](Self::Done) | DONE, or deleted | unchanged |
/// | [`Retry`](Self::Retry) | RETRY | + 1 |
/// | [`Dead`](Self::Dead) | DEAD | + 1 after a call, otherwise unchanged |
/// | [`Deferred`](Self::Deferred), [`Postponed`](Self::Postponed) | RETRY | unchanged |
/// | [`Released`](Self::Released), [`Cancelled`](Self::Cancelled) | unchanged | unchanged |
///
/// ```
/// use outbox::metrics::VerdictKind;
///
/// assert!(VerdictKind::Retry.is_failure() && !VerdictKind::Deferred.is_failure());
/// assert_eq!(VerdictKind::Done.label(), "success");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VerdictKind {
    /// The listener handled the event.
    Done,
    /// The attempt failed, and the listener will be called again after a delay.
    Retry,
    /// The event is given up and becomes a dead letter: its attempts are used up, or its error is permanent.
    Dead,
    /// The call ended and is to be repeated later, without a failed attempt: the listener returned
    /// [`Outcome::RetryAfter`](crate::listener::Outcome::RetryAfter), or something that it depends on is unreachable.
    Deferred,
    /// The listener was not called, because its circuit breaker is open; the event becomes due later.
    Postponed,
    /// The listener was not called; the event is due at once, for any process: for example after a pause.
    Released,
    /// The call was cancelled by a shutdown; the event is due at once, for any process.
    Cancelled,
}

impl Verdict {
    /// Returns the verdict without its details.
    pub const fn kind(&self) -> VerdictKind {
        match self {
            Self::Done => VerdictKind::Done,
            Self::Retry { .. } => VerdictKind::Retry,
            Self::Dead { .. } => VerdictKind::Dead,
            Self::Deferred { .. } => VerdictKind::Deferred,
            Self::Postponed { .. } => VerdictKind::Postponed,
            Self::Released => VerdictKind::Released,
            Self::Cancelled => VerdictKind::Cancelled,
        }
    }

    /// Returns the number of failed attempts that the verdict writes, if it writes one.
    pub const fn attempts(&self) -> Option<u32> {
        match self {
            Self::Retry { attempts, .. } | Self::Dead { attempts, .. } => Some(*attempts),
            _ => None,
        }
    }

    /// Returns how long the event waits before it is due again, if it is not due at once.
    pub const fn delay(&self) -> Option<Duration> {
        match self {
            Self::Retry { delay, .. } | Self::Deferred { delay } | Self::Postponed { delay } => {
                Some(*delay)
            }
            _ => None,
        }
    }

    /// Returns the error that the verdict writes, if it writes one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Retry { error, .. } | Self::Dead { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl VerdictKind {
    /// Every kind of verdict, for example to create all series of a metric in advance.
    pub const ALL: [Self; 7] = [
        Self::Done,
        Self::Retry,
        Self::Dead,
        Self::Deferred,
        Self::Postponed,
        Self::Released,
        Self::Cancelled,
    ];

    /// Returns the number that stands for the verdict in a statement's arguments. It is never stored.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Done => 1,
            Self::Retry => 2,
            Self::Dead => 3,
            Self::Deferred => 4,
            Self::Released => 5,
            Self::Cancelled => 6,
            Self::Postponed => 7,
        }
    }

    /// Returns the value of the metric label `result` and of the span field of the same name: `success`, `failure`,
    /// `dead`, `deferred` or `cancelled`.
    ///
    /// Labels are coarser than verdicts on purpose: a dashboard need not tell a deferred event from a postponed one.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Done => "success",
            Self::Retry => "failure",
            Self::Dead => "dead",
            Self::Deferred | Self::Postponed => "deferred",
            Self::Released | Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether the verdict counts as the result of a call. A call that a shutdown cancelled has none.
    #[doc(hidden)]
    pub const fn is_counted(self) -> bool {
        !matches!(self, Self::Released | Self::Cancelled)
    }

    /// Returns whether the delivery failed, so that `attempts` increases or the event is dead.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Retry | Self::Dead)
    }

    /// Returns the message of the log line about the verdict, where there is one.
    pub(crate) const fn log_message(self) -> &'static str {
        match self {
            Self::Retry => "the listener failed; the event will be retried",
            Self::Dead => "the event is dead",
            Self::Done | Self::Deferred | Self::Postponed | Self::Released | Self::Cancelled => "",
        }
    }

    /// Returns what `takeovers` becomes, the number of times that the event was started after an owner was
    /// lost.
    ///
    /// A verdict that ends the event, or that spends an attempt, resets it: attempts are limited themselves.
    /// No other verdict does, or an event that ends every second process that starts it would never be given
    /// up. A call that came back takes its own start off the number, since its owner was not lost, but one
    /// remains.
    #[doc(hidden)]
    pub const fn takeovers_after(self, takeovers: u32) -> u32 {
        match self {
            Self::Done | Self::Retry | Self::Dead => 0,
            Self::Deferred | Self::Cancelled if takeovers > 1 => takeovers - 1,
            Self::Deferred | Self::Cancelled | Self::Postponed | Self::Released => takeovers,
        }
    }
}

impl fmt::Display for VerdictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Done => "delivered",
            Self::Retry => "to be retried",
            Self::Dead => "dead",
            Self::Deferred | Self::Postponed => "deferred",
            Self::Released => "released",
            Self::Cancelled => "cancelled",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_distinct() {
        let codes: HashSet<i64> = VerdictKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), VerdictKind::ALL.len());
    }

    #[test]
    fn only_what_ends_the_event_or_spends_an_attempt_resets_takeovers() {
        for kind in VerdictKind::ALL {
            let resets = matches!(kind, VerdictKind::Done | VerdictKind::Retry | VerdictKind::Dead);
            for takeovers in [1, 2, 5] {
                assert_eq!(kind.takeovers_after(takeovers) == 0, resets, "{kind:?}");
            }
        }
    }
}
