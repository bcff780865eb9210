//! Two relays, their writers and one table.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::guards::Guards;
use super::late::LateStatement;
use super::ledger::Ledger;
use super::relay::Relay;
use super::step::{LateStep, Step, TimeSpan};
use super::table::Table;
use crate::clock::Clock;

/// The state of a simulation.
#[derive(Debug)]
pub(super) struct World {
    pub(super) table: Table,
    pub(super) ledger: Ledger,
    pub(super) relays: [Relay; 2],
    pub(super) late: Vec<LateStatement>,
    /// The number of owner ids that were used.
    pub(super) owners: u32,
    start: Instant,
    now: Arc<Mutex<Instant>>,
}

impl World {
    /// Returns an empty table with two relays; time starts at `start`.
    pub(super) fn new(guards: Guards, start: Instant) -> Self {
        let now = Arc::new(Mutex::new(start));
        let order = guards.order;
        let relay = |owner| Relay::new(owner, Clock::Simulated(Arc::clone(&now)), order);
        Self {
            table: Table::new(guards),
            ledger: Ledger::default(),
            relays: [relay(1), relay(2)],
            late: Vec::new(),
            owners: 2,
            start,
            now,
        }
    }

    pub(super) fn clock(&self) -> Clock {
        Clock::Simulated(Arc::clone(&self.now))
    }

    pub(super) fn instant(&self) -> Instant {
        self.start + self.table.now
    }

    /// Applies a step and checks the invariants. Returns `false` if the step is not possible now; nothing has
    /// changed then.
    pub(super) fn apply(&mut self, step: Step) -> bool {
        let applied = match step {
            Step::Write(relay, step) => self.write(relay, step),
            Step::Poll(relay, step) => self.poll(relay, step),
            Step::Record(relay, step) => self.record(relay, step),
            Step::Renew(relay, step) => self.renew(relay, step),
            Step::Start(relay) => self.start(relay),
            Step::End(relay, call, ending) => self.end(relay, call, ending),
            Step::Acknowledge(relay, call, step) => self.acknowledge(relay, call, step),
            Step::ReleaseOverdue(relay) => self.release_overdue(relay),
            Step::Lifecycle(relay, step) => self.lifecycle(relay, step),
            Step::Late(index, step) => self.late(index, step),
            Step::Replay(sequence) => self.table.replay(sequence, &mut self.ledger),
            Step::Purge => self.table.purge(),
            Step::Advance(span) => self.advance(span),
        };
        if applied {
            if let Some(relay) = step.relay() {
                self.check_counters(relay);
            }
            self.check_invariants();
        }
        applied
    }

    fn late(&mut self, index: usize, step: LateStep) -> bool {
        if self.late.get(index).is_none_or(|statement| statement.is_blocked(&self.table)) {
            return false;
        }
        let statement = self.late.remove(index);
        match step {
            LateStep::Execute => statement.execute(&mut self.table, &mut self.ledger),
            LateStep::Discard => {
                self.ledger.redelivery_allowed = true;
                statement.discard(&mut self.table, &mut self.ledger);
            }
        }
        true
    }

    fn advance(&mut self, span: TimeSpan) -> bool {
        self.table.now += span.length();
        *self.now.lock().unwrap() = self.start + self.table.now;
        let now = self.table.now;
        let expired = self.table.rows.values().any(|row| row.owner.is_some() && row.due <= now);
        self.ledger.redelivery_allowed |= expired;
        true
    }

    /// Checks that the counters of a relay match its rows.
    fn check_counters(&mut self, relay: usize) {
        let relay = &self.relays[relay];
        if let Some(Err(fault)) =
            relay.inflight.as_ref().map(|inflight| inflight.audit(&relay.writer.permits()))
        {
            self.ledger.fail(|| format!("wrong counters of node {}: {fault}", relay.owner));
        }
    }

    /// Checks what must hold after every step.
    fn check_invariants(&mut self) {
        self.ledger.check_statuses(&self.table);
        let now = self.instant();
        let mut leased = Vec::new();
        for relay in &self.relays {
            let Some(inflight) = &relay.inflight else { continue };
            for lease in inflight.assumed_leases() {
                let row = lease.sequence;
                if lease.until <= now {
                    continue;
                }
                if leased.contains(&row) {
                    self.ledger.fail(|| format!("row {row}: both relays assume a lease"));
                }
                leased.push(row);
                // The transaction of its listener has settled it.
                if self.ledger.has_ended(row) {
                    continue;
                }
                let found = self.table.rows.get(&row);
                let until = lease.until.duration_since(self.start);
                let has_lease = found.is_some_and(|found| {
                    let is_owner = found.owner == Some(relay.owner) && found.token == lease.token;
                    is_owner && until <= found.due
                });
                if !has_lease {
                    self.ledger.fail(|| {
                        let found = found.map(ToString::to_string).unwrap_or_default();
                        let owner = relay.owner;
                        format!(
                            "row {row}: node {owner} assumes a lease until {until:?}, but the row is {found}"
                        )
                    });
                }
            }
        }
    }

    /// Returns whether a row is due.
    pub(super) fn is_due(&self) -> bool {
        let now = self.table.now;
        let mut rows = self.table.rows.values();
        rows.any(|row| row.committed && !row.status.is_terminal() && row.due <= now)
    }

    /// Returns how much time has passed.
    pub(super) fn elapsed(&self) -> Duration {
        self.table.now
    }
}
