//! What can happen next. A step that makes no sense at its moment does nothing, so that any part of a
//! schedule is a schedule.

use std::fmt;
use std::time::Duration;

use super::{Kind, LEASE};

/// The first number is that of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Write(usize, Write),
    Poll(usize, Exchange),
    Record(usize, Exchange),
    Renew(usize, Exchange),
    /// A worker looks for work.
    Start(usize),
    /// A call ends. The second number says which, of those that run.
    End(usize, usize, Ending),
    /// The transaction of a call goes on.
    Acknowledge(usize, usize, Ack),
    /// What has been in hand for too long is given back.
    Overdue(usize),
    Life(usize, Life),
    /// The database gets round to what a client has not waited for; or it never does.
    Late(usize, Late),
    Replay(i64),
    Purge,
    Pass(Span),
}

/// What a transaction of the application does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Write {
    Begin,
    /// A seat is asked for.
    Reserve(Kind),
    Insert,
    Commit,
    /// The commit is known, and the seats are taken.
    Acknowledge,
    Rollback,
    /// The commit was sent, and nobody knows what became of it.
    Lose,
}

/// How a statement of the relay fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Exchange {
    Send,
    Execute,
    /// The look at results that did not apply.
    Reread,
    Answer,
    Lose,
}

/// How a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    Done,
    Failed,
    Permanent,
    Later,
    Unreachable,
    Panicked,
    Cancelled,
    /// There was no transaction to be had.
    Unavailable,
}

/// How the transaction of a call that is done fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ack {
    Send,
    Mark,
    Commit,
    Answer,
    Lose,
}

/// The life of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Pause,
    Resume,
    Drain,
    Close,
    Crash,
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Late {
    Happens,
    Never,
}

/// How much time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Span {
    Second,
    Third,
    Lease,
}

impl Span {
    pub(super) fn length(self) -> Duration {
        let second = Duration::from_secs(1);
        match self {
            Self::Second => second,
            Self::Third => LEASE / 3 + second,
            Self::Lease => LEASE + second,
        }
    }
}

const NAMES: [char; 2] = ['A', 'B'];

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |text: &dyn fmt::Debug| format!("{text:?}").to_lowercase();
        let relay = |relay: &usize| NAMES[*relay];
        match self {
            Self::Write(r, write) => write!(f, "writer {}: {}", relay(r), said(write)),
            Self::Poll(r, exchange) => write!(f, "relay {}: claim, {}", relay(r), said(exchange)),
            Self::Record(r, exchange) => {
                write!(f, "relay {}: results, {}", relay(r), said(exchange))
            }
            Self::Renew(r, exchange) => {
                write!(f, "relay {}: renewal, {}", relay(r), said(exchange))
            }
            Self::Start(r) => write!(f, "relay {}: a worker looks for work", relay(r)),
            Self::End(r, call, ending) => {
                write!(f, "relay {}: call {call} ends, {}", relay(r), said(ending))
            }
            Self::Acknowledge(r, call, ack) => {
                write!(f, "relay {}: transaction of call {call}, {}", relay(r), said(ack))
            }
            Self::Overdue(r) => write!(f, "relay {}: gives back what is overdue", relay(r)),
            Self::Life(r, life) => write!(f, "relay {}: {}", relay(r), said(life)),
            Self::Late(index, late) => write!(f, "late statement {index}: {}", said(late)),
            Self::Replay(row) => write!(f, "replay of row {row}"),
            Self::Purge => f.write_str("purge"),
            Self::Pass(span) => write!(f, "{:?} pass", span.length()),
        }
    }
}

impl Step {
    /// Whose step it is, if it is a relay's.
    pub(super) fn relay(&self) -> Option<usize> {
        match self {
            Self::Write(relay, _)
            | Self::Poll(relay, _)
            | Self::Record(relay, _)
            | Self::Renew(relay, _)
            | Self::Start(relay)
            | Self::End(relay, ..)
            | Self::Acknowledge(relay, ..)
            | Self::Overdue(relay)
            | Self::Life(relay, _) => Some(*relay),
            Self::Late(..) | Self::Replay(_) | Self::Purge | Self::Pass(_) => None,
        }
    }

    /// What it is, whoever takes it.
    pub(super) fn kind(&self) -> String {
        format!("{self:?}").replace(|letter: char| letter.is_ascii_digit(), "")
    }
}
