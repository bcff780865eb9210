//! Outboxes of this process that share a table.
//!
//! Two outboxes on one table claim its rows from each other. That is what two nodes do, and nothing is wrong with it as
//! long as both would call the same listener. If they would not, each event reaches one of the two listeners by chance,
//! and the other one never hears of it. So a start is refused if a running outbox of this process handles the same
//! event with another listener.
//!
//! Listeners are the same if they are declared at the same place. Other processes are not known here: in a rolling
//! deployment they may well run another version of a listener.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::StartFault;
use crate::listener::Listeners;
use crate::store::{Table, TableIdentity};

/// The running outboxes with a relay.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// Any more are not compared.
const MAX_RUNNING: usize = 10_000;

struct Running {
    id: u64,
    table: TableIdentity,
    listeners: Arc<Listeners>,
}

fn running() -> MutexGuard<'static, Vec<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an outbox among the running ones, until it is shut down or dropped.
#[derive(Debug)]
pub(super) struct Registration {
    id: u64,
}

impl Registration {
    /// Adds an outbox.
    ///
    /// # Errors
    /// Returns the conflicts of its listeners with those of running outboxes on the same table.
    pub(super) fn new(
        name: &Table,
        table: TableIdentity,
        listeners: &Arc<Listeners>,
    ) -> Result<Self, Vec<StartFault>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut running = running();
        let others = running.iter().filter(|other| other.table == table);
        let faults: Vec<StartFault> =
            others.flat_map(|other| conflicts(name, listeners, &other.listeners)).collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        if running.len() < MAX_RUNNING {
            running.push(Running { id, table, listeners: Arc::clone(listeners) });
        }
        Ok(Self { id })
    }

    /// Removes the outbox: it delivers no more.
    pub(super) fn end(&self) {
        running().retain(|other| other.id != self.id);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns a fault for every two listeners that handle the same event.
fn conflicts(table: &Table, ours: &Listeners, theirs: &Listeners) -> Vec<StartFault> {
    let mut faults = Vec::new();
    for listener in ours.iter() {
        // Two listeners may share several names; one fault is enough.
        let mut reported = Vec::new();
        for (aggregate, event) in listener.keys() {
            let Some(other) = theirs.find(aggregate, event) else { continue };
            if other.place() == listener.place() || reported.contains(&other.place()) {
                continue;
            }
            reported.push(other.place());
            faults.push(StartFault::SharedTable {
                table: table.clone(),
                aggregate: aggregate.to_owned(),
                event: event.to_owned(),
                running: other.name().to_owned(),
                running_place: other.place(),
                listener: listener.name().to_owned(),
                place: listener.place(),
            });
        }
    }
    faults
}
