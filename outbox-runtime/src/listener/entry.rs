//! What the macros leave in the binary, for the registry to find.

use std::fmt;
use std::time::Duration;

use super::extract::Need;
use super::in_tx::{AnyTx, TxDatabase};
use super::outcome::BoxFuture;
use super::{Delivery, Outcome, Result};
use crate::event::kind::{AggregateInfo, EventInfo};

/// Where something stands in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as the compiler was given it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What a listener says about its own treatment. `None` leaves it to the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListenerOptions {
    /// How many failures until the event goes dead.
    pub max_attempts: Option<u32>,
    /// The delay after the first failure; it doubles with each.
    pub retry_base: Option<Duration>,
    /// The longest delay between two attempts.
    pub retry_max: Option<Duration>,
    /// How long one call may take.
    pub timeout: Option<Timeout>,
    /// How many calls may run at once.
    pub concurrency: Option<u32>,
}

impl ListenerOptions {
    /// Everything is left to the outbox.
    pub const DEFAULT: Self = Self {
        max_attempts: None,
        retry_base: None,
        retry_max: None,
        timeout: None,
        concurrency: None,
    };

    /// So many failures until the event goes dead.
    #[must_use]
    pub const fn max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: Some(attempts), ..self }
    }

    /// This delay after the first failure.
    #[must_use]
    pub const fn retry_base(self, delay: Duration) -> Self {
        Self { retry_base: Some(delay), ..self }
    }

    /// At most this delay between two attempts.
    #[must_use]
    pub const fn retry_max(self, delay: Duration) -> Self {
        Self { retry_max: Some(delay), ..self }
    }

    /// A call may take this long.
    #[must_use]
    pub const fn timeout(self, timeout: Timeout) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// So many calls may run at once.
    #[must_use]
    pub const fn concurrency(self, calls: u32) -> Self {
        Self { concurrency: Some(calls), ..self }
    }
}

/// How long one call of a listener may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// This long.
    After(Duration),
    /// As long as it likes.
    Never,
}

/// One `#[listener]` function.
#[derive(Debug)]
pub struct ListenerEntry {
    /// Its path.
    pub function: &'static str,
    /// Where it is.
    pub place: Place,
    /// The outboxes it serves; none means the unnamed one.
    pub outboxes: &'static [&'static str],
    /// What its events are about.
    pub aggregate: AggregateInfo,
    /// Its event.
    pub event: EventInfo,
    /// Its own treatment.
    pub options: ListenerOptions,
    /// What must be given before the first call.
    pub needs: &'static [fn() -> Option<Need>],
    /// Decodes, extracts and runs.
    pub call: EntryCall,
}

/// How a listener is called.
#[derive(Debug, Clone, Copy)]
pub enum EntryCall {
    /// On its own.
    Plain(for<'a> fn(&'a Delivery) -> BoxFuture<'a, Result<Outcome>>),
    /// In a transaction of this database.
    InTx(
        fn() -> TxDatabase,
        for<'a> fn(&'a Delivery, &'a mut AnyTx) -> BoxFuture<'a, Result<Outcome>>,
    ),
}

inventory::collect!(ListenerEntry);

/// One type that derives `EventType`, so that variants without a listener are noticed.
#[derive(Debug)]
pub struct EventTypeEntry {
    /// The type as written in Rust.
    pub type_name: &'static str,
    /// The file it is declared in.
    pub file: &'static str,
    /// The aggregate it names.
    pub aggregate: Option<AggregateInfo>,
    /// Its variants.
    pub events: &'static [EventInfo],
}

inventory::collect!(EventTypeEntry);
