//! A deterministic simulation of two relays on one table.
//!
//! It runs schedules that real clocks and networks rarely produce, and checks invariants after every step.
//!
//! # Layout
//! The tested code is real: [`InFlight`](crate::inflight::InFlight), the decision that follows from a listener's
//! answer, the verdict on events that lose their owners, and the changes of status. Only the table is a model:
//! `table` has the rows and does what the statements do, `order` how they are claimed in order, with `guards` that can
//! be switched off one by one.
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
mod order;
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

use crate::event::{EventEnvelope, Recipient};
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
    order: None,
    in_sequence: false,
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

/// Returns the envelope of an event. Events differ only in their rows, and in whether they have an aggregate.
fn envelope(sequence: i64) -> EventEnvelope {
    static ENVELOPES: OnceLock<[EventEnvelope; 2]> = OnceLock::new();
    let envelope = |id: usize| {
        let payload = format!("\"{}\"", "x".repeat(BYTES - 2));
        let event = EventEnvelope::builder("A").payload_json(payload);
        match id {
            0 => event.build().unwrap(),
            _ => event.aggregate_id("1").build().unwrap(),
        }
    };
    let envelopes = ENVELOPES.get_or_init(|| std::array::from_fn(envelope));
    envelopes[usize::from(aggregate_of(sequence).is_some())].clone()
}

/// Returns whose row it is: the second aggregate is the first one, as a subscription sees it.
fn recipient(sequence: i64) -> Recipient {
    match aggregate_of(sequence) {
        Some(2) => Recipient::named("audit"),
        _ => Recipient::Unnamed,
    }
}

/// Returns the aggregate of a row, if it has one: two of them, and a few rows without.
fn aggregate_of(sequence: i64) -> Option<usize> {
    match sequence.rem_euclid(8) {
        0 => None,
        1 | 2 | 3 | 6 => Some(1),
        _ => Some(2),
    }
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
