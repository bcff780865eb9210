//! The end of a schedule: without further faults, both relays work until nothing is left to do.

use super::relay::Relay;
use super::step::{
    AckStep, Ending, LateStep, LifecycleStep, StatementStep, Step, TimeSpan, WriteStep,
};
use super::world::World;
use crate::inflight::{InFlight, Phase};

/// The maximum number of rounds. Some events wait for the end of a lease, and for a pause after that.
const ROUNDS: usize = 120;

impl World {
    /// Lets both relays work, with listeners that succeed, until nothing is left to do, and then checks the end of
    /// every event. `apply` applies each step, so that the caller can print it.
    pub(super) fn quiesce(&mut self, apply: &mut impl FnMut(&mut Self, Step) -> bool) {
        for _ in 0..ROUNDS {
            for index in (0..self.late.len()).rev() {
                apply(self, Step::Late(index, LateStep::Execute));
            }
            let progress = self.run_relay(0, apply) | self.run_relay(1, apply);
            if !self.is_valid() || (self.is_idle() && self.ledger.have_all_ended(&self.table)) {
                break;
            }
            if !progress {
                apply(self, Step::Advance(TimeSpan::Second));
                if !(0..2).any(|relay| self.run_relay(relay, apply)) {
                    apply(self, Step::Advance(TimeSpan::ThirdOfLease));
                }
            }
        }
        if self.is_valid() && !self.is_idle() {
            self.ledger.fail(|| "work is left after the last round".to_owned());
        }
        let Self { ledger, table, .. } = self;
        ledger.check_end(table);
    }

    /// Returns whether no invariant was violated.
    pub(super) fn is_valid(&self) -> bool {
        self.ledger.violation.is_none()
    }

    /// Returns whether nothing is in flight and no statement is pending.
    fn is_idle(&self) -> bool {
        let is_empty = |inflight: &InFlight| inflight.len() == 0 && inflight.depths() == (0, 0);
        let is_idle = |relay: &Relay| {
            relay.is_idle() && relay.inflight.as_ref().is_some_and(|inflight| is_empty(inflight))
        };
        self.late.is_empty() && self.relays.iter().all(is_idle)
    }

    /// Lets a relay do everything that it can do now. Returns whether there was anything.
    fn run_relay(&mut self, relay: usize, apply: &mut impl FnMut(&mut Self, Step) -> bool) -> bool {
        let mut progress = self.bring_up(relay, apply);
        let mut try_step = |world: &mut Self, step| {
            let applied = world.is_valid() && apply(world, step);
            progress |= applied;
            applied
        };
        for step in
            [WriteStep::Insert, WriteStep::Commit, WriteStep::Acknowledge, WriteStep::Rollback]
        {
            try_step(self, Step::Write(relay, step));
        }
        for statement in [Step::Poll, Step::Renew] {
            try_step(self, statement(relay, StatementStep::Execute));
            try_step(self, statement(relay, StatementStep::Receive));
        }
        while try_step(self, Step::Start(relay)) {}
        for call in (0..self.relays[relay].calls.len()).rev() {
            for step in [AckStep::Send, AckStep::Settle, AckStep::Commit, AckStep::Receive] {
                try_step(self, Step::Acknowledge(relay, call, step));
            }
            try_step(self, Step::End(relay, call, Ending::Done));
        }
        loop {
            for step in [StatementStep::Execute, StatementStep::Reread, StatementStep::Receive] {
                try_step(self, Step::Record(relay, step));
            }
            if !try_step(self, Step::Record(relay, StatementStep::Send)) {
                break;
            }
        }
        for step in [StatementStep::Send, StatementStep::Execute, StatementStep::Receive] {
            try_step(self, Step::Renew(relay, step));
        }
        try_step(self, Step::ReleaseOverdue(relay));
        self.claim(relay, apply) || progress
    }

    /// Claims due rows. Returns whether there were any.
    fn claim(&mut self, relay: usize, apply: &mut impl FnMut(&mut Self, Step) -> bool) -> bool {
        let in_flight = |world: &Self| {
            world.relays[relay].inflight.as_ref().map_or(0, |inflight| inflight.len())
        };
        let before = in_flight(self);
        if self.is_due() {
            for step in [StatementStep::Send, StatementStep::Execute, StatementStep::Receive] {
                if self.is_valid() {
                    apply(self, Step::Poll(relay, step));
                }
            }
        }
        in_flight(self) > before
    }

    /// Makes a relay run again. A shutdown that has begun is completed first.
    fn bring_up(&mut self, relay: usize, apply: &mut impl FnMut(&mut Self, Step) -> bool) -> bool {
        let Some(inflight) = &self.relays[relay].inflight else {
            return apply(self, Step::Lifecycle(relay, LifecycleStep::Restart));
        };
        let is_empty = inflight.len() == 0 && self.relays[relay].is_idle();
        let step = match inflight.phase() {
            Phase::Running => return false,
            Phase::Paused => LifecycleStep::Resume,
            Phase::Draining => LifecycleStep::Close,
            Phase::Closed if is_empty => LifecycleStep::Restart,
            Phase::Closed => return false,
        };
        apply(self, Step::Lifecycle(relay, step))
    }
}
