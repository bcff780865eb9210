//! The calls of listeners, and the transactions of those that have one.

use std::time::Duration;

use super::late::Late;
use super::step::{Ack, Ending};
use super::world::World;
use super::{Kind, LIMITS, MAX_ATTEMPTS, Steady};
use crate::dispatch::decide::{CallResult, Circumstances, decide};
use crate::event::Verdict;
use crate::inflight::{BreakerChange, Phase, QueuedEvent};
use crate::listener::{ListenerError, Outcome};
use crate::retry::RetryPolicy;
use crate::store::Settlement;

/// A listener at work.
#[derive(Debug)]
pub(super) struct Call {
    event: QueuedEvent,
    kind: Kind,
    /// It is done, and its transaction is being ended.
    ack: Option<Acknowledging>,
}

#[derive(Debug)]
struct Acknowledging {
    finish: Settlement,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sent,
    Marked,
    Committed,
}

impl Call {
    /// What comes next in its transaction, if it has one.
    pub(super) fn next(&self) -> Option<Ack> {
        let stage = self.ack.as_ref().map(|ack| ack.stage);
        self.kind.in_tx().then_some(match stage {
            None => Ack::Send,
            Some(Stage::Sent) => Ack::Mark,
            Some(Stage::Marked) => Ack::Commit,
            Some(Stage::Committed) => Ack::Answer,
        })
    }
}

impl World {
    pub(super) fn start(&mut self, index: usize) -> bool {
        let relay = &mut self.relays[index];
        let Some(inflight) = &relay.inflight else { return false };
        let waiting = inflight.waiting();
        if relay.calls.len() >= LIMITS.workers || waiting == 0 {
            return false;
        }
        let halted = inflight.halted();
        let Some(event) = inflight.try_next() else {
            if let Some(row) = inflight.idles() {
                self.ledger.fail(|| format!("row {row}: it waits although it could begin"));
            }
            return inflight.waiting() < waiting;
        };
        let row = event.sequence;
        if relay.calls.iter().any(|call| call.event.sequence == row) {
            self.ledger.fail(|| format!("row {row}: begun while it runs on the same node"));
        }
        if event.listener.is_some_and(|id| halted[id.index()]) {
            self.ledger.fail(|| format!("row {row}: begun although its listener is halted"));
        }
        self.ledger.started(row, relay.owner, inflight.token(&event), &self.table);
        let kind = event.listener.map_or(Kind::Unroutable, |id| Kind::ALL[id.index()]);
        relay.calls.push(Call { event, kind, ack: None });
        true
    }

    pub(super) fn end(&mut self, index: usize, call: usize, ending: Ending) -> bool {
        let relay = &mut self.relays[index];
        let Some(inflight) = &relay.inflight else { return false };
        let Some(Call { event, kind, ack: None }) = relay.calls.get(call) else { return false };
        let stopping = matches!(inflight.phase(), Phase::Draining | Phase::Closed);
        let error = || ListenerError::from("it failed");
        let result = match ending {
            // Its transaction must end first.
            Ending::Done if kind.in_tx() => return false,
            Ending::Done => CallResult::Answered(Ok(Outcome::Done)),
            Ending::Failed => CallResult::Answered(Err(error())),
            Ending::Permanent => CallResult::Answered(Err(ListenerError::permanent("it failed"))),
            Ending::Later => CallResult::Answered(Ok(Outcome::RetryAfter(Duration::from_secs(1)))),
            Ending::Unreachable => {
                CallResult::Answered(Err(ListenerError::unreachable("it is away")))
            }
            Ending::Panicked => CallResult::Panicked,
            Ending::Cancelled if stopping => CallResult::Cancelled,
            Ending::Unavailable if kind.in_tx() => CallResult::Unavailable(error()),
            Ending::Cancelled | Ending::Unavailable => return false,
        };
        if *kind == Kind::Unroutable {
            let error = "no listener".to_owned();
            self.decide(index, call, CallResult::Unroutable { error });
            return true;
        }
        match ending {
            Ending::Done => self.ledger.done(event.sequence),
            Ending::Failed | Ending::Permanent | Ending::Panicked => {
                self.ledger.failed(event.sequence);
            }
            Ending::Later | Ending::Unreachable | Ending::Cancelled | Ending::Unavailable => {}
        }
        self.decide(index, call, result);
        true
    }

    pub(super) fn acknowledge(&mut self, index: usize, call: usize, ack: Ack) -> bool {
        let relay = &mut self.relays[index];
        let owner = relay.owner;
        let Some(inflight) = &relay.inflight else { return false };
        let Some(running) = relay.calls.get_mut(call) else { return false };
        let sequence = running.event.sequence;
        match (ack, &mut running.ack) {
            (Ack::Send, None) if running.kind.in_tx() => {
                self.ledger.done(sequence);
                let Some(token) = inflight.token(&running.event) else {
                    self.decide(index, call, CallResult::Overtaken);
                    return true;
                };
                let finish = Settlement { sequence, token, verdict: Verdict::Done };
                running.ack = Some(Acknowledging { finish, stage: Stage::Sent });
            }
            (Ack::Mark, Some(Acknowledging { finish, stage: stage @ Stage::Sent })) => {
                if self.table.is_locked(std::slice::from_ref(finish)) {
                    return false;
                }
                if !self.table.matches(owner, finish) {
                    self.decide(index, call, CallResult::Overtaken);
                    return true;
                }
                self.table.lock(sequence);
                *stage = Stage::Marked;
            }
            (Ack::Commit, Some(Acknowledging { finish, stage: stage @ Stage::Marked })) => {
                *stage = Stage::Committed;
                self.table.mark(owner, finish, &mut self.ledger);
                self.table.unlock(sequence);
            }
            (Ack::Answer, Some(Acknowledging { stage: Stage::Committed, .. })) => {
                self.decide(index, call, CallResult::Settled);
            }
            (Ack::Lose, Some(_)) => {
                self.ledger.disturbed = true;
                self.abandon_acknowledgement(index, call);
                self.decide(index, call, CallResult::Unknown);
            }
            _ => return false,
        }
        true
    }

    /// Whoever waited for the end of a listener's transaction does so no longer. If it has not marked its
    /// row, it is undone; if it has, it may be committed yet.
    fn abandon_acknowledgement(&mut self, index: usize, call: usize) {
        let relay = &mut self.relays[index];
        let ack = relay.calls.get_mut(call).and_then(|call| call.ack.take());
        if let Some(Acknowledging { finish, stage: Stage::Marked }) = ack {
            self.late.push(Late::Acknowledgement { owner: relay.owner, finish });
        }
    }

    pub(super) fn abandon_calls(&mut self, index: usize) {
        (0..self.relays[index].calls.len())
            .for_each(|call| self.abandon_acknowledgement(index, call));
    }

    fn decide(&mut self, index: usize, call: usize, result: CallResult) {
        let relay = &mut self.relays[index];
        let Call { event, .. } = relay.calls.remove(call);
        let Some(inflight) = &relay.inflight else { return };
        let pause = |failures| Steady.delay(failures);
        let breaker = result.unreachable().map(|_| inflight.unreachable(&event, pause));
        let breaker_pause = breaker.map_or(Duration::ZERO, |(_, delay)| delay);
        let (attempts, max_attempts) = (event.attempts, MAX_ATTEMPTS);
        let circumstances = Circumstances { attempts, max_attempts, retry: &Steady, breaker_pause };
        match (decide(&result, &circumstances), result) {
            (_, CallResult::Settled) => drop(inflight.settled_in_tx(&event)),
            (Some(verdict), _) => drop(inflight.finish(&event, verdict)),
            (None, _) => inflight.leave_to_lease(&event),
        }
        if let Some((BreakerChange::Opened { .. }, delay)) = breaker {
            inflight.postpone(&event, delay);
        }
    }
}
