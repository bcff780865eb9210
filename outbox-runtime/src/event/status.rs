use std::fmt;

/// Where an event stands.
///
/// ```text
/// NEW ───▶ released, and it is still NEW
///  ├─────▶ retry, deferred ──▶ RETRY ───▶ retry, deferred, released, and it is still RETRY
///  │                            │
///  ├──────── done ──────────────┼──▶ DONE
///  └──────── dead ──────────────┴──▶ DEAD ──▶ replayed, and it is NEW
/// ```
/// DONE and DEAD are terminal for every result; only a replay leaves DEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Status {
    /// Waiting for its first delivery.
    New = 0,
    /// Delivered.
    Done = 1,
    /// Waiting for another delivery.
    Retry = 2,
    /// Given up; kept for people to look at, and to replay.
    Dead = 3,
}

impl Status {
    /// Every status, by code.
    pub const ALL: [Self; 4] = [Self::New, Self::Done, Self::Retry, Self::Dead];

    /// The stored code.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The status with a code, if there is one.
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::New),
            1 => Some(Self::Done),
            2 => Some(Self::Retry),
            3 => Some(Self::Dead),
            _ => None,
        }
    }

    /// Whether no result can change it any more.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Dead)
    }

    /// The status after a mark, or `None` where the mark does not apply and changes nothing.
    pub const fn after(self, mark: Mark) -> Option<Self> {
        match (self, mark) {
            (Self::New | Self::Retry, Mark::Done) => Some(Self::Done),
            (Self::New | Self::Retry, Mark::Retry | Mark::Deferred) => Some(Self::Retry),
            (Self::New | Self::Retry, Mark::Dead) => Some(Self::Dead),
            (Self::New | Self::Retry, Mark::Released) => Some(self),
            (Self::Dead, Mark::Replayed) => Some(Self::New),
            (Self::Done | Self::Dead, _) | (Self::New | Self::Retry, Mark::Replayed) => None,
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

/// What is recorded about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The listener succeeded.
    Done,
    /// The listener failed; an attempt is spent.
    Retry,
    /// The listener failed for good.
    Dead,
    /// The listener asked for a later time; no attempt is spent.
    Deferred,
    /// Nobody tried; the claim is given back and the event is due at once.
    Released,
    /// Somebody asked for a dead event to be tried again.
    Replayed,
}

impl Mark {
    /// Every mark.
    pub const ALL: [Self; 6] =
        [Self::Done, Self::Retry, Self::Dead, Self::Deferred, Self::Released, Self::Replayed];
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
            for mark in Mark::ALL {
                let applies = status.after(mark).is_some();
                let allowed = match mark {
                    Mark::Replayed => status == Status::Dead,
                    _ => !status.is_terminal(),
                };
                assert_eq!(applies, allowed, "{status} {mark:?}");
            }
        }
    }
}
