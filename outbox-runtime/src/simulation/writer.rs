//! The transactions of a process that writes events.

use super::late::Late;
use super::step::Write;
use super::world::World;
use super::{BYTES, Kind};
use crate::event::Verdict;
use crate::inflight::{Permit, Redeemed};
use crate::listener::ListenerId;
use crate::store::Settlement;

/// The most events of one transaction.
const EVENTS: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Writer {
    open: Option<Transaction>,
}

#[derive(Debug, Default)]
struct Transaction {
    /// What is about to be inserted.
    next: Option<(Kind, Option<Permit>)>,
    inserted: Vec<Inserted>,
    committed: bool,
}

#[derive(Debug)]
struct Inserted {
    sequence: i64,
    kind: Kind,
    permit: Option<Permit>,
}

impl Transaction {
    fn rows(&self) -> Vec<i64> {
        self.inserted.iter().map(|inserted| inserted.sequence).collect()
    }
}

/// How far a transaction has come.
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

    /// Its transaction, in words.
    pub(super) fn portrait(&self) -> String {
        let Some(open) = &self.open else { return String::new() };
        let permitted = |permit: &Option<Permit>| permit.is_some();
        let next = open.next.as_ref().map(|(kind, permit)| (kind, permitted(permit)));
        let inserted: Vec<_> = open
            .inserted
            .iter()
            .map(|inserted| (inserted.sequence, permitted(&inserted.permit)))
            .collect();
        format!("{next:?} {inserted:?} {}", open.committed)
    }

    /// The listener of each permit that waits for its row, and its bytes.
    pub(super) fn permits(&self) -> Vec<(Option<ListenerId>, usize)> {
        let Some(open) = &self.open else { return Vec::new() };
        let next = open.next.iter().map(|(kind, permit)| (kind, permit));
        let inserted = open.inserted.iter().map(|inserted| (&inserted.kind, &inserted.permit));
        let permits = next.chain(inserted).filter(|(_, permit)| permit.is_some());
        permits.map(|(kind, _)| (kind.listener(), BYTES)).collect()
    }
}

impl World {
    pub(super) fn write(&mut self, relay: usize, write: Write) -> bool {
        let (owner, inflight) = (self.relays[relay].owner, self.relays[relay].inflight.clone());
        let Some(inflight) = inflight else { return false };
        let writer = &mut self.relays[relay].writer;
        let Some(open) = &mut writer.open else {
            if write == Write::Begin {
                writer.open = Some(Transaction::default());
            }
            return write == Write::Begin;
        };
        match write {
            Write::Begin => return false,
            Write::Reserve(kind) => {
                if open.next.is_some() || open.committed || open.inserted.len() >= EVENTS {
                    return false;
                }
                let permits = open.inserted.iter().filter(|inserted| inserted.permit.is_some());
                let permit = inflight.reserve(BYTES, kind.listener(), permits.count()).ok();
                open.next = Some((kind, permit));
            }
            Write::Insert => {
                let Some((kind, mut permit)) = open.next.take() else { return false };
                let permitted = permit.as_ref().map(|_| owner);
                let sequence = self.table.insert(kind, permitted, &mut self.ledger);
                if !self.table.guards.after_commit
                    && let Some(permit) = permit.take()
                {
                    let _ = permit.redeem(sequence, Kind::event());
                }
                open.inserted.push(Inserted { sequence, kind, permit });
            }
            Write::Commit => {
                if open.next.is_some() || open.committed || open.inserted.is_empty() {
                    return false;
                }
                open.committed = true;
                self.table.end(&open.rows(), true, &mut self.ledger);
            }
            Write::Acknowledge => {
                let Some(open) = writer.open.take_if(|open| open.committed) else { return false };
                let permitted = open
                    .inserted
                    .into_iter()
                    .filter_map(|inserted| Some((inserted.sequence, inserted.permit?)));
                let late: Vec<Settlement> = permitted
                    .filter_map(|(sequence, permit)| {
                        let redeemed = permit.redeem(sequence, Kind::event());
                        let verdict = Verdict::Released;
                        let late = Settlement { sequence, token: 1, verdict };
                        (redeemed == Redeemed::Closed).then_some(late)
                    })
                    .collect();
                if !late.is_empty() {
                    self.late.push(Late::Results { owner, results: late });
                }
            }
            Write::Rollback => {
                let Some(open) = writer.open.take_if(|open| !open.committed) else { return false };
                self.table.end(&open.rows(), false, &mut self.ledger);
            }
            Write::Lose => {
                if open.inserted.is_empty() {
                    return false;
                }
                self.ledger.disturbed = true;
                self.abandon_transaction(relay);
            }
        }
        true
    }

    /// The client of a transaction is gone, or no longer waits for its commit.
    pub(super) fn abandon_transaction(&mut self, relay: usize) {
        if let Some(open) = self.relays[relay].writer.open.take()
            && !open.committed
        {
            self.late.push(Late::Commit { rows: open.rows() });
        }
    }
}
