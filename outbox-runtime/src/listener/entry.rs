//! The entries that the macros register at link time, for the registry to collect.

use std::fmt;
use std::time::Duration;

use super::in_tx::{AnyTx, TxDatabase};
use super::outcome::BoxFuture;
use super::{Delivery, Needs, Outcome, Result};
use crate::event::kind::{AggregateInfo, EventInfo};

/// A place in the source code, where a listener is declared or registered, or an event type declared.
///
/// Its `Display` form is what editors and terminals make clickable: `src/orders.rs:12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as `file!()` names it: relative to the root of the workspace.
    pub file: &'static str,
    /// The line, counted from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The options of one listener: its retries, its time-out and its concurrency.
///
/// An option that is `None` is taken from the outbox's [`Config`](crate::Config); without a concurrency of its own a
/// listener is limited by the workers only.
///
/// `#[listener(retry(..), timeout = .., concurrency = ..)]` sets them for a function,
/// [`ListenerRegistry::register_with`](super::ListenerRegistry::register_with) for a closure.
///
/// # Examples
///
/// A listener for a service that permits two requests at a time and is slow to recover:
///
/// ```
/// use outbox::listener::{ListenerOptions, Timeout};
/// use std::time::Duration;
///
/// let options = ListenerOptions::new()
///     .concurrency(2)
///     .timeout(Timeout::After(Duration::from_secs(10)))
///     .max_attempts(20)
///     .retry_base(Duration::from_secs(5))
///     .retry_max(Duration::from_secs(600));
/// assert_eq!(options.concurrency, Some(2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListenerOptions {
    /// The number of failed attempts after which an event becomes a dead letter.
    pub max_attempts: Option<u32>,
    /// The delay after the first failure; it doubles with every further one and has a jitter of ±50 %.
    pub retry_base: Option<Duration>,
    /// The longest delay between two attempts.
    pub retry_max: Option<Duration>,
    /// The time limit of one call.
    pub timeout: Option<Timeout>,
    /// The maximum number of calls that run at once in one process.
    pub concurrency: Option<u32>,
    /// The name of the subscription; `None` for the unnamed listener of an event.
    pub name: Option<&'static str>,
}

impl ListenerOptions {
    /// Makes options of which none is set: all are taken from the outbox.
    pub const fn new() -> Self {
        Self {
            max_attempts: None,
            retry_base: None,
            retry_max: None,
            timeout: None,
            concurrency: None,
            name: None,
        }
    }

    /// Names the listener: it is a subscription, with a row, attempts and dead letters of its own for each event. Any
    /// number of listeners with different names can handle an event, beside one without a name.
    ///
    /// The name is stored in the table, so choose one that lasts: at most 64 bytes of `a-z`, `0-9`, `_`, `.` and `-`.
    #[must_use]
    pub const fn name(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Sets the number of failed attempts after which an event becomes a dead letter; 1 means that it is never retried.
    ///
    /// Calls that do not fail are not counted: those that end with [`Outcome::RetryAfter`](super::Outcome::RetryAfter),
    /// and those that a shutdown cancels.
    #[must_use]
    pub const fn max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: Some(attempts), ..self }
    }

    /// Sets the delay after the first failure.
    ///
    /// It doubles with every further failure up to [`retry_max`](Self::retry_max), with a jitter of ±50 %, so that
    /// events that failed together are not retried together. A listener with a delay of its own does not use the
    /// outbox's [`RetryPolicy`](crate::RetryPolicy).
    #[must_use]
    pub const fn retry_base(self, delay: Duration) -> Self {
        Self { retry_base: Some(delay), ..self }
    }

    /// Sets the longest delay between two attempts, which must not be shorter than the first one.
    #[must_use]
    pub const fn retry_max(self, delay: Duration) -> Self {
        Self { retry_max: Some(delay), ..self }
    }

    /// Sets the time limit of one call.
    ///
    /// The future of a call that exceeds it is dropped, and the attempt has failed. Choose it longer than the time-outs
    /// of the clients that the listener uses, whose errors say more.
    #[must_use]
    pub const fn timeout(self, timeout: Timeout) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets the maximum number of calls that run at once in one process; the limit for all processes together is a
    /// multiple of it.
    ///
    /// Events beyond the limit wait without occupying a worker. Use it to protect a dependency, and 1 for work that
    /// must not overlap in one process. It does not establish an ordering: a failed event is overtaken by later ones.
    /// It must be at least 1.
    #[must_use]
    pub const fn concurrency(self, calls: u32) -> Self {
        Self { concurrency: Some(calls), ..self }
    }
}

/// The time limit of one call of a listener.
///
/// `#[listener(timeout = "30s")]` is [`After`](Self::After), `timeout = "none"` is [`Never`](Self::Never).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timeout {
    /// The call is cancelled after this time by dropping its future, and the attempt has failed.
    After(Duration),
    /// The call may take any time. Its lease is renewed while it runs; limit the `concurrency` of such a listener, so
    /// that calls that never return cannot occupy all workers.
    Never,
}

/// One `#[listener]` function.
#[derive(Debug)]
pub struct ListenerEntry {
    /// The path of the function.
    pub function: &'static str,
    /// Where the function is declared.
    pub place: Place,
    /// The outboxes it serves; none means the unnamed one.
    pub outboxes: &'static [&'static str],
    /// The name of its subscription; empty for the unnamed listener of an event.
    pub subscription: &'static str,
    /// The aggregate type of its events.
    pub aggregate: AggregateInfo,
    /// The event type that it handles.
    pub event: EventInfo,
    /// The listener's own options.
    pub options: ListenerOptions,
    /// The states that its arguments need before the first call.
    pub needs: &'static [fn() -> Needs],
    /// Decodes the payload, extracts the arguments and runs the function.
    pub call: EntryCall,
}

/// The generated function that calls a listener.
#[derive(Debug, Clone, Copy)]
pub enum EntryCall {
    /// The listener asks for no transaction.
    Plain(for<'a> fn(&'a Delivery) -> BoxFuture<'a, Result<Outcome>>),
    /// The listener asks for a transaction of this database.
    InTx(
        fn() -> TxDatabase,
        for<'a> fn(&'a Delivery, &'a mut AnyTx) -> BoxFuture<'a, Result<Outcome>>,
    ),
}

inventory::collect!(ListenerEntry);

/// One type that derives `EventType`, registered so that variants without a listener can be reported.
#[derive(Debug)]
pub struct EventTypeEntry {
    /// The type as written in Rust.
    pub type_name: &'static str,
    /// The file it is declared in.
    pub file: &'static str,
    /// The path of the module it is declared in.
    pub module: &'static str,
    /// The aggregate that the type names with `#[outbox(aggregate = ..)]`.
    pub aggregate: Option<AggregateInfo>,
    /// The variants.
    pub events: &'static [EventInfo],
}

inventory::collect!(EventTypeEntry);

/// Returns the name of every event type that this program declares.
pub(crate) fn declared_event_types() -> impl Iterator<Item = &'static str> {
    let declared = inventory::iter::<EventTypeEntry>.into_iter();
    declared.flat_map(|entry| entry.events.iter().map(|event| event.name))
}
