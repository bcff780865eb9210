//! The faults end, and everything comes to rest.

use super::step::{Ack, Ending, Exchange, Late, Life, Span, Step, Write};
use super::world::World;
use crate::inflight::Phase;

/// How often everybody gets a turn. Some wait for a lease, and for a pause after that.
const ROUNDS: usize = 120;

impl World {
    /// Lets everybody do their work, with listeners that succeed, until nothing is left to do; then looks
    /// at what has become of every event. The steps are taken by `take`, so that they can be told.
    pub(super) fn settle(&mut self, take: &mut impl FnMut(&mut Self, Step) -> bool) {
        for _ in 0..ROUNDS {
            for index in (0..self.late.len()).rev() {
                take(self, Step::Late(index, Late::Happens));
            }
            let progress = self.turn(0, take) | self.turn(1, take);
            if !self.sound() || (self.at_rest() && self.ledger.is_closed()) {
                break;
            }
            if !progress {
                take(self, Step::Pass(Span::Second));
                if !(0..2).any(|relay| self.turn(relay, take)) {
                    take(self, Step::Pass(Span::Third));
                }
            }
        }
        if self.sound() && !self.at_rest() {
            self.ledger.fail(|| "it does not come to rest".to_owned());
        }
        let Self { ledger, table, .. } = self;
        ledger.close(table);
    }

    pub(super) fn sound(&self) -> bool {
        self.ledger.violation.is_none()
    }

    /// Whether nothing is in hand, nor on its way.
    fn at_rest(&self) -> bool {
        let empty = |inflight: &crate::inflight::InFlight| {
            inflight.len() == 0 && inflight.depths() == (0, 0)
        };
        let rests = |relay: &super::relay::Relay| {
            relay.is_quiet() && relay.inflight.as_ref().is_some_and(|inflight| empty(inflight))
        };
        self.late.is_empty() && self.relays.iter().all(rests)
    }

    /// Whether anything was done.
    fn turn(&mut self, relay: usize, take: &mut impl FnMut(&mut Self, Step) -> bool) -> bool {
        let mut progress = self.live_on(relay, take);
        let mut attempt = |world: &mut Self, step| {
            let taken = world.sound() && take(world, step);
            progress |= taken;
            taken
        };
        for write in [Write::Insert, Write::Commit, Write::Acknowledge, Write::Rollback] {
            attempt(self, Step::Write(relay, write));
        }
        for statement in [Step::Poll, Step::Renew] {
            attempt(self, statement(relay, Exchange::Execute));
            attempt(self, statement(relay, Exchange::Answer));
        }
        while attempt(self, Step::Start(relay)) {}
        for call in (0..self.relays[relay].calls.len()).rev() {
            for ack in [Ack::Send, Ack::Mark, Ack::Commit, Ack::Answer] {
                attempt(self, Step::Acknowledge(relay, call, ack));
            }
            attempt(self, Step::End(relay, call, Ending::Done));
        }
        loop {
            for exchange in [Exchange::Execute, Exchange::Reread, Exchange::Answer] {
                attempt(self, Step::Record(relay, exchange));
            }
            if !attempt(self, Step::Record(relay, Exchange::Send)) {
                break;
            }
        }
        for exchange in [Exchange::Send, Exchange::Execute, Exchange::Answer] {
            attempt(self, Step::Renew(relay, exchange));
        }
        attempt(self, Step::Overdue(relay));
        self.claim(relay, take) || progress
    }

    /// Whether there was anything to claim.
    fn claim(&mut self, relay: usize, take: &mut impl FnMut(&mut Self, Step) -> bool) -> bool {
        let held = |world: &Self| {
            world.relays[relay].inflight.as_ref().map_or(0, |inflight| inflight.len())
        };
        let before = held(self);
        if self.is_due() {
            for exchange in [Exchange::Send, Exchange::Execute, Exchange::Answer] {
                if self.sound() {
                    take(self, Step::Poll(relay, exchange));
                }
            }
        }
        held(self) > before
    }

    /// Everybody runs again. Whoever was about to leave does so first.
    fn live_on(&mut self, relay: usize, take: &mut impl FnMut(&mut Self, Step) -> bool) -> bool {
        let Some(inflight) = &self.relays[relay].inflight else {
            return take(self, Step::Life(relay, Life::Restart));
        };
        let gone = inflight.len() == 0 && self.relays[relay].is_quiet();
        let life = match inflight.phase() {
            Phase::Running => return false,
            Phase::Paused => Life::Resume,
            Phase::Draining => Life::Close,
            Phase::Closed if gone => Life::Restart,
            Phase::Closed => return false,
        };
        take(self, Step::Life(relay, life))
    }
}
