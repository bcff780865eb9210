use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::{
    AggregateName, Delay, Dynamic, EnvelopeBuilder, EventError, EventId, EventName, Headers,
    Payload,
};

/// One event in its stored form: id, type, aggregate, tenant, headers, payload and times.
///
/// What an application writes is converted into an envelope, stored as a row of the outbox table, and read back for
/// delivery. Most applications write typed events and never build one; they meet the envelope in places that are the
/// same for every event type:
///
/// - a listener that asks for it with an argument of type `&EventEnvelope`, for example to forward events to a broker;
/// - a [`WriterHook`](crate::write::WriterHook) or an [`EventInterceptor`](crate::EventInterceptor), such as an audit
///   log;
/// - code that publishes events without a Rust type, with [`builder`](Self::builder) or [`json`](Self::json).
///
/// An envelope is immutable and has been validated, and cloning it copies a pointer. Writing the same envelope twice
/// stores one event, because its id is the same. `Debug` output shows ids, names and sizes, never the payload or the
/// value of a header.
///
/// Events are delivered concurrently. Neither the order of writes nor [`occurred_at`](Self::occurred_at) determines the
/// order of delivery; a listener that needs an ordering compares versions or times in the payload.
///
/// # Examples
///
/// ```
/// use outbox::EventEnvelope;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct User { name: String }
///
/// let envelope = EventEnvelope::builder("UserCreated")
///     .aggregate_type("User")
///     .aggregate_id("42")
///     .payload_json(r#"{"name": "Ada"}"#)
///     .build()?;
/// assert_eq!(envelope.event_type(), "UserCreated");
/// assert_eq!(envelope.payload().decode::<User>()?.name, "Ada");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EventEnvelope(Arc<Parts>);

/// The checked parts of an envelope.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) event_id: EventId,
    pub(super) event_type: EventName,
    pub(super) occurred_at: SystemTime,
    pub(super) aggregate_type: AggregateName,
    pub(super) aggregate_id: Option<String>,
    pub(super) tenant_id: Option<String>,
    pub(super) headers: Headers,
    pub(super) payload: Payload,
    pub(super) delay: Option<Delay>,
    pub(super) available_at: SystemTime,
    pub(super) id_used: IdUsed,
    /// Whether the event's type declares that it needs no listener.
    pub(super) no_listener: bool,
}

/// Whether a row with the event's id may exist before the event is inserted.
///
/// All clones of an envelope share it, so that writing the same envelope again is recognised.
#[derive(Clone)]
pub(super) enum IdUsed {
    /// The id was set by the caller or read from a row.
    Maybe,
    /// The id was generated for this event, so a row exists only after an insert of it has begun; the flag is
    /// set when one does.
    OnceInserted(Arc<AtomicBool>),
}

impl IdUsed {
    pub(super) fn generated() -> Self {
        Self::OnceInserted(Arc::default())
    }
}

/// The columns of a row that make up an envelope.
pub(crate) struct StoredParts {
    pub(crate) event_id: EventId,
    pub(crate) event_type: String,
    pub(crate) occurred_at: SystemTime,
    pub(crate) available_at: SystemTime,
    pub(crate) aggregate_type: Option<String>,
    pub(crate) aggregate_id: Option<String>,
    pub(crate) tenant_id: Option<String>,
    pub(crate) headers: Headers,
    pub(crate) payload: String,
}

impl EventEnvelope {
    /// Starts building an envelope for an event whose type is given as a string.
    ///
    /// Use it for events of other systems and for event types that are known only at run time. A listener handles them
    /// in the same way as typed events: names share one key space, so an event that is built as `"Paid"` of aggregate
    /// `"Order"` reaches the listener of `OrderEvent::Paid`. The payload must then be what that listener decodes.
    pub fn builder(event_type: impl Into<String>) -> EnvelopeBuilder<Dynamic> {
        EnvelopeBuilder::dynamic(event_type.into())
    }

    /// Builds an envelope from an event type and a JSON payload, with a generated id and no aggregate.
    ///
    /// It is short for [`builder`](Self::builder) with a payload and nothing else.
    ///
    /// ```
    /// use outbox::EventEnvelope;
    ///
    /// let envelope = EventEnvelope::json("CacheFlushed", r#"{"region":"eu"}"#)?;
    /// assert_eq!(envelope.aggregate_type(), "__GLOBAL__");
    ///
    /// let refused = EventEnvelope::json("CacheFlushed", "{region: eu}").unwrap_err();
    /// assert_eq!(refused.to_string(), "payload is not JSON: key must be a string at line 1 column 2");
    /// # Ok::<(), outbox::event::EventError>(())
    /// ```
    ///
    /// # Errors
    /// [`EventError::Empty`], [`EventError::TooLong`], [`EventError::OuterSpace`] or [`EventError::ControlCharacter`]
    /// if the event type is not a valid name; [`EventError::PayloadNotJson`] or [`EventError::PayloadTooLarge`] if the
    /// payload cannot be stored.
    pub fn json(
        event_type: impl Into<String>,
        payload: impl Into<String>,
    ) -> Result<Self, EventError> {
        Self::builder(event_type).payload_json(payload).build()
    }

    /// Adds headers to the event, or none of them if the headers would exceed their limit.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn and_headers(mut self, more: Vec<(&str, String)>) -> Self {
        let mut headers = self.0.headers.clone();
        for (key, value) in more {
            headers.insert(key.to_owned(), value);
        }
        if headers.check().is_ok() {
            Arc::make_mut(&mut self.0).headers = headers;
        }
        self
    }

    /// Makes an envelope from a stored row. Its values were validated when it was written, or it was inserted by
    /// other means; either way it is delivered as it stands.
    pub(crate) fn stored(stored: StoredParts) -> Self {
        Self::new(Parts {
            event_id: stored.event_id,
            event_type: EventName::stored(stored.event_type),
            occurred_at: stored.occurred_at,
            aggregate_type: stored.aggregate_type.map(AggregateName::stored).unwrap_or_default(),
            aggregate_id: stored.aggregate_id,
            tenant_id: stored.tenant_id,
            headers: stored.headers,
            payload: Payload::stored(stored.payload),
            delay: None,
            available_at: stored.available_at,
            id_used: IdUsed::Maybe,
            no_listener: false,
        })
    }

    /// Returns whether a row with this id may exist already. A generated id is unique, so only an earlier insert
    /// of the same envelope can have made one.
    pub(crate) fn id_may_exist(&self) -> bool {
        match &self.0.id_used {
            IdUsed::Maybe => true,
            IdUsed::OnceInserted(begun) => begun.load(Ordering::Relaxed),
        }
    }

    /// Records that an insert of this envelope begins. Returns whether its id may exist in the database already.
    pub(crate) fn inserting(&self) -> bool {
        match &self.0.id_used {
            IdUsed::Maybe => true,
            IdUsed::OnceInserted(begun) => begun.swap(true, Ordering::Relaxed),
        }
    }

    /// Returns whether the event was made from a type that declares it with `#[outbox(no_listener)]`. An envelope
    /// that was built by name, or read from a row, does not know.
    pub(crate) fn needs_no_listener(&self) -> bool {
        self.0.no_listener
    }

    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns the event's unique id, used for deduplication.
    ///
    /// It is the same in every delivery of the event, so a listener can use it as an idempotency key, for example in
    /// the header of a request to another service.
    pub fn event_id(&self) -> EventId {
        self.0.event_id
    }

    /// Returns the name of the event type as it is stored: the name of a variant or struct unless `#[outbox(..)]`
    /// changes it.
    ///
    /// For a row that was written before a rename, it is the old name, which the event type lists as an alias.
    pub fn event_type(&self) -> &str {
        self.0.event_type.as_str()
    }

    /// Returns the time at which the event happened, in whole microseconds: what
    /// [`EnvelopeBuilder::occurred_at`](super::EnvelopeBuilder::occurred_at) has set, otherwise the time of the write
    /// by the clock of the writing process.
    pub fn occurred_at(&self) -> SystemTime {
        self.0.occurred_at
    }

    /// Returns the name of the aggregate type; `__GLOBAL__` if the event belongs to no aggregate.
    ///
    /// Together with the [event type](Self::event_type) it determines the listener.
    pub fn aggregate_type(&self) -> &str {
        self.0.aggregate_type.as_str()
    }

    /// Returns the id of the aggregate that the event belongs to, such as the number of an order, if one was set.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.0.aggregate_id.as_deref()
    }

    /// Returns the tenant, if one was set. It is metadata: events are neither filtered nor isolated by it.
    pub fn tenant_id(&self) -> Option<&str> {
        self.0.tenant_id.as_deref()
    }

    /// Returns the headers: metadata such as a reply address or a trace context, which is stored beside the payload.
    pub fn headers(&self) -> &Headers {
        &self.0.headers
    }

    /// Returns the bytes of payload and headers, which count against the limit for events in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.payload().len() + self.headers().bytes()
    }

    /// Returns the JSON payload, in the bytes in which it was written.
    ///
    /// A listener usually takes the payload as a typed argument; [`Payload::decode`] does the same for any type.
    pub fn payload(&self) -> &Payload {
        &self.0.payload
    }

    /// Returns the delay that the event was built with, unless it had passed by then.
    ///
    /// An event that was read from its row has no delay any more; [`available_at`](Self::available_at) is when it
    /// ended.
    pub fn delay(&self) -> Option<Delay> {
        self.0.delay
    }

    /// Returns the time at which the event becomes due, or became due.
    ///
    /// For an envelope that was built in this process, this is the end of its [`delay`](Self::delay), or without a
    /// delay the time at which it was built, by the clock of this process. An event that goes through the hot
    /// queue keeps that value.
    ///
    /// For an event that the poller has claimed, it is the row's `available_at` before the claim: the end of the
    /// delay, or without a delay the time of the insert, by the clock of the database. The column moves with every
    /// settlement but the last, so in a later attempt it is the time for which that attempt was scheduled: after a
    /// failure the end of the back-off, after [`Outcome::RetryAfter`](crate::listener::Outcome::RetryAfter) the end
    /// of that delay, after the loss of a node the end of its lease, and after a replay the time of the replay.
    ///
    /// The row of a dead letter no longer holds it; there it is [`occurred_at`](Self::occurred_at).
    ///
    /// ```
    /// use outbox::EventEnvelope;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let due = SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    /// let reminder = EventEnvelope::builder("Reminder").payload_json("{}").deliver_at(due).build()?;
    /// assert_eq!(reminder.available_at(), due);
    /// # Ok::<(), outbox::event::EventError>(())
    /// ```
    pub fn available_at(&self) -> SystemTime {
        self.0.available_at
    }
}

/// Shows ids, names and sizes, never the payload or the value of a header.
impl fmt::Debug for EventEnvelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventEnvelope")
            .field("event_id", &self.event_id())
            .field("event_type", &self.0.event_type)
            .field("aggregate_type", &self.0.aggregate_type)
            .field("aggregate_id", &self.aggregate_id())
            .field("tenant_id", &self.tenant_id())
            .field("headers", self.headers())
            .field("payload", self.payload())
            .finish_non_exhaustive()
    }
}
