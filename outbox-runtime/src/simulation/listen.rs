//! The calls of listeners, and the transactions of those that have one.

use std::time::Duration;

use super::late::Late;
use super::step::{Ack, Ending};
use super::world::World;
use super::{Kind, LIMITS, MAX_ATTEMPTS, Steady};
use crate::dispatch::decide::{CallResult, Decision, decide};
use crate::inflight::{Phase, QueuedEvent};
use crate::listener::{ListenerError, Outcome};
use crate::retry::RetryPolicy;
use crate::store::{Settlement, Verdict};

/// A listener at work.
#[derive(Debug)]
pub(super) struct Call {
    entry: QueuedEvent,
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
        let Some(entry) = inflight.try_next() else {
            if let Some(row) = inflight.idles() {
                self.ledger.fail(|| format!("row {row}: it waits although it could begin"));
            }
            return inflight.waiting() < waiting;
        };
        let row = entry.sequence;
        if relay.calls.iter().any(|call| call.entry.sequence == row) {
            self.ledger.fail(|| format!("row {row}: begun while it runs on the same node"));
        }
        if entry.group.is_some_and(|group| halted[group]) {
            self.ledger.fail(|| format!("row {row}: begun although its listener is halted"));
        }
        self.ledger.started(row, relay.owner, inflight.token(&entry), &self.table);
        let kind = entry.group.map_or(Kind::Unheard, |group| Kind::ALL[group]);
        relay.calls.push(Call { entry, kind, ack: None });
        true
    }

    pub(super) fn end(&mut self, index: usize, call: usize, ending: Ending) -> bool {
        let relay = &mut self.relays[index];
        let Some(inflight) = &relay.inflight else { return false };
        let Some(Call { entry, kind, ack: None }) = relay.calls.get(call) else { return false };
        let stopping = matches!(inflight.phase(), Phase::Draining | Phase::Closed);
        let error = || ListenerError::from("it failed");
        let ended = match ending {
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
        if *kind == Kind::Unheard {
            let attempts = entry.attempts;
            let dead = Verdict::Dead { attempts, error: "nobody listens".to_owned() };
            self.conclude(index, call, Decision::Record(dead));
            return true;
        }
        match ending {
            Ending::Done => self.ledger.done(entry.sequence),
            Ending::Failed | Ending::Permanent | Ending::Panicked => {
                self.ledger.failed(entry.sequence);
            }
            Ending::Later | Ending::Unreachable | Ending::Cancelled | Ending::Unavailable => {}
        }
        self.decide(index, call, &ended);
        true
    }

    pub(super) fn acknowledge(&mut self, index: usize, call: usize, ack: Ack) -> bool {
        let relay = &mut self.relays[index];
        let owner = relay.owner;
        let Some(inflight) = &relay.inflight else { return false };
        let Some(running) = relay.calls.get_mut(call) else { return false };
        let sequence = running.entry.sequence;
        match (ack, &mut running.ack) {
            (Ack::Send, None) if running.kind.in_tx() => {
                self.ledger.done(sequence);
                let Some(token) = inflight.token(&running.entry) else {
                    self.decide(index, call, &CallResult::Overtaken);
                    return true;
                };
                let finish = Settlement { sequence, token, result: Verdict::Done };
                running.ack = Some(Acknowledging { finish, stage: Stage::Sent });
            }
            (Ack::Mark, Some(Acknowledging { finish, stage: stage @ Stage::Sent })) => {
                if self.table.is_locked(std::slice::from_ref(finish)) {
                    return false;
                }
                if !self.table.matches(owner, finish) {
                    self.decide(index, call, &CallResult::Overtaken);
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
                self.decide(index, call, &CallResult::Acknowledged);
            }
            (Ack::Lose, Some(_)) => {
                self.ledger.disturbed = true;
                self.abandon_acknowledgement(index, call);
                self.decide(index, call, &CallResult::Unknown);
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

    fn decide(&mut self, index: usize, call: usize, ended: &CallResult) {
        let attempts = self.relays[index].calls[call].entry.attempts;
        self.conclude(index, call, decide(ended, attempts, MAX_ATTEMPTS, &Steady));
    }

    fn conclude(&mut self, index: usize, call: usize, decision: Decision) {
        let relay = &mut self.relays[index];
        let Call { entry, .. } = relay.calls.remove(call);
        let Some(inflight) = &relay.inflight else { return };
        match decision {
            Decision::Record(finished) => inflight.finish(&entry, finished),
            Decision::Pause { .. } => {
                inflight.unreachable(&entry, |failures| Steady.delay(failures))
            }
            Decision::Marked => inflight.settled(&entry, true),
            Decision::Leave => inflight.settled(&entry, false),
        };
    }
}
