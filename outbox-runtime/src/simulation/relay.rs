//! A node: its events in flight, and its statements that wait for a response.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::call::Call;
use super::late::LateStatement;
use super::step::{LifecycleStep, StatementStep};
use super::table::{ClaimRequest, Claimed};
use super::world::World;
use super::writer::Writer;
use super::{BATCH, EventKind, LIMITS, LISTENERS};
use crate::clock::Clock;
use crate::event::{AggregateKey, Verdict};
use crate::inflight::{InFlight, Limits, Phase};
use crate::ordering::OnDead;
use crate::poll::takeover;
use crate::store::{Claim, Renewal, Settlement};

#[derive(Debug, Default)]
pub(super) struct Relay {
    /// A new one after each restart.
    pub(super) owner: u32,
    /// `None` if the process does not run.
    pub(super) inflight: Option<Arc<InFlight>>,
    pub(super) writer: Writer,
    pub(super) calls: Vec<Call>,
    claim: Option<PendingClaim>,
    settlements: Option<PendingSettlements>,
    renewal: Option<PendingRenewal>,
}

/// A claim that was sent.
#[derive(Debug)]
struct PendingClaim {
    anchor: Instant,
    request: ClaimRequest,
    /// The response, once the claim is executed.
    claimed: Option<Claimed>,
}

/// A batch of settlements that was sent.
#[derive(Debug)]
struct PendingSettlements {
    batch: Vec<Settlement>,
    /// How many of them applied, once they are executed.
    applied: Option<usize>,
    /// The stale ones, once the rows were read again.
    stale: Option<Vec<i64>>,
}

/// A renewal that was sent.
#[derive(Debug)]
struct PendingRenewal {
    anchor: Instant,
    requested: Vec<Renewal>,
    /// The rows that were renewed, once the statement is executed.
    renewed: Option<HashSet<i64>>,
}

/// The progress of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementState {
    NotSent,
    Sent,
    Executed,
}

impl StatementState {
    /// Returns the state of a statement; `executed` is `None` if it was not sent.
    fn new(executed: Option<bool>) -> Self {
        match executed {
            None => Self::NotSent,
            Some(false) => Self::Sent,
            Some(true) => Self::Executed,
        }
    }
}

impl Relay {
    pub(super) fn new(owner: u32, clock: Clock, order: Option<OnDead>) -> Self {
        let limits = Limits { order, ..LIMITS };
        let inflight = Some(Arc::new(InFlight::new(limits, &LISTENERS, clock)));
        Self { owner, inflight, ..Self::default() }
    }

    /// Returns the phase of its life cycle; `None` if the process does not run.
    pub(super) fn phase(&self) -> Option<Phase> {
        self.inflight.as_ref().map(|inflight| inflight.phase())
    }

    pub(super) fn claim_state(&self) -> StatementState {
        StatementState::new(self.claim.as_ref().map(|claim| claim.claimed.is_some()))
    }

    pub(super) fn settlement_state(&self) -> StatementState {
        let settlements = self.settlements.as_ref();
        StatementState::new(settlements.map(|settlements| settlements.applied.is_some()))
    }

    pub(super) fn renewal_state(&self) -> StatementState {
        StatementState::new(self.renewal.as_ref().map(|renewal| renewal.renewed.is_some()))
    }

    /// Returns a text that differs whenever the state of the relay does.
    pub(super) fn snapshot(&self) -> String {
        let Self { owner, inflight, writer, calls, claim, settlements, renewal } = self;
        let inflight = inflight.as_ref().map(|inflight| inflight.snapshot());
        let writer = writer.snapshot();
        format!("{owner} {inflight:?} {writer} {calls:?} {claim:?} {settlements:?} {renewal:?}")
    }

    /// Returns whether it has no pending statement, no running call and no open transaction.
    pub(super) fn is_idle(&self) -> bool {
        let idle = self.claim.is_none() && self.settlements.is_none() && self.renewal.is_none();
        idle && self.calls.is_empty() && self.writer.is_idle()
    }
}

impl World {
    pub(super) fn poll(&mut self, index: usize, step: StatementStep) -> bool {
        let now = self.instant();
        let relay = &mut self.relays[index];
        let Some(inflight) = relay.inflight.clone() else { return false };
        match (step, &mut relay.claim) {
            (StatementStep::Send, None) => {
                let budget = inflight.start_claim();
                let full = budget.free_places < budget.worthwhile(BATCH) || budget.bytes == 0;
                if full || inflight.phase() != Phase::Running {
                    return false;
                }
                let is_open =
                    |kind: EventKind| kind.listener().is_none_or(|id| budget.open[id.index()]);
                let request = ClaimRequest {
                    kinds: EventKind::ALL.map(is_open),
                    rows: budget.rows.min(BATCH),
                    bytes: budget.bytes,
                };
                relay.claim = Some(PendingClaim { anchor: now, request, claimed: None });
            }
            (StatementStep::Execute, Some(claim)) if claim.claimed.is_none() => {
                let claimed = self.table.claim(relay.owner, &claim.request, &mut self.ledger);
                claim.claimed = Some(claimed);
            }
            (StatementStep::Receive, Some(PendingClaim { claimed: Some(_), .. })) => {
                if let Some(claim) = relay.claim.take() {
                    let order = self.table.guards.order;
                    for (row, _) in claim.claimed.iter().flat_map(|claimed| &claimed.rows) {
                        if !inflight.knows(row.sequence) {
                            self.ledger.claimed_anew(row.sequence, relay.owner);
                        }
                    }
                    for dead in admit(&inflight, claim, order) {
                        if order == Some(OnDead::Skip) {
                            self.ledger.passed(dead, relay.owner);
                        }
                    }
                }
            }
            (StatementStep::Lose, Some(_)) => {
                if let Some(PendingClaim { request, claimed: None, .. }) = relay.claim.take() {
                    self.late.push(LateStatement::Claim { owner: relay.owner, request });
                }
                self.ledger.redelivery_allowed = true;
            }
            _ => return false,
        }
        true
    }

    pub(super) fn record(&mut self, index: usize, step: StatementStep) -> bool {
        let relay = &mut self.relays[index];
        let Some(inflight) = relay.inflight.clone() else { return false };
        match (step, &mut relay.settlements) {
            (StatementStep::Send, None) => {
                let batch = inflight.take_results(BATCH);
                if batch.is_empty() {
                    return false;
                }
                relay.settlements = Some(PendingSettlements { batch, applied: None, stale: None });
            }
            (
                StatementStep::Execute,
                Some(PendingSettlements { batch, applied: applied @ None, .. }),
            ) => {
                if self.table.is_locked(batch) {
                    return false;
                }
                *applied = Some(self.table.settle_all(relay.owner, batch, &mut self.ledger));
            }
            (
                StatementStep::Reread,
                Some(PendingSettlements { batch, applied: Some(applied), stale }),
            ) if *applied < batch.len() && stale.is_none() => {
                *stale = Some(self.table.stale(batch));
            }
            (
                StatementStep::Receive,
                Some(PendingSettlements { batch, applied: Some(applied), stale }),
            ) if *applied == batch.len() || stale.is_some() => {
                inflight.recorded(std::mem::take(batch), &stale.take().unwrap_or_default());
                relay.settlements = None;
            }
            (StatementStep::Lose, Some(_)) => {
                if let Some(PendingSettlements { batch, applied, .. }) = relay.settlements.take() {
                    if applied.is_none() {
                        let (owner, settlements) = (relay.owner, batch.clone());
                        self.late.push(LateStatement::Settlements { owner, settlements });
                    }
                    inflight.put_back(batch);
                }
                self.ledger.redelivery_allowed = true;
            }
            _ => return false,
        }
        true
    }

    pub(super) fn renew(&mut self, index: usize, step: StatementStep) -> bool {
        let now = self.instant();
        let relay = &mut self.relays[index];
        let Some(inflight) = relay.inflight.clone() else { return false };
        match (step, &mut relay.renewal) {
            (StatementStep::Send, None) => {
                let mut requested = inflight.to_renew();
                if requested.is_empty() {
                    return false;
                }
                requested.sort_unstable_by_key(|row| row.sequence);
                relay.renewal = Some(PendingRenewal { anchor: now, requested, renewed: None });
            }
            (
                StatementStep::Execute,
                Some(PendingRenewal { requested, renewed: renewed @ None, .. }),
            ) => {
                *renewed = Some(self.table.renew(relay.owner, requested, &mut self.ledger));
            }
            (
                StatementStep::Receive,
                Some(PendingRenewal { anchor, requested, renewed: Some(renewed) }),
            ) => {
                inflight.renewed(*anchor, requested, renewed);
                relay.renewal = None;
            }
            (StatementStep::Lose, Some(_)) => {
                if let Some(PendingRenewal { requested, renewed: None, .. }) = relay.renewal.take()
                {
                    self.late.push(LateStatement::Renewal { owner: relay.owner, requested });
                }
                self.ledger.redelivery_allowed = true;
            }
            _ => return false,
        }
        true
    }

    pub(super) fn release_overdue(&mut self, index: usize) -> bool {
        let Some(inflight) = &self.relays[index].inflight else { return false };
        let overdue = inflight.overdue();
        overdue.given_back > 0 || !overdue.running.is_empty()
    }

    pub(super) fn lifecycle(&mut self, index: usize, step: LifecycleStep) -> bool {
        let relay = &self.relays[index];
        match (step, &relay.inflight, relay.phase()) {
            (LifecycleStep::Pause, Some(inflight), Some(Phase::Running)) => {
                inflight.enter(Phase::Paused);
                inflight.give_back_waiting();
            }
            (LifecycleStep::Resume, Some(inflight), Some(Phase::Paused)) => {
                inflight.enter(Phase::Running)
            }
            (LifecycleStep::Drain, Some(inflight), Some(Phase::Running | Phase::Paused)) => {
                inflight.enter(Phase::Draining);
            }
            // A shutdown waits for pending statements and calls, but not for writers.
            (LifecycleStep::Close, Some(inflight), Some(Phase::Draining))
                if relay.claim.is_none() && relay.renewal.is_none() && relay.calls.is_empty() =>
            {
                inflight.enter(Phase::Closed);
                inflight.give_back_waiting();
            }
            (LifecycleStep::Crash, Some(_), _) => self.crash(index),
            (LifecycleStep::Restart, Some(inflight), Some(Phase::Closed)) => {
                if inflight.len() == 0 && relay.is_idle() {
                    self.check_shutdown(index);
                } else {
                    self.crash(index);
                }
                self.restart(index);
            }
            (LifecycleStep::Restart, None, _) => self.restart(index),
            _ => return false,
        }
        true
    }

    fn restart(&mut self, index: usize) {
        self.owners += 1;
        let order = self.table.guards.order;
        self.relays[index] = Relay::new(self.owners, self.clock(), order);
    }

    /// Ends the process without a shutdown; the database may still execute its statements.
    fn crash(&mut self, index: usize) {
        self.ledger.redelivery_allowed = true;
        self.abandon_transaction(index);
        self.abandon_calls(index);
        let relay = std::mem::take(&mut self.relays[index]);
        let owner = relay.owner;
        if let Some(PendingClaim { request, claimed: None, .. }) = relay.claim {
            self.late.push(LateStatement::Claim { owner, request });
        }
        if let Some(PendingSettlements { batch, applied: None, .. }) = relay.settlements {
            self.late.push(LateStatement::Settlements { owner, settlements: batch });
        }
        if let Some(PendingRenewal { requested, renewed: None, .. }) = relay.renewal {
            self.late.push(LateStatement::Renewal { owner, requested });
        }
    }

    /// Checks that no row stays claimed by a node that was shut down, unless a response was lost.
    fn check_shutdown(&mut self, index: usize) {
        let owner = Some(self.relays[index].owner);
        let left = self.table.rows.iter().find(|(_, row)| row.owner == owner);
        let lost_response = self.ledger.redelivery_allowed || !self.late.is_empty();
        if let (Some((row, _)), false) = (left, lost_response) {
            let row = *row;
            self.ledger.fail(|| format!("row {row}: still claimed by a node that was shut down"));
        }
    }
}

/// Takes in claimed rows as the poller does. Returns those that have lost too many owners.
fn admit(inflight: &InFlight, claim: PendingClaim, order: Option<OnDead>) -> Vec<i64> {
    let Claimed { rows, excess } = claim.claimed.unwrap_or_default();
    for (sequence, token) in excess {
        inflight.settle(sequence, token, Verdict::Released, claim.anchor);
    }
    let (rows, kinds): (Vec<Claim>, Vec<EventKind>) = rows.into_iter().unzip();
    let (mut admitted, mut dead) = (Vec::new(), Vec::new());
    for ((row, verdict), kind) in takeover::judge(rows, order).into_iter().zip(kinds) {
        match verdict {
            Some(verdict) => {
                dead.extend(matches!(verdict, Verdict::Dead { .. }).then_some(row.sequence));
                let aggregate = order.and_then(|_| AggregateKey::of(&row.envelope, &row.recipient));
                let (sequence, token) = (row.sequence, row.token);
                inflight.settle_in_run(aggregate, sequence, token, verdict, claim.anchor);
            }
            None => admitted.push((row, kind.listener())),
        }
    }
    inflight.admit(admitted, claim.anchor);
    dead
}
