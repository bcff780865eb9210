//! Calls of listeners, and the transactions of listeners with `in_tx`.

use std::time::Duration;

use super::late::LateStatement;
use super::step::{AckStep, Ending};
use super::world::World;
use super::{EventKind, LIMITS, LinearBackoff, MAX_ATTEMPTS, aggregate_of};
use crate::dispatch::decide::{CallResult, Circumstances, decide};
use crate::event::Verdict;
use crate::inflight::{BreakerChange, Phase, QueuedEvent};
use crate::listener::{ListenerError, Outcome};
use crate::ordering::OnDead;
use crate::store::Settlement;

/// A running call of a listener.
#[derive(Debug)]
pub(super) struct Call {
    event: QueuedEvent,
    kind: EventKind,
    /// Present if the listener has succeeded and its transaction is being committed.
    ack: Option<Acknowledgement>,
}

/// The end of the transaction of a call that has succeeded.
#[derive(Debug)]
struct Acknowledgement {
    settlement: Settlement,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sent,
    Settled,
    Committed,
}

impl Call {
    /// Returns the next step of its transaction, if it has one.
    pub(super) fn next(&self) -> Option<AckStep> {
        let stage = self.ack.as_ref().map(|ack| ack.stage);
        self.kind.in_tx().then_some(match stage {
            None => AckStep::Send,
            Some(Stage::Sent) => AckStep::Settle,
            Some(Stage::Settled) => AckStep::Commit,
            Some(Stage::Committed) => AckStep::Receive,
        })
    }
}

impl World {
    pub(super) fn start(&mut self, index: usize) -> bool {
        let relay = &mut self.relays[index];
        let Some(inflight) = &relay.inflight else { return false };
        let queued = inflight.queue_len();
        if relay.calls.len() >= LIMITS.workers || queued == 0 {
            return false;
        }
        let halted = inflight.halted_listeners();
        let Some(event) = inflight.try_next() else {
            if let Some(row) = inflight.parked_without_reason() {
                self.ledger.fail(|| format!("row {row}: waits although it could start"));
            }
            return inflight.queue_len() < queued;
        };
        let row = event.sequence;
        if relay.calls.iter().any(|call| call.event.sequence == row) {
            self.ledger.fail(|| format!("row {row}: started while it is running on the same node"));
        }
        if event.listener.is_some_and(|id| halted[id.index()]) {
            self.ledger.fail(|| format!("row {row}: started although its listener is halted"));
        }
        self.ledger.call_started(row, relay.owner, inflight.token(&event), &self.table);
        let owner = relay.owner;
        if let Some(on_dead) = self.table.guards.order {
            self.ledger.check_order(row, owner, on_dead);
            self.check_alone(index, row);
        }
        let relay = &mut self.relays[index];
        let kind = event.listener.map_or(EventKind::Unroutable, |id| EventKind::ALL[id.index()]);
        relay.calls.push(Call { event, kind, ack: None });
        true
    }

    /// Checks that no other event of the aggregate of a row is being delivered by a node that relies on its lease.
    fn check_alone(&mut self, index: usize, row: i64) {
        let Some(aggregate) = aggregate_of(row) else { return };
        let now = self.instant();
        for (other, relay) in self.relays.iter().enumerate() {
            let leases = relay.inflight.as_ref().map(|inflight| inflight.assumed_leases());
            let is_leased = |running: i64| {
                let mut leases = leases.iter().flatten();
                other == index || leases.any(|lease| lease.sequence == running && lease.until > now)
            };
            // The transaction of a call that has ended may have been committed, without an answer yet.
            let running = relay.calls.iter().map(|call| call.event.sequence);
            let running = running.filter(|running| !self.ledger.has_ended(*running));
            let beside = |running: &i64| {
                *running != row && aggregate_of(*running) == Some(aggregate) && is_leased(*running)
            };
            let found = running.into_iter().find(beside);
            if let Some(running) = found {
                return self.ledger.fail(|| format!("row {row}: started beside row {running}"));
            }
        }
    }

    pub(super) fn end(&mut self, index: usize, call: usize, ending: Ending) -> bool {
        let relay = &mut self.relays[index];
        let Some(inflight) = &relay.inflight else { return false };
        let Some(Call { event, kind, ack: None }) = relay.calls.get(call) else { return false };
        let stopping = matches!(inflight.phase(), Phase::Draining | Phase::Closed);
        let error = || ListenerError::from("it failed");
        let result = match ending {
            // It ends when its transaction does.
            Ending::Done if kind.in_tx() => return false,
            Ending::Done => CallResult::Answered(Ok(Outcome::Done)),
            Ending::Failed => CallResult::Answered(Err(error())),
            Ending::Permanent => CallResult::Answered(Err(ListenerError::permanent("it failed"))),
            Ending::RetryAfter => {
                CallResult::Answered(Ok(Outcome::RetryAfter(Duration::from_secs(1))))
            }
            Ending::Unreachable => {
                CallResult::Answered(Err(ListenerError::unreachable("no connection")))
            }
            Ending::Panicked => CallResult::Panicked { error: "it panicked".to_owned() },
            Ending::Cancelled if stopping => CallResult::Cancelled,
            Ending::Unavailable if kind.in_tx() => CallResult::Unavailable(error()),
            Ending::Cancelled | Ending::Unavailable => return false,
        };
        if *kind == EventKind::Unroutable {
            let error = "no listener".to_owned();
            self.decide(index, call, CallResult::Unroutable { error });
            return true;
        }
        match ending {
            Ending::Done => self.ledger.call_succeeded(event.sequence),
            Ending::Failed | Ending::Permanent | Ending::Panicked => {
                self.ledger.call_failed(event.sequence);
            }
            Ending::RetryAfter | Ending::Unreachable | Ending::Cancelled | Ending::Unavailable => {}
        }
        self.decide(index, call, result);
        true
    }

    pub(super) fn acknowledge(&mut self, index: usize, call: usize, step: AckStep) -> bool {
        let relay = &mut self.relays[index];
        let owner = relay.owner;
        let Some(inflight) = &relay.inflight else { return false };
        let Some(running) = relay.calls.get_mut(call) else { return false };
        let sequence = running.event.sequence;
        match (step, &mut running.ack) {
            (AckStep::Send, None) if running.kind.in_tx() => {
                self.ledger.call_succeeded(sequence);
                let Some(token) = inflight.token(&running.event) else {
                    self.decide(index, call, CallResult::Overtaken);
                    return true;
                };
                let settlement =
                    Settlement { sequence, token, verdict: Verdict::Done, history: None };
                running.ack = Some(Acknowledgement { settlement, stage: Stage::Sent });
            }
            (AckStep::Settle, Some(Acknowledgement { settlement, stage: stage @ Stage::Sent })) => {
                if self.table.is_locked(std::slice::from_ref(settlement)) {
                    return false;
                }
                if !self.table.can_settle(owner, settlement) {
                    self.decide(index, call, CallResult::Overtaken);
                    return true;
                }
                self.table.lock(sequence);
                *stage = Stage::Settled;
            }
            (
                AckStep::Commit,
                Some(Acknowledgement { settlement, stage: stage @ Stage::Settled }),
            ) => {
                *stage = Stage::Committed;
                self.table.settle(owner, settlement, &mut self.ledger);
                self.table.unlock(sequence);
            }
            (AckStep::Receive, Some(Acknowledgement { stage: Stage::Committed, .. })) => {
                self.decide(index, call, CallResult::Settled);
            }
            (AckStep::Lose, Some(_)) => {
                self.ledger.redelivery_allowed = true;
                self.abandon_acknowledgement(index, call);
                self.decide(index, call, CallResult::Unknown);
            }
            _ => return false,
        }
        true
    }

    /// Stops waiting for the end of a listener's transaction. If the transaction has not settled its row, it is
    /// rolled back; if it has, it may still be committed.
    fn abandon_acknowledgement(&mut self, index: usize, call: usize) {
        let relay = &mut self.relays[index];
        let ack = relay.calls.get_mut(call).and_then(|call| call.ack.take());
        if let Some(Acknowledgement { settlement, stage: Stage::Settled }) = ack {
            self.late.push(LateStatement::Acknowledgement { owner: relay.owner, settlement });
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
        let pause = |failures: u32| Duration::from_secs(failures.into());
        let breaker = result.unreachable().map(|_| inflight.unreachable(&event, pause));
        let breaker_pause = breaker.map_or(Duration::ZERO, |(_, delay)| delay);
        let (attempts, max_attempts) = (event.attempts, MAX_ATTEMPTS);
        let envelope = &event.envelope;
        let circumstances = Circumstances {
            event: envelope,
            attempts,
            max_attempts,
            retry: &LinearBackoff,
            breaker_pause,
        };
        let verdict = decide(&result, &circumstances);
        let passes = match &verdict {
            Some(Verdict::Done) => true,
            Some(Verdict::Dead { .. }) => self.table.guards.order == Some(OnDead::Skip),
            _ => false,
        };
        if passes {
            self.ledger.passed(event.sequence, relay.owner);
        }
        match (verdict, result) {
            (_, CallResult::Settled) => drop(inflight.settled_in_tx(&event)),
            (Some(verdict), _) => drop(inflight.finish(&event, verdict)),
            (None, _) => inflight.leave_to_lease(&event),
        }
        if let Some((BreakerChange::Opened { .. }, delay)) = breaker {
            inflight.postpone(&event, delay);
        }
    }
}
