use std::time::Instant;

use super::{Entry, Lane};
use crate::event::{EventEnvelope, EventId};
use crate::store::Claimed;

/// A row that is claimed by this node, from the claim until its result is durable.
#[derive(Debug)]
pub(super) struct Held {
    /// The token of the latest claim. A row that was claimed again after its lease had ended is
    /// adopted: the work goes on under the new token.
    pub(super) token: i64,
    pub(super) event_id: Option<EventId>,
    /// Until when nobody else can have it, by our own clock and on the safe side.
    pub(super) lease_until: Instant,
    pub(super) since: Instant,
    pub(super) stage: Stage,
    pub(super) bytes: usize,
    pub(super) group: Option<usize>,
    /// The row as it was claimed again while its last result was being recorded.
    pub(super) reclaimed: Option<Box<Reclaimed>>,
}

/// How far a row has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// In a lane, or parked.
    Queued,
    /// With its listener.
    Running { since: Instant, warned: bool },
    /// There is a result; it is not durable yet.
    Recording,
}

#[derive(Debug)]
pub(super) struct Reclaimed {
    pub(super) attempts: u32,
    pub(super) envelope: EventEnvelope,
}

impl Reclaimed {
    pub(super) fn of(row: Claimed) -> Box<Self> {
        Box::new(Self { attempts: row.attempts, envelope: row.envelope })
    }

    pub(super) fn into_entry(self, sequence: i64, group: Option<usize>) -> Entry {
        let Self { attempts, envelope } = self;
        Entry { sequence, attempts, envelope, group, lane: Lane::Cold }
    }
}
