//! The extractors of this crate, and the application's states.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use super::from_delivery::Need;
use super::{Delivery, FromDelivery, Needs, Result};
use crate::event::{EventEnvelope, EventId, Headers};

/// Application state for listeners, such as a mailer, an HTTP client or a pool.
///
/// A listener is a free function, so what it works with has to come from somewhere: pass the value once with
/// [`Builder::state`](crate::Builder::state), and every listener gets it with an argument of type `State<T>`. There is
/// one value for each type; wrap it in a type of your own if two values have the same one. If a listener asks for a
/// state that was not given, starting the outbox fails and names the listener, its file and its line.
///
/// A `State<T>` derefs to `T`. All calls share one value, also those that run at the same time, so a value that changes
/// needs a lock or an atomic inside. Cloning a `State` copies a pointer.
///
/// # Examples
///
/// ```standalone_crate
/// use outbox::{EventType, ListenerResult, State, listener};
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent {
///     Paid { order_id: u64 },
/// }
///
/// struct Mailer { /* a connection pool, for example */ }
///
/// impl Mailer {
///     async fn send(&self, text: String) -> std::io::Result<()> {
///         # let _ = text;
///         Ok(())
///     }
/// }
///
/// #[listener(event = OrderEvent::Paid { order_id })]
/// async fn send_receipt(order_id: u64, mailer: State<Mailer>) -> ListenerResult {
///     mailer.send(format!("order {order_id} is paid")).await?;
///     Ok(())
/// }
///
/// # #[expect(dead_code)]
/// async fn start(pool: sqlx::SqlitePool) -> outbox::Result<()> {
///     let outbox = outbox::builder(pool).state(Mailer {}).start().await?;
///     # drop(outbox);
///     Ok(())
/// }
///
/// // A listener is still a function: a test calls it with a state of its own.
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// send_receipt(7, State::new(Mailer {})).await.unwrap();
/// # }
/// ```
///
/// To replace a state in tests, ask for a trait object:
///
/// ```
/// use outbox::State;
/// use std::sync::Arc;
///
/// trait Mail: Send + Sync {}
///
/// async fn send_receipt(mail: State<Arc<dyn Mail>>) { /* .. */ }
/// ```
pub struct State<T> {
    shared: Arc<T>,
}

impl<T> State<T> {
    /// Wraps a value, to call a listener as an ordinary function in a test.
    ///
    /// In a running outbox, [`Builder::state`](crate::Builder::state) does this.
    pub fn new(value: T) -> Self {
        Self { shared: Arc::new(value) }
    }

    /// Returns the shared value, for example to move it into a task that outlives the call.
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
/// A listener asks for it with an argument of this type, beside its payload. Typical uses are idempotency (delivery is
/// at least once, so a listener may see an event again: its [`event_id`](Self::event_id) is the same), the tenant or a
/// trace context in the [`headers`](Self::headers), and acting differently after [failed attempts](Self::attempts). A
/// listener that needs the payload as raw JSON as well asks for `&EventEnvelope`.
///
/// # Examples
///
/// ```standalone_crate
/// use outbox::{EventType, ListenerResult, Meta, State, listener};
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent {
///     Placed { order_id: u64, total_cents: u64 },
/// }
///
/// # struct PaymentProvider;
/// # impl PaymentProvider {
/// #     async fn charge(&self, _: u64, _: &str) -> std::io::Result<()> { Ok(()) }
/// # }
/// #[listener(event = OrderEvent::Placed { total_cents, .. })]
/// async fn charge(total_cents: u64, provider: State<PaymentProvider>, meta: Meta) -> ListenerResult {
///     // The key is the same in every attempt, so the provider charges once.
///     provider.charge(total_cents, meta.event_id().as_str()).await?;
///     if meta.attempts() > 0 {
///         println!("charged after {} failed attempts", meta.attempts());
///     }
///     Ok(())
/// }
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct Meta {
    envelope: EventEnvelope,
    attempts: u32,
}

impl Meta {
    /// Makes the metadata of an envelope whose delivery has failed `attempts` times, to call a listener as an ordinary
    /// function in a test.
    ///
    /// ```
    /// use outbox::{EventEnvelope, Meta};
    ///
    /// async fn audit(meta: Meta) -> String {
    ///     format!("{} was seen, {} attempts had failed", meta.event_type(), meta.attempts())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), outbox::event::EventError> {
    /// let meta = Meta::new(EventEnvelope::json("Paid", "{}")?, 2);
    /// assert_eq!(audit(meta).await, "Paid was seen, 2 attempts had failed");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(envelope: EventEnvelope, attempts: u32) -> Self {
        Self { envelope, attempts }
    }

    /// Returns the event's unique id, used for deduplication.
    ///
    /// It is the same in every delivery of this event. Insert it into a table with a unique index, or send it as the
    /// idempotency key of a request, and a second delivery has no second effect.
    pub fn event_id(&self) -> EventId {
        self.envelope.event_id()
    }

    /// Returns the name under which the event was stored, which may be an alias if the row is older than a rename.
    pub fn event_type(&self) -> &str {
        self.envelope.event_type()
    }

    /// Returns the name of the aggregate type; `__GLOBAL__` if the event belongs to no aggregate.
    pub fn aggregate_type(&self) -> &str {
        self.envelope.aggregate_type()
    }

    /// Returns the id of the aggregate, such as the number of an order, if one was set.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.envelope.aggregate_id()
    }

    /// Returns the tenant that the event belongs to, if one was set with
    /// [`EnvelopeBuilder::tenant`](crate::event::EnvelopeBuilder::tenant).
    pub fn tenant_id(&self) -> Option<&str> {
        self.envelope.tenant_id()
    }

    /// Returns the headers that the writer has set, and with the feature `opentelemetry` the trace context.
    pub fn headers(&self) -> &Headers {
        self.envelope.headers()
    }

    /// Returns the time at which the event happened, by the clock of the writing process.
    ///
    /// It does not change with retries, so its age says how long the event has waited.
    pub fn occurred_at(&self) -> SystemTime {
        self.envelope.occurred_at()
    }

    /// Returns the time at which the event became due: for the first attempt the end of its delay or the time of
    /// the write, for a later one the time for which it was scheduled. See [`EventEnvelope::available_at`].
    pub fn available_at(&self) -> SystemTime {
        self.envelope.available_at()
    }

    /// Returns the number of failed attempts before this one: 0 in the first call.
    ///
    /// A call that ended with [`Outcome::RetryAfter`](super::Outcome::RetryAfter), or that a shutdown cancelled, is not
    /// counted. A replay of a dead letter starts again at 0.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl<T: Send + Sync + 'static> FromDelivery for State<T> {
    fn needs() -> Needs {
        Needs::state::<T>()
    }

    async fn from_delivery(delivery: &Delivery) -> Result<Self> {
        delivery.state()
    }
}

impl FromDelivery for Meta {
    async fn from_delivery(delivery: &Delivery) -> Result<Self> {
        Ok(Self::new(delivery.envelope().clone(), delivery.attempts()))
    }
}

impl FromDelivery for EventEnvelope {
    async fn from_delivery(delivery: &Delivery) -> Result<Self> {
        Ok(delivery.envelope().clone())
    }
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
