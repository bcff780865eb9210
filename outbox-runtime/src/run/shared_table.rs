//! Outboxes of this process that share a table.
//!
//! Two outboxes on one table claim its rows from each other. That is what two nodes do, and nothing is wrong with it as
//! long as both would call the same listener. If they would not, each event reaches one of the two listeners by chance,
//! and the other one never hears of it. So a start is refused if a running outbox of this process handles the same
//! event with another listener, or delivers in another order.
//!
//! Listeners are the same if they are declared at the same place. Other processes are not known here: in a rolling
//! deployment they may well run another version of a listener.

use std::sync::atomic::{self, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Config, Relay};
use crate::error::StartFault;
use crate::listener::{Listeners, Place};
use crate::store::{Table, TableIdentity};

/// The running outboxes with a relay.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// Any more are not compared.
const MAX_RUNNING: usize = 10_000;

struct Running {
    id: u64,
    table: TableIdentity,
    listeners: Arc<Listeners>,
    config: Config,
    /// Where its builder was made.
    place: Place,
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
        (config, place): (&Config, Place),
    ) -> Result<Self, Vec<StartFault>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut running = running();
        let others = running.iter().filter(|other| other.table == table);
        let mut faults = Vec::new();
        for other in others {
            faults.extend(conflicts(name, listeners, &other.listeners));
            let (table, running_place) = (name.clone(), other.place);
            let (order, running) = (config.order, other.config.order);
            let (relay, running_relay) = (relaying(config), relaying(&other.config));
            if order != running {
                faults.push(StartFault::DifferentOrder {
                    table,
                    running,
                    running_place,
                    order,
                    place,
                });
            } else if relay != running_relay {
                faults.push(StartFault::DifferentRelay {
                    table,
                    running: running_relay,
                    running_place,
                    relay,
                    place,
                });
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let id = NEXT.fetch_add(1, atomic::Ordering::Relaxed);
        if running.len() < MAX_RUNNING {
            let (listeners, config) = (Arc::clone(listeners), config.clone());
            running.push(Running { id, table, listeners, config, place });
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

/// Says who may deliver at the same time, for a message.
fn relaying(config: &Config) -> &'static str {
    match config.relay {
        Relay::Shared => "a shared relay",
        Relay::SingleActive if config.is_in_sequence() => "strictly ordered events",
        Relay::SingleActive => "a single active relay",
    }
}

/// Returns a fault for every two listeners that handle the same event.
fn conflicts(table: &Table, ours: &Listeners, theirs: &Listeners) -> Vec<StartFault> {
    let mut faults = Vec::new();
    for listener in ours.iter() {
        // Two listeners may share several names; one fault is enough.
        let mut reported = Vec::new();
        for (aggregate, event) in listener.keys() {
            let other = theirs.find_named(listener.subscription(), aggregate, event);
            let Some(other) = other else { continue };
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
