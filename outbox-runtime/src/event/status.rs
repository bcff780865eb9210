use std::fmt;

use super::VerdictKind;

/// The delivery state of an event.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Status {
    /// No verdict has changed it yet.
    New = 0,
    /// Delivered, or stored without a delivery because no listener is needed.
    Done = 1,
    /// To be delivered again.
    Retry = 2,
    /// Given up; kept so that it can be inspected and replayed.
    Dead = 3,
}

impl Status {
    /// Every status, by code.
    pub const ALL: [Self; 4] = [Self::New, Self::Done, Self::Retry, Self::Dead];

    /// Returns the code that is stored.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Returns the status with a code, if there is one.
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::New),
            1 => Some(Self::Done),
            2 => Some(Self::Retry),
            3 => Some(Self::Dead),
            _ => None,
        }
    }

    /// Returns whether no verdict can change it any more.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Dead)
    }

    /// Returns the status after a verdict, or `None` where the verdict does not apply and changes nothing.
    ///
    /// The settling statement of each database is generated from this function.
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
