//! Whether this node may deliver, where one node at a time does.

use std::time::Instant;

use super::{InFlight, Phase, State};

/// Whether a node may deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    /// Always: every node delivers.
    Always,
    /// Until then, by our own clock. Another node may deliver after that, so nothing is claimed or started then, even
    /// if this process was stopped and could not notice how time passed.
    Until(Instant),
    /// Another node delivers.
    Standby,
}

impl InFlight {
    /// Lets the node deliver until a point in time. Returns whether it did not before.
    pub(crate) fn activate(&self, until: Instant) -> bool {
        let mut state = self.lock();
        let is_new = state.activity == Activity::Standby;
        state.activity = Activity::Until(until);
        // The node that delivered before may have left events behind.
        state.out_of_order |= is_new;
        drop(state);
        if is_new {
            self.wake_all();
        }
        is_new
    }

    /// Lets the node deliver nothing: events that have not started go back to the table. Returns whether it was active
    /// before.
    pub(crate) fn stand_by(&self) -> bool {
        let mut state = self.lock();
        let was_active = state.activity != Activity::Standby;
        state.activity = Activity::Standby;
        drop(state);
        self.give_back_waiting();
        was_active
    }

    /// Returns whether the node may deliver.
    pub(crate) fn is_active(&self) -> bool {
        self.lock().is_active()
    }
}

impl State {
    pub(super) fn is_active(&self) -> bool {
        match self.activity {
            Activity::Always => true,
            Activity::Until(end) => self.clock.now() < end,
            Activity::Standby => false,
        }
    }

    /// Returns whether events may be added: from commits, and by claims.
    pub(super) fn may_add(&self) -> bool {
        self.phase == Phase::Running && self.is_active()
    }

    /// Returns whether calls may start.
    pub(super) fn may_call(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining) && self.is_active()
    }
}
