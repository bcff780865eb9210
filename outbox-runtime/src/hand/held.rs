use std::time::Instant;

use super::Lane;
use crate::event::EventId;
use crate::store::{Claimed, Finished};

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
    pub(super) lane: Lane,
    /// What the row was claimed again for while its last result was being recorded.
    pub(super) again: Option<Again>,
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

/// What is to be done with a row that was claimed again.
#[derive(Debug)]
pub(super) enum Again {
    /// To be delivered by this listener.
    Deliver(Box<Claimed>, Option<usize>),
    /// Its result is known already.
    Settle(Finished),
}
