use std::fmt;

use super::VerdictKind;

/// The delivery state of an event, in the column `status` of its row.
///
/// A *pending* event is `New` or `Retry`; `Done` and `Dead` are terminal. Whether an event is being delivered at the
/// moment is not part of its status: a claim is in other columns of the row.
///
/// ```text
///          released, cancelled            retry, deferred, postponed, released, cancelled
///             ┌────┐                          ┌────┐
///             │    ▼                          │    ▼
///             └── NEW ── retry, deferred, ──▶ RETRY┘
///                  │      postponed             │
///                  ├───────── done ─────────────┼──▶ DONE
///                  └───────── dead ─────────────┴──▶ DEAD ── replay ──▶ NEW
/// ```
/// DONE and DEAD are terminal for every verdict; only a replay leaves DEAD.
///
/// ```
/// use outbox::event::Status;
///
/// assert_eq!(Status::from_code(3), Some(Status::Dead));
/// assert_eq!(Status::Dead.to_string(), "DEAD");
/// assert!(Status::Dead.is_terminal() && !Status::Retry.is_terminal());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Status {
    /// Waits for its first delivery, or runs in it: no verdict has changed it yet.
    New = 0,
    /// Delivered, or stored without a delivery because it needs no listener (`#[outbox(no_listener)]`). The row is
    /// purged after its retention.
    Done = 1,
    /// To be delivered again: its listener has failed, has asked for a later call, or could not be called.
    Retry = 2,
    /// Given up: a dead letter, kept so that it can be inspected and replayed.
    Dead = 3,
}

impl Status {
    /// Every status, ordered by [`code`](Self::code).
    pub const ALL: [Self; 4] = [Self::New, Self::Done, Self::Retry, Self::Dead];

    /// Returns the number that is stored in the column `status`, for SQL of your own: 0 is NEW, 1 DONE, 2 RETRY, 3
    /// DEAD.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Returns the status with a stored number, or `None` if no status has it.
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::New),
            1 => Some(Self::Done),
            2 => Some(Self::Retry),
            3 => Some(Self::Dead),
            _ => None,
        }
    }

    /// Returns whether no verdict can change it any more: the event is delivered or dead.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Dead)
    }

    /// Returns the status after a verdict, or `None` where the verdict does not apply and changes nothing.
    ///
    /// The settling statement of each database is generated from this function.
    #[doc(hidden)]
    pub const fn after(self, verdict: VerdictKind) -> Option<Self> {
        match self {
            Self::Done | Self::Dead => None,
            Self::New | Self::Retry => Some(match verdict {
                VerdictKind::Done => Self::Done,
                VerdictKind::Dead => Self::Dead,
                VerdictKind::Retry | VerdictKind::Deferred | VerdictKind::Postponed => Self::Retry,
                VerdictKind::Released | VerdictKind::Cancelled => self,
            }),
        }
    }

    /// Returns the status after a replay, or `None` if the event is not dead.
    #[doc(hidden)]
    pub const fn replayed(self) -> Option<Self> {
        match self {
            Self::Dead => Some(Self::New),
            Self::New | Self::Done | Self::Retry => None,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "NEW",
            Self::Done => "DONE",
            Self::Retry => "RETRY",
            Self::Dead => "DEAD",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back() {
        for status in Status::ALL {
            assert_eq!(Status::from_code(status.code()), Some(status));
        }
        assert_eq!(Status::from_code(4), None);
        assert_eq!(Status::from_code(-1), None);
    }

    #[test]
    fn only_replay_leaves_a_terminal_status() {
        for status in Status::ALL {
            for verdict in VerdictKind::ALL {
                let applies = status.after(verdict).is_some();
                assert_eq!(applies, !status.is_terminal(), "{status} {verdict:?}");
            }
            assert_eq!(status.replayed().is_some(), status == Status::Dead, "{status}");
        }
    }
}
