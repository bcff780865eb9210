//! A simulation of the relay: schedules that no clock and no network would ever produce, and what must
//! hold in all of them.
//!
//! # Layout
//! What is tried out is real: [`InFlight`](crate::inflight::InFlight), the decision that follows from a listener's
//! answer, the verdict on events that lose their owners, the changes of status. Only the table is a
//! model: `table` has the rows and does what the statements do, with `guards` that can be switched off
//! one by one. `relay` is a node with its statements on their way, `writer` the transactions of its
//! process, `late` what the database may still do for a client that has gone. A schedule is a list of
//! `step`s; `world` takes them and `ledger` knows what has truly happened, so that each step can be
//! judged. `settle` lets the faults end and looks at what is left. `random`, `crash` and `exhaustive`
//! make schedules, `shrink` makes a failing one short and tells it, and `power` shows that each guard
//! is missed.

mod guards;
mod late;
mod ledger;
mod listen;
mod relay;
mod settle;
mod step;
mod table;
mod world;
mod writer;

mod crash;
mod exhaustive;
mod power;
mod random;
mod shrink;

use std::sync::OnceLock;
use std::time::Duration;

use crate::event::EventEnvelope;
use crate::inflight::{ConcurrencyLimit, LeaseTiming, Limits};
use crate::listener::ListenerId;
use crate::retry::RetryPolicy;

const LEASE: Duration = Duration::from_secs(30);

/// Narrow, so that every bound is met.
const LIMITS: Limits = Limits {
    workers: 4,
    hot: 8,
    hot_per_transaction: 2,
    cold: 4,
    batch: BATCH,
    bytes: 5 * BYTES,
    results: 4,
    lease: LeaseTiming::new(LEASE),
    suspects: 2,
    transactions: 2,
};

/// One listener of each kind.
const LISTENERS: [ConcurrencyLimit; 4] = [
    ConcurrencyLimit { calls: None, in_tx: false },
    ConcurrencyLimit { calls: Some(1), in_tx: false },
    ConcurrencyLimit { calls: None, in_tx: true },
    ConcurrencyLimit { calls: Some(1), in_tx: true },
];

const MAX_ATTEMPTS: u32 = 3;

/// The most rows of one claim, and the most results of one statement.
const BATCH: usize = 3;

/// The size of every payload.
const BYTES: usize = 10;

/// Which listener an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Plain,
    Limited,
    InTx,
    LimitedInTx,
    /// No listener handles it.
    Unroutable,
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::Plain, Self::Limited, Self::InTx, Self::LimitedInTx, Self::Unroutable];

    fn listener(self) -> Option<ListenerId> {
        (self != Self::Unroutable).then_some(ListenerId::new(self as usize))
    }

    fn in_tx(self) -> bool {
        matches!(self, Self::InTx | Self::LimitedInTx)
    }

    /// An event of this kind. They differ by nothing else.
    fn event() -> EventEnvelope {
        static EVENT: OnceLock<EventEnvelope> = OnceLock::new();
        let payload = || format!("\"{}\"", "x".repeat(BYTES - 2));
        EVENT.get_or_init(|| EventEnvelope::json("A", payload()).unwrap()).clone()
    }
}

/// A second for each failure.
struct Steady;

impl RetryPolicy for Steady {
    fn delay(&self, failures: u32) -> Duration {
        Duration::from_secs(failures.into())
    }
}

/// How many schedules are run: the long run is the proof, the short one keeps it.
fn schedules(short: u64, long: u64) -> u64 {
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { long } else { short }
}
