//! The transactions of a process that writes events.

use super::late::LateStatement;
use super::step::WriteStep;
use super::world::World;
use super::{BYTES, EventKind, envelope};
use crate::event::Verdict;
use crate::inflight::{Permit, Redeemed};
use crate::listener::ListenerId;
use crate::store::Settlement;

/// The maximum number of events in one transaction.
const EVENTS: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Writer {
    open: Option<Transaction>,
}

#[derive(Debug, Default)]
struct Transaction {
    /// The event to be inserted next.
    next: Option<(EventKind, Option<Permit>)>,
    inserted: Vec<Inserted>,
    committed: bool,
}

#[derive(Debug)]
struct Inserted {
    sequence: i64,
    kind: EventKind,
    permit: Option<Permit>,
}

impl Transaction {
    fn rows(&self) -> Vec<i64> {
        self.inserted.iter().map(|inserted| inserted.sequence).collect()
    }
}

/// The progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Open,
    Committed,
}

impl Writer {
    pub(super) fn stage(&self) -> Stage {
        match &self.open {
            None => Stage::Idle,
            Some(Transaction { committed: true, .. }) => Stage::Committed,
            Some(_) => Stage::Open,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.open.is_none()
    }

    /// Returns a text that differs whenever the state of the transaction does.
    pub(super) fn snapshot(&self) -> String {
        let Some(open) = &self.open else { return String::new() };
        let has_permit = |permit: &Option<Permit>| permit.is_some();
        let next = open.next.as_ref().map(|(kind, permit)| (kind, has_permit(permit)));
        let inserted: Vec<_> = open
            .inserted
            .iter()
            .map(|inserted| (inserted.sequence, has_permit(&inserted.permit)))
            .collect();
        format!("{next:?} {inserted:?} {}", open.committed)
    }

    /// Returns the listener and the bytes of each permit that is not redeemed.
    pub(super) fn permits(&self) -> Vec<(Option<ListenerId>, usize)> {
        let Some(open) = &self.open else { return Vec::new() };
        let next = open.next.iter().map(|(kind, permit)| (kind, permit));
        let inserted = open.inserted.iter().map(|inserted| (&inserted.kind, &inserted.permit));
        let permits = next.chain(inserted).filter(|(_, permit)| permit.is_some());
        permits.map(|(kind, _)| (kind.listener(), BYTES)).collect()
    }
}

impl World {
    pub(super) fn write(&mut self, relay: usize, step: WriteStep) -> bool {
        let (owner, inflight) = (self.relays[relay].owner, self.relays[relay].inflight.clone());
        let Some(inflight) = inflight else { return false };
        let writer = &mut self.relays[relay].writer;
        let Some(open) = &mut writer.open else {
            if step == WriteStep::Begin {
                writer.open = Some(Transaction::default());
            }
            return step == WriteStep::Begin;
        };
        match step {
            WriteStep::Begin => return false,
            WriteStep::Reserve(kind) => {
                if open.next.is_some() || open.committed || open.inserted.len() >= EVENTS {
                    return false;
                }
                let permits = open.inserted.iter().filter(|inserted| inserted.permit.is_some());
                // Which aggregate an event has is known when it is inserted, so none takes the hot queue in order.
                let permit = match self.table.guards.order {
                    None => inflight.reserve(BYTES, kind.listener(), permits.count()).ok(),
                    Some(_) => None,
                };
                open.next = Some((kind, permit));
            }
            WriteStep::Insert => {
                let Some((kind, mut permit)) = open.next.take() else { return false };
                let permit_owner = permit.as_ref().map(|_| owner);
                let sequence = self.table.insert(kind, permit_owner, &mut self.ledger);
                if !self.table.guards.redeemed_after_commit
                    && let Some(permit) = permit.take()
                {
                    let _ = permit.redeem(sequence, envelope(sequence));
                }
                open.inserted.push(Inserted { sequence, kind, permit });
            }
            WriteStep::Commit => {
                if open.next.is_some() || open.committed || open.inserted.is_empty() {
                    return false;
                }
                open.committed = true;
                self.table.end_transaction(&open.rows(), true, &mut self.ledger);
            }
            WriteStep::Acknowledge => {
                let Some(open) = writer.open.take_if(|open| open.committed) else { return false };
                let permitted = open
                    .inserted
                    .into_iter()
                    .filter_map(|inserted| Some((inserted.sequence, inserted.permit?)));
                let settlements: Vec<Settlement> = permitted
                    .filter_map(|(sequence, permit)| {
                        let redeemed = permit.redeem(sequence, envelope(sequence));
                        let verdict = Verdict::Released;
                        let settlement = Settlement { sequence, token: 1, verdict, history: None };
                        (redeemed == Redeemed::Closed).then_some(settlement)
                    })
                    .collect();
                if !settlements.is_empty() {
                    self.late.push(LateStatement::Settlements { owner, settlements });
                }
            }
            WriteStep::Rollback => {
                let Some(open) = writer.open.take_if(|open| !open.committed) else { return false };
                self.table.end_transaction(&open.rows(), false, &mut self.ledger);
            }
            WriteStep::Lose => {
                if open.inserted.is_empty() {
                    return false;
                }
                self.ledger.redelivery_allowed = true;
                self.abandon_transaction(relay);
            }
        }
        true
    }

    /// Stops waiting for the end of an open transaction; the database may still commit it.
    pub(super) fn abandon_transaction(&mut self, relay: usize) {
        if let Some(open) = self.relays[relay].writer.open.take()
            && !open.committed
        {
            self.late.push(LateStatement::Commit { rows: open.rows() });
        }
    }
}
