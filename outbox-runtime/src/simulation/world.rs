//! Two relays, their writers and one table.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::guards::Guards;
use super::late::Late;
use super::ledger::Ledger;
use super::relay::Relay;
use super::step::{self, Span, Step};
use super::table::Table;
use crate::clock::Clock;

#[derive(Debug)]
pub(super) struct World {
    pub(super) table: Table,
    pub(super) ledger: Ledger,
    pub(super) relays: [Relay; 2],
    pub(super) late: Vec<Late>,
    /// How many there have been.
    pub(super) owners: u32,
    began: Instant,
    now: Arc<Mutex<Instant>>,
}

impl World {
    /// A world that begins at a moment.
    pub(super) fn new(guards: Guards, began: Instant) -> Self {
        let now = Arc::new(Mutex::new(began));
        let relay = |owner| Relay::started(owner, Clock::Simulated(Arc::clone(&now)));
        Self {
            table: Table::new(guards),
            ledger: Ledger::default(),
            relays: [relay(1), relay(2)],
            late: Vec::new(),
            owners: 2,
            began,
            now,
        }
    }

    pub(super) fn clock(&self) -> Clock {
        Clock::Simulated(Arc::clone(&self.now))
    }

    pub(super) fn instant(&self) -> Instant {
        self.began + self.table.now
    }

    /// Takes a step and judges what came of it; `false` if it makes no sense now, and nothing was done.
    pub(super) fn take(&mut self, step: Step) -> bool {
        let taken = match step {
            Step::Write(relay, write) => self.write(relay, write),
            Step::Poll(relay, exchange) => self.poll(relay, exchange),
            Step::Record(relay, exchange) => self.record(relay, exchange),
            Step::Renew(relay, exchange) => self.renew(relay, exchange),
            Step::Start(relay) => self.start(relay),
            Step::End(relay, call, ending) => self.end(relay, call, ending),
            Step::Acknowledge(relay, call, ack) => self.acknowledge(relay, call, ack),
            Step::Overdue(relay) => self.overdue(relay),
            Step::Life(relay, life) => self.live(relay, life),
            Step::Late(index, late) => self.late(index, late),
            Step::Replay(sequence) => self.table.replay(sequence, &mut self.ledger),
            Step::Purge => self.table.purge(),
            Step::Pass(span) => self.pass(span),
        };
        if taken {
            if let Some(relay) = step.relay() {
                self.audit(relay);
            }
            self.judge();
        }
        taken
    }

    fn late(&mut self, index: usize, late: step::Late) -> bool {
        if self.late.get(index).is_none_or(|late| late.is_blocked(&self.table)) {
            return false;
        }
        let statement = self.late.remove(index);
        match late {
            step::Late::Happens => statement.happens(&mut self.table, &mut self.ledger),
            step::Late::Never => {
                self.ledger.disturbed = true;
                statement.never(&mut self.table, &mut self.ledger);
            }
        }
        true
    }

    fn pass(&mut self, span: Span) -> bool {
        self.table.now += span.length();
        *self.now.lock().unwrap() = self.began + self.table.now;
        let now = self.table.now;
        let expired = self.table.rows.values().any(|row| row.owner.is_some() && row.due <= now);
        self.ledger.disturbed |= expired;
        true
    }

    /// The books of a relay are in order.
    fn audit(&mut self, relay: usize) {
        let relay = &self.relays[relay];
        if let Some(Err(what)) =
            relay.inflight.as_ref().map(|inflight| inflight.audit(&relay.writer.permits()))
        {
            self.ledger.fail(|| format!("the books of {} are wrong: {what}", relay.owner));
        }
    }

    /// What must hold after every step.
    fn judge(&mut self) {
        self.ledger.compare(&self.table);
        let now = self.instant();
        let mut valid = Vec::new();
        for relay in &self.relays {
            let Some(inflight) = &relay.inflight else { continue };
            for belief in inflight.beliefs() {
                let row = belief.sequence;
                if belief.lease_until <= now {
                    continue;
                }
                if valid.contains(&row) {
                    self.ledger.fail(|| format!("row {row}: both relays have a lease"));
                }
                valid.push(row);
                // It was marked in the transaction of its listener.
                if self.ledger.has_ended(row) {
                    continue;
                }
                let found = self.table.rows.get(&row);
                let until = belief.lease_until.duration_since(self.began);
                let true_to_table = found.is_some_and(|found| {
                    let ours = found.owner == Some(relay.owner) && found.token == belief.token;
                    ours && until <= found.due
                });
                if !true_to_table {
                    self.ledger.fail(|| {
                        let found = found.map(ToString::to_string).unwrap_or_default();
                        let owner = relay.owner;
                        format!("row {row}: {owner} believes in {until:?}, and it is {found}")
                    });
                }
            }
        }
    }

    /// Whether there is something to claim.
    pub(super) fn is_due(&self) -> bool {
        let now = self.table.now;
        let mut rows = self.table.rows.values();
        rows.any(|row| row.committed && !row.status.is_terminal() && row.due <= now)
    }

    /// How much time has passed.
    pub(super) fn elapsed(&self) -> Duration {
        self.table.now
    }
}
