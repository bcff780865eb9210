//! The arguments that a listener may ask for in addition to the payload.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Delivery, Result};
use crate::event::{EventEnvelope, EventId, Headers};

/// Application state for listeners, such as a mailer, an HTTP client or a pool.
///
/// Pass the value once with [`Builder::state`](crate::Builder::state); a listener asks for it with an argument of
/// type `State<T>`. There is one value for each type. If a listener asks for a state that was not given, starting
/// the outbox fails. Cloning a `State` copies a pointer.
///
/// ```
/// # use outbox::State;
/// struct Mailer;
/// async fn send_receipt(mailer: State<Mailer>) { /* `mailer` derefs to `Mailer` */ }
/// // In a test of your own:
/// let call = send_receipt(State::new(Mailer));
/// ```
pub struct State<T> {
    shared: Arc<T>,
}

impl<T> State<T> {
    /// Wraps a value, to call a listener as an ordinary function in a test.
    pub fn new(value: T) -> Self {
        Self { shared: Arc::new(value) }
    }

    /// Returns the shared value.
    pub fn into_inner(self) -> Arc<T> {
        self.shared
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.shared
    }
}

impl<T: fmt::Debug> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("State").field(&self.shared).finish()
    }
}

/// The metadata of an event: its ids, types, headers, times and failed attempts.
///
/// A listener asks for it with an argument of this type, for example to deduplicate by
/// [`event_id`](Self::event_id) or to act differently on the [last attempts](Self::attempts).
#[derive(Debug, Clone)]
pub struct Meta {
    envelope: EventEnvelope,
    attempts: u32,
}

impl Meta {
    /// Makes the metadata of an envelope whose delivery has failed `attempts` times, to call a listener as an
    /// ordinary function in a test.
    pub fn new(envelope: EventEnvelope, attempts: u32) -> Self {
        Self { envelope, attempts }
    }

    /// Returns the event's unique id, used for deduplication.
    pub fn event_id(&self) -> EventId {
        self.envelope.event_id()
    }

    /// Returns the name under which the event was stored, which may be an alias.
    pub fn event_type(&self) -> &str {
        self.envelope.event_type()
    }

    /// Returns the name of the aggregate type; `__GLOBAL__` if the event belongs to no aggregate.
    pub fn aggregate_type(&self) -> &str {
        self.envelope.aggregate_type()
    }

    /// Returns the id of the aggregate, if one was set.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.envelope.aggregate_id()
    }

    /// Returns the tenant, if one was set.
    pub fn tenant_id(&self) -> Option<&str> {
        self.envelope.tenant_id()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &Headers {
        self.envelope.headers()
    }

    /// Returns the time at which the event happened.
    pub fn occurred_at(&self) -> SystemTime {
        self.envelope.occurred_at()
    }

    /// Returns the time at which the event became due: for the first attempt the end of its delay or the time of
    /// the write, for a later one the time for which it was scheduled. See [`EventEnvelope::available_at`].
    pub fn available_at(&self) -> SystemTime {
        self.envelope.available_at()
    }

    /// Returns the number of failed attempts before this one.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// A type that a listener may ask for in addition to the payload.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not something a listener can ask for",
    label = "known are `State<T>`, `Meta` and `EventEnvelope`",
    note = "if this is the payload, import it under another name: `use {Self} as ..;`"
)]
pub trait FromDelivery: Sized {
    /// Returns the state that must have been given before the first delivery, if there is one.
    fn need() -> Option<Need> {
        None
    }

    /// Extracts the argument from a delivery.
    fn from_delivery(delivery: &Delivery) -> Result<Self>;
}

impl<T: Send + Sync + 'static> FromDelivery for State<T> {
    fn need() -> Option<Need> {
        Some(Need { id: TypeId::of::<T>(), type_name: type_name::<T>() })
    }

    fn from_delivery(delivery: &Delivery) -> Result<Self> {
        delivery.state()
    }
}

impl FromDelivery for Meta {
    fn from_delivery(delivery: &Delivery) -> Result<Self> {
        Ok(Self::new(delivery.envelope().clone(), delivery.attempts()))
    }
}

impl FromDelivery for EventEnvelope {
    fn from_delivery(delivery: &Delivery) -> Result<Self> {
        Ok(delivery.envelope().clone())
    }
}

/// A state that a listener asks for.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    pub(super) id: TypeId,
    pub(super) type_name: &'static str,
}

/// The application's states, by type.
#[derive(Default)]
pub(super) struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    pub(super) fn insert<T: Send + Sync + 'static>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(state));
    }

    pub(super) fn satisfies(&self, need: &Need) -> bool {
        self.0.contains_key(&need.id)
    }

    pub(super) fn get<T: Send + Sync + 'static>(&self) -> Option<State<T>> {
        let state = self.0.get(&TypeId::of::<T>())?;
        Arc::clone(state).downcast().ok().map(|shared| State { shared })
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "States({})", self.0.len())
    }
}
