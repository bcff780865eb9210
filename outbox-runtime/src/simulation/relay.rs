//! A node: its hand, and the statements that are on their way.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::late::Late;
use super::listen::Call;
use super::step::{Exchange, Life};
use super::table::{Claims, Request};
use super::world::World;
use super::writer::Writer;
use super::{BATCH, Kind, LIMITS, LISTENERS};
use crate::clock::Clock;
use crate::event::Verdict;
use crate::inflight::{InFlight, Phase};
use crate::poll::takeover;
use crate::store::{Renewal, Settlement};

#[derive(Debug, Default)]
pub(super) struct Relay {
    /// Another one after each restart.
    pub(super) owner: u32,
    /// `None` if the process is not there.
    pub(super) inflight: Option<Arc<InFlight>>,
    pub(super) writer: Writer,
    pub(super) calls: Vec<Call>,
    claim: Option<Claim>,
    results: Option<Results>,
    renewal: Option<Renewing>,
}

#[derive(Debug)]
struct Claim {
    anchor: Instant,
    request: Request,
    answer: Option<Claims>,
}

#[derive(Debug)]
struct Results {
    batch: Vec<Settlement>,
    applied: Option<usize>,
    stale: Option<Vec<i64>>,
}

#[derive(Debug)]
struct Renewing {
    anchor: Instant,
    asked: Vec<Renewal>,
    answer: Option<HashSet<i64>>,
}

/// How far a statement has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flight {
    None,
    Sent,
    Executed,
}

impl Flight {
    /// Of one that is there, and may be executed.
    fn of(executed: Option<bool>) -> Self {
        match executed {
            None => Self::None,
            Some(false) => Self::Sent,
            Some(true) => Self::Executed,
        }
    }
}

impl Relay {
    /// Where it is in its life; `None` if it is not there.
    pub(super) fn phase(&self) -> Option<Phase> {
        self.inflight.as_ref().map(|inflight| inflight.phase())
    }

    pub(super) fn polling(&self) -> Flight {
        Flight::of(self.claim.as_ref().map(|claim| claim.answer.is_some()))
    }

    pub(super) fn recording(&self) -> Flight {
        Flight::of(self.results.as_ref().map(|results| results.applied.is_some()))
    }

    pub(super) fn renewing(&self) -> Flight {
        Flight::of(self.renewal.as_ref().map(|renewal| renewal.answer.is_some()))
    }

    pub(super) fn started(owner: u32, clock: Clock) -> Self {
        let inflight = Some(Arc::new(InFlight::new(LIMITS, &LISTENERS, clock)));
        Self { owner, inflight, ..Self::default() }
    }

    /// Everything that it is about, in words.
    pub(super) fn portrait(&self) -> String {
        let Self { owner, inflight, writer, calls, claim, results, renewal } = self;
        let inflight = inflight.as_ref().map(|inflight| inflight.portrait());
        let writer = writer.portrait();
        format!("{owner} {inflight:?} {writer} {calls:?} {claim:?} {results:?} {renewal:?}")
    }

    /// Whether nothing is on its way.
    pub(super) fn is_quiet(&self) -> bool {
        let quiet = self.claim.is_none() && self.results.is_none() && self.renewal.is_none();
        quiet && self.calls.is_empty() && self.writer.is_idle()
    }
}

impl World {
    pub(super) fn poll(&mut self, index: usize, exchange: Exchange) -> bool {
        let now = self.instant();
        let relay = &mut self.relays[index];
        let Some(inflight) = relay.inflight.clone() else { return false };
        match (exchange, &mut relay.claim) {
            (Exchange::Send, None) => {
                let budget = inflight.start_claim();
                let full = budget.free_places < budget.worthwhile(BATCH) || budget.bytes == 0;
                if full || inflight.phase() != Phase::Running {
                    return false;
                }
                let wanted = |kind: Kind| kind.listener().is_none_or(|id| budget.open[id.index()]);
                let request = Request {
                    kinds: Kind::ALL.map(wanted),
                    rows: budget.rows.min(BATCH),
                    bytes: budget.bytes,
                };
                relay.claim = Some(Claim { anchor: now, request, answer: None });
            }
            (Exchange::Execute, Some(claim)) if claim.answer.is_none() => {
                let claims = self.table.claim(relay.owner, &claim.request, &mut self.ledger);
                claim.answer = Some(claims);
            }
            (Exchange::Answer, Some(Claim { answer: Some(_), .. })) => {
                if let Some(claim) = relay.claim.take() {
                    take_in(&inflight, claim);
                }
            }
            (Exchange::Lose, Some(_)) => {
                if let Some(Claim { request, answer: None, .. }) = relay.claim.take() {
                    self.late.push(Late::Claim { owner: relay.owner, request });
                }
                self.ledger.disturbed = true;
            }
            _ => return false,
        }
        true
    }

    pub(super) fn record(&mut self, index: usize, exchange: Exchange) -> bool {
        let relay = &mut self.relays[index];
        let Some(inflight) = relay.inflight.clone() else { return false };
        match (exchange, &mut relay.results) {
            (Exchange::Send, None) => {
                let batch = inflight.take_results(BATCH);
                if batch.is_empty() {
                    return false;
                }
                relay.results = Some(Results { batch, applied: None, stale: None });
            }
            (Exchange::Execute, Some(Results { batch, applied: applied @ None, .. })) => {
                if self.table.is_locked(batch) {
                    return false;
                }
                *applied = Some(self.table.finish(relay.owner, batch, &mut self.ledger));
            }
            (Exchange::Reread, Some(Results { batch, applied: Some(applied), stale }))
                if *applied < batch.len() && stale.is_none() =>
            {
                *stale = Some(self.table.stale(batch));
            }
            (Exchange::Answer, Some(Results { batch, applied: Some(applied), stale }))
                if *applied == batch.len() || stale.is_some() =>
            {
                inflight.recorded(std::mem::take(batch), &stale.take().unwrap_or_default());
                relay.results = None;
            }
            (Exchange::Lose, Some(_)) => {
                if let Some(Results { batch, applied, .. }) = relay.results.take() {
                    if applied.is_none() {
                        let results = batch.clone();
                        self.late.push(Late::Results { owner: relay.owner, results });
                    }
                    inflight.put_back(batch);
                }
                self.ledger.disturbed = true;
            }
            _ => return false,
        }
        true
    }

    pub(super) fn renew(&mut self, index: usize, exchange: Exchange) -> bool {
        let now = self.instant();
        let relay = &mut self.relays[index];
        let Some(inflight) = relay.inflight.clone() else { return false };
        match (exchange, &mut relay.renewal) {
            (Exchange::Send, None) => {
                let mut asked = inflight.to_renew();
                if asked.is_empty() {
                    return false;
                }
                asked.sort_unstable_by_key(|row| row.sequence);
                relay.renewal = Some(Renewing { anchor: now, asked, answer: None });
            }
            (Exchange::Execute, Some(Renewing { asked, answer: answer @ None, .. })) => {
                *answer = Some(self.table.renew(relay.owner, asked, &mut self.ledger));
            }
            (Exchange::Answer, Some(Renewing { anchor, asked, answer: Some(renewed) })) => {
                inflight.renewed(*anchor, asked, renewed);
                relay.renewal = None;
            }
            (Exchange::Lose, Some(_)) => {
                if let Some(Renewing { asked, answer: None, .. }) = relay.renewal.take() {
                    self.late.push(Late::Renewal { owner: relay.owner, asked });
                }
                self.ledger.disturbed = true;
            }
            _ => return false,
        }
        true
    }

    pub(super) fn overdue(&mut self, index: usize) -> bool {
        let Some(inflight) = &self.relays[index].inflight else { return false };
        let overdue = inflight.overdue();
        overdue.given_back > 0 || !overdue.running.is_empty()
    }

    pub(super) fn live(&mut self, index: usize, life: Life) -> bool {
        let relay = &self.relays[index];
        match (life, &relay.inflight, relay.phase()) {
            (Life::Pause, Some(inflight), Some(Phase::Running)) => {
                inflight.enter(Phase::Paused);
                inflight.give_back_waiting();
            }
            (Life::Resume, Some(inflight), Some(Phase::Paused)) => inflight.enter(Phase::Running),
            (Life::Drain, Some(inflight), Some(Phase::Running | Phase::Paused)) => {
                inflight.enter(Phase::Draining);
            }
            // What was asked for is waited for; writers may be late.
            (Life::Close, Some(inflight), Some(Phase::Draining))
                if relay.claim.is_none() && relay.renewal.is_none() && relay.calls.is_empty() =>
            {
                inflight.enter(Phase::Closed);
                inflight.give_back_waiting();
            }
            (Life::Crash, Some(_), _) => self.crash(index),
            (Life::Restart, Some(inflight), Some(Phase::Closed)) => {
                if inflight.len() == 0 && relay.is_quiet() {
                    self.left_in_good_order(index);
                } else {
                    self.crash(index);
                }
                self.restart(index);
            }
            (Life::Restart, None, _) => self.restart(index),
            _ => return false,
        }
        true
    }

    fn restart(&mut self, index: usize) {
        self.owners += 1;
        self.relays[index] = Relay::started(self.owners, self.clock());
    }

    /// The process is gone; the database may still do what it was asked for.
    fn crash(&mut self, index: usize) {
        self.ledger.disturbed = true;
        self.abandon_transaction(index);
        self.abandon_calls(index);
        let relay = std::mem::take(&mut self.relays[index]);
        let owner = relay.owner;
        if let Some(Claim { request, answer: None, .. }) = relay.claim {
            self.late.push(Late::Claim { owner, request });
        }
        if let Some(Results { batch: results, applied: None, .. }) = relay.results {
            self.late.push(Late::Results { owner, results });
        }
        if let Some(Renewing { asked, answer: None, .. }) = relay.renewal {
            self.late.push(Late::Renewal { owner, asked });
        }
    }

    /// No row stays claimed by a node that was shut down, unless an answer was lost on the way.
    fn left_in_good_order(&mut self, index: usize) {
        let owner = Some(self.relays[index].owner);
        let left = self.table.rows.iter().find(|(_, row)| row.owner == owner);
        let disturbed = self.ledger.disturbed || !self.late.is_empty();
        if let (Some((row, _)), false) = (left, disturbed) {
            let row = *row;
            self.ledger.fail(|| format!("row {row}: its owner was shut down and still has it"));
        }
    }
}

/// What the poller does with what it has claimed.
fn take_in(inflight: &InFlight, claim: Claim) {
    let Claims { rows, excess } = claim.answer.unwrap_or_default();
    for (sequence, token) in excess {
        inflight.settle(sequence, token, Verdict::Released, claim.anchor);
    }
    let mut admitted = Vec::new();
    for (row, kind) in rows {
        match takeover::verdict(&row) {
            Some(dead) => inflight.settle(row.sequence, row.token, dead, claim.anchor),
            None => admitted.push((row, kind.listener())),
        }
    }
    inflight.admit(admitted, claim.anchor);
}
