use std::time::Instant;

use super::Lane;
use crate::event::EventId;
use crate::store::{Claim, Verdict};

/// A row that is claimed by this node, from the claim until its result is durable.
#[derive(Debug)]
pub(super) struct ClaimedRow {
    /// The token of the latest claim. A row that was claimed again after its lease had ended is
    /// adopted: the work goes on under the new token.
    pub(super) token: i64,
    pub(super) event_id: Option<EventId>,
    /// Until when nobody else can have it, by our own clock and on the safe side.
    pub(super) lease_until: Instant,
    pub(super) since: Instant,
    pub(super) stage: Stage,
    pub(super) trial: Trial,
    /// How many attempts have failed, as the row says.
    pub(super) attempts: u32,
    /// How often it was begun after its owner was lost, as the row says.
    pub(super) takeovers: u32,
    pub(super) bytes: usize,
    pub(super) group: Option<usize>,
    pub(super) lane: Lane,
    /// What the row was claimed again for while its last result was being recorded.
    pub(super) again: Option<Again>,
}

impl ClaimedRow {
    /// A row that was just claimed, for a listener.
    pub(super) fn of(
        row: &Claim,
        group: Option<usize>,
        lease_until: Instant,
        now: Instant,
    ) -> Self {
        Self {
            token: row.token,
            event_id: Some(row.envelope.event_id()),
            lease_until,
            since: now,
            stage: Stage::Queued,
            trial: if row.is_suspect() { Trial::Due } else { Trial::Spared },
            attempts: row.attempts,
            takeovers: row.takeovers,
            bytes: row.envelope.bytes(),
            group,
            lane: Lane::Cold,
            again: None,
        }
    }
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

/// What is done about the suspicion that a row is the reason why its last owner was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trial {
    /// There is none.
    Spared,
    /// It does not begin before that is written down.
    Due,
    /// It is written down.
    Begun,
}

/// What is to be done with a row that was claimed again.
#[derive(Debug)]
pub(super) enum Again {
    /// To be delivered by this listener.
    Deliver(Box<Claim>, Option<usize>),
    /// Its result is known already.
    Settle(Verdict),
}
