//! The transactions of a process that writes events.

use super::late::Late;
use super::step::Write;
use super::world::World;
use super::{BYTES, Kind};
use crate::inflight::Permit;
use crate::store::{Settlement, Verdict};

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
    seat: Option<Permit>,
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
        let seated = |seat: &Option<Permit>| seat.is_some();
        let next = open.next.as_ref().map(|(kind, seat)| (kind, seated(seat)));
        let inserted: Vec<_> = open
            .inserted
            .iter()
            .map(|inserted| (inserted.sequence, seated(&inserted.seat)))
            .collect();
        format!("{next:?} {inserted:?} {}", open.committed)
    }

    /// The listener of each seat that waits for its row, and its bytes.
    pub(super) fn seats(&self) -> Vec<(Option<usize>, usize)> {
        let Some(open) = &self.open else { return Vec::new() };
        let next = open.next.iter().map(|(kind, seat)| (kind, seat));
        let inserted = open.inserted.iter().map(|inserted| (&inserted.kind, &inserted.seat));
        let seats = next.chain(inserted).filter(|(_, seat)| seat.is_some());
        seats.map(|(kind, _)| (kind.group(), BYTES)).collect()
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
                let seats = open.inserted.iter().filter(|inserted| inserted.seat.is_some());
                let seat = inflight.reserve(BYTES, kind.group(), seats.count()).ok();
                open.next = Some((kind, seat));
            }
            Write::Insert => {
                let Some((kind, mut seat)) = open.next.take() else { return false };
                let seated = seat.as_ref().map(|_| owner);
                let sequence = self.table.insert(kind, seated, &mut self.ledger);
                if !self.table.guards.after_commit
                    && let Some(seat) = seat.take()
                {
                    seat.take(sequence, Kind::event());
                }
                open.inserted.push(Inserted { sequence, kind, seat });
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
                let seated = open
                    .inserted
                    .into_iter()
                    .filter_map(|inserted| Some((inserted.sequence, inserted.seat?)));
                let late: Vec<Settlement> = seated
                    .filter_map(|(sequence, seat)| {
                        let taken = seat.take(sequence, Kind::event());
                        let result = Verdict::Released;
                        (!taken).then_some(Settlement { sequence, token: 1, result })
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
