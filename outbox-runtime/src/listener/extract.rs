//! What a listener may ask for beside the payload.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Delivery, Result};
use crate::event::{EventEnvelope, EventId, Headers};

/// Something of the application's that listeners need: a mailer, a client, a pool.
///
/// Given once with `.state(value)`, asked for by type. Cloning it copies a pointer.
///
/// ```
/// # use outbox_runtime::listener::State;
/// struct Mailer;
/// async fn send_receipt(mailer: State<Mailer>) { /* `mailer` derefs to `Mailer` */ }
/// // In a test of your own:
/// let call = send_receipt(State::new(Mailer));
/// ```
pub struct State<T> {
    shared: Arc<T>,
}

impl<T> State<T> {
    /// Wraps a value, for calling a listener as an ordinary function.
    pub fn new(value: T) -> Self {
        Self { shared: Arc::new(value) }
    }

    /// The shared value itself.
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

/// Everything about an event but its payload.
#[derive(Debug, Clone)]
pub struct Meta {
    envelope: EventEnvelope,
    attempts: u32,
}

impl Meta {
    /// The meta data of an envelope that has failed a number of times.
    pub fn new(envelope: EventEnvelope, attempts: u32) -> Self {
        Self { envelope, attempts }
    }

    /// The id to deduplicate by.
    pub fn event_id(&self) -> EventId {
        self.envelope.event_id()
    }

    /// The name it was stored under, which may be an alias.
    pub fn event_type(&self) -> &str {
        self.envelope.event_type()
    }

    /// The name of what it is about.
    pub fn aggregate_type(&self) -> &str {
        self.envelope.aggregate_type()
    }

    /// Which one it is about.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.envelope.aggregate_id()
    }

    /// The tenant it belongs to.
    pub fn tenant_id(&self) -> Option<&str> {
        self.envelope.tenant_id()
    }

    /// What travels beside the payload.
    pub fn headers(&self) -> &Headers {
        self.envelope.headers()
    }

    /// When it happened.
    pub fn occurred_at(&self) -> SystemTime {
        self.envelope.occurred_at()
    }

    /// The time at which it became due: for its first attempt the end of its delay or else when it was
    /// written, later the time for which this attempt was planned.
    /// See [`EventEnvelope::available_at`].
    pub fn available_at(&self) -> SystemTime {
        self.envelope.available_at()
    }

    /// How many attempts have failed before this one.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// What a listener argument must be, if it is not the payload.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not something a listener can ask for",
    label = "known are `State<T>`, `Meta` and `EventEnvelope`",
    note = "if this is the payload, import it under another name: `use {Self} as ..;`"
)]
pub trait FromDelivery: Sized {
    /// What must have been given before the first delivery.
    fn need() -> Option<Need> {
        None
    }

    /// Takes it from a delivery.
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

/// A state that some listener asks for.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    pub(super) id: TypeId,
    pub(super) type_name: &'static str,
}

/// The states that were given, by type.
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
