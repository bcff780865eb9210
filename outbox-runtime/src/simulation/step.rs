//! The steps of a schedule. A step that is not possible at its point of the schedule does nothing, so that any
//! part of a schedule is a schedule.

use std::fmt;
use std::time::Duration;

use super::{EventKind, LEASE};

/// A step of a schedule. The first number is the index of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Write(usize, WriteStep),
    Poll(usize, StatementStep),
    Record(usize, StatementStep),
    Renew(usize, StatementStep),
    /// A worker looks for an event that it can start.
    Start(usize),
    /// A call ends. The second number is its index among the running calls.
    End(usize, usize, Ending),
    /// The transaction of a call makes progress.
    Acknowledge(usize, usize, AckStep),
    /// Rows that have been queued for a whole lease are given back.
    ReleaseOverdue(usize),
    Lifecycle(usize, LifecycleStep),
    /// The database deals with a statement whose client no longer waits.
    Late(usize, LateStep),
    Replay(i64),
    Purge,
    Advance(TimeSpan),
}

/// A step of an application's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WriteStep {
    Begin,
    /// Asks for a permit for the next event.
    Reserve(EventKind),
    Insert,
    Commit,
    /// The writer knows of the commit, and redeems its permits.
    Acknowledge,
    Rollback,
    /// The commit was sent, and its response is lost.
    Lose,
}

/// A step of a statement of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum StatementStep {
    Send,
    Execute,
    /// Reads the rows of settlements that were not applied.
    Reread,
    /// The relay receives the response.
    Receive,
    /// The response is lost.
    Lose,
}

/// How a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    Done,
    Failed,
    Permanent,
    RetryAfter,
    Unreachable,
    Panicked,
    Cancelled,
    /// No transaction could be started for the call.
    Unavailable,
}

/// A step of the transaction of a call that has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AckStep {
    Send,
    Settle,
    Commit,
    /// The relay receives the response to the commit.
    Receive,
    /// The response is lost.
    Lose,
}

/// A change in the life cycle of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LifecycleStep {
    Pause,
    Resume,
    Drain,
    Close,
    Crash,
    Restart,
}

/// What the database does with a statement whose client no longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LateStep {
    Execute,
    Discard,
}

/// How much time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TimeSpan {
    Second,
    ThirdOfLease,
    Lease,
}

impl TimeSpan {
    pub(super) fn length(self) -> Duration {
        let second = Duration::from_secs(1);
        match self {
            Self::Second => second,
            Self::ThirdOfLease => LEASE / 3 + second,
            Self::Lease => LEASE + second,
        }
    }
}

const NAMES: [char; 2] = ['A', 'B'];

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lower = |value: &dyn fmt::Debug| format!("{value:?}").to_lowercase();
        let name = |relay: &usize| NAMES[*relay];
        match self {
            Self::Write(relay, step) => write!(f, "writer {}: {}", name(relay), lower(step)),
            Self::Poll(relay, step) => write!(f, "relay {}: claim, {}", name(relay), lower(step)),
            Self::Record(relay, step) => {
                write!(f, "relay {}: settlements, {}", name(relay), lower(step))
            }
            Self::Renew(relay, step) => {
                write!(f, "relay {}: renewal, {}", name(relay), lower(step))
            }
            Self::Start(relay) => write!(f, "relay {}: a worker looks for work", name(relay)),
            Self::End(relay, call, ending) => {
                write!(f, "relay {}: call {call} ends, {}", name(relay), lower(ending))
            }
            Self::Acknowledge(relay, call, step) => {
                write!(f, "relay {}: transaction of call {call}, {}", name(relay), lower(step))
            }
            Self::ReleaseOverdue(relay) => {
                write!(f, "relay {}: gives back overdue rows", name(relay))
            }
            Self::Lifecycle(relay, step) => write!(f, "relay {}: {}", name(relay), lower(step)),
            Self::Late(index, step) => write!(f, "late statement {index}: {}", lower(step)),
            Self::Replay(row) => write!(f, "replay of row {row}"),
            Self::Purge => f.write_str("purge"),
            Self::Advance(span) => write!(f, "{:?} pass", span.length()),
        }
    }
}

impl Step {
    /// Returns the index of the relay that the step belongs to, if there is one.
    pub(super) fn relay(&self) -> Option<usize> {
        match self {
            Self::Write(relay, _)
            | Self::Poll(relay, _)
            | Self::Record(relay, _)
            | Self::Renew(relay, _)
            | Self::Start(relay)
            | Self::End(relay, ..)
            | Self::Acknowledge(relay, ..)
            | Self::ReleaseOverdue(relay)
            | Self::Lifecycle(relay, _) => Some(*relay),
            Self::Late(..) | Self::Replay(_) | Self::Purge | Self::Advance(_) => None,
        }
    }

    /// Returns the step without its numbers, so that steps of both relays have the same name.
    pub(super) fn kind(&self) -> String {
        format!("{self:?}").replace(|letter: char| letter.is_ascii_digit(), "")
    }
}
