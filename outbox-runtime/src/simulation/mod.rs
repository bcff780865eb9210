//! A deterministic simulation of two relays on one table.
//!
//! It runs schedules that real clocks and networks rarely produce, and checks invariants after every step.
//!
//! # Layout
//! The tested code is real: [`InFlight`](crate::inflight::InFlight), the decision that follows from a listener's
//! answer, the verdict on events that lose their owners, and the changes of status. Only the table is a model:
//! `table` has the rows and does what the statements do, with `guards` that can be switched off one by one.
//! `relay` is a node with its pending statements, `call` its calls of listeners, `writer` the transactions of its
//! process, and `late` the statements that the database may still execute after their client has disconnected.
//!
//! A schedule is a list of `step`s. `world` applies them, and `ledger` records what has actually happened, so that
//! each step can be checked. `quiesce` stops the faults and checks the end of every event. `random`, `crash` and
//! `exhaustive` generate schedules, `shrink` shortens and prints a failing one, and `mutation` shows that each
//! guard is needed.

mod call;
mod guards;
mod late;
mod ledger;
mod quiesce;
mod relay;
mod step;
mod table;
mod world;
mod writer;

mod crash;
mod exhaustive;
mod mutation;
mod random;
mod shrink;

use std::sync::OnceLock;
use std::time::Duration;

use crate::event::EventEnvelope;
use crate::inflight::{ConcurrencyLimit, LeaseTiming, Limits};
use crate::listener::ListenerId;
use crate::retry::{FailedAttempt, Retry, RetryPolicy};

const LEASE: Duration = Duration::from_secs(30);

/// Small numbers, so that schedules reach every limit.
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

/// One listener for each combination of options.
const LISTENERS: [ConcurrencyLimit; 4] = [
    ConcurrencyLimit { calls: None, in_tx: false },
    ConcurrencyLimit { calls: Some(1), in_tx: false },
    ConcurrencyLimit { calls: None, in_tx: true },
    ConcurrencyLimit { calls: Some(1), in_tx: true },
];

const MAX_ATTEMPTS: u32 = 3;

/// The maximum number of rows in a claim, and of settlements in a statement.
const BATCH: usize = 3;

/// The size of every payload.
const BYTES: usize = 10;

/// The listener that handles an event, by its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum EventKind {
    Plain,
    Limited,
    InTx,
    LimitedInTx,
    /// No listener handles the event.
    Unroutable,
}

impl EventKind {
    const ALL: [Self; 5] =
        [Self::Plain, Self::Limited, Self::InTx, Self::LimitedInTx, Self::Unroutable];

    fn listener(self) -> Option<ListenerId> {
        (self != Self::Unroutable).then_some(ListenerId::new(self as usize))
    }

    fn in_tx(self) -> bool {
        matches!(self, Self::InTx | Self::LimitedInTx)
    }
}

/// Returns the envelope of every event. Events differ only in their rows.
fn envelope() -> EventEnvelope {
    static ENVELOPE: OnceLock<EventEnvelope> = OnceLock::new();
    let payload = || format!("\"{}\"", "x".repeat(BYTES - 2));
    ENVELOPE.get_or_init(|| EventEnvelope::json("A", payload()).unwrap()).clone()
}

/// Waits one second per failure.
struct LinearBackoff;

impl RetryPolicy for LinearBackoff {
    fn retry(&self, attempt: &FailedAttempt<'_>) -> Retry {
        Retry::After(Duration::from_secs(attempt.attempts.into()))
    }
}

/// Returns the size of a test: `long` if `OUTBOX_TEST_LONG` is set, and `short` in everyday runs.
fn test_size(short: u64, long: u64) -> u64 {
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { long } else { short }
}
