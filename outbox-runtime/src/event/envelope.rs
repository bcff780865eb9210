use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::{
    AggregateName, Dynamic, EnvelopeBuilder, EventError, EventId, EventName, Headers, Payload,
};

/// One event with everything that travels with it. Immutable; cloning it copies a pointer.
///
/// Typed events become envelopes by themselves ([`IntoEnvelope`](super::IntoEnvelope),
/// [`event`](super::event)); an envelope under a dynamic name is built here.
///
/// ```
/// # use outbox_runtime::event::EventEnvelope;
/// let envelope = EventEnvelope::builder("UserCreated")
///     .aggregate_type("User")
///     .aggregate_id("42")
///     .payload_json(r#"{"name": "Ada"}"#)
///     .build()?;
/// assert_eq!(envelope.event_type(), "UserCreated");
/// # Ok::<(), outbox_runtime::event::EventError>(())
/// ```
#[derive(Clone)]
pub struct EventEnvelope(Arc<Parts>);

/// What an envelope is made of, checked.
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
}

/// Whether a row with the event's id may exist before the event is inserted. Shared by all copies of
/// an envelope, so that writing it once more is known to be that.
#[derive(Clone)]
pub(super) enum IdUsed {
    /// The caller chose the id, or it was read from a row.
    Maybe,
    /// The id was generated for this event: once an insert of it has begun.
    OnceInserted(Arc<AtomicBool>),
}

impl IdUsed {
    pub(super) fn generated() -> Self {
        Self::OnceInserted(Arc::default())
    }
}

/// What a row holds.
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

/// When an event may be delivered, if not at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// Not before this time.
    Until(SystemTime),
    /// This long after it was written, by the database's clock.
    For(Duration),
}

impl EventEnvelope {
    /// Starts an envelope under a dynamic name.
    pub fn builder(event_type: impl Into<String>) -> EnvelopeBuilder<Dynamic> {
        EnvelopeBuilder::dynamic(event_type.into())
    }

    /// An envelope that is nothing but a name and JSON text.
    ///
    /// # Errors
    /// If the name or the JSON text cannot be one.
    pub fn json(
        event_type: impl Into<String>,
        payload: impl Into<String>,
    ) -> Result<Self, EventError> {
        Self::builder(event_type).payload_json(payload).build()
    }

    /// The same event with more headers; without them if there would be too many.
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

    /// The same event as if it were due at once.
    #[cfg(feature = "testing")]
    pub(crate) fn without_delay(mut self) -> Self {
        Arc::make_mut(&mut self.0).delay = None;
        self
    }

    /// An envelope as it was stored. What a database holds was checked before, or is somebody's own
    /// row; either way it is delivered as it stands.
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
        })
    }

    /// Whether a row with its id may exist already. A generated id is no one else's.
    pub(crate) fn id_may_exist(&self) -> bool {
        match &self.0.id_used {
            IdUsed::Maybe => true,
            IdUsed::OnceInserted(begun) => begun.load(Ordering::Relaxed),
        }
    }

    /// Says that an insert of it begins.
    pub(crate) fn inserting(&self) {
        if let IdUsed::OnceInserted(begun) = &self.0.id_used {
            begun.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// The id that a consumer deduplicates by.
    pub fn event_id(&self) -> EventId {
        self.0.event_id
    }

    /// The event's name.
    pub fn event_type(&self) -> &str {
        self.0.event_type.as_str()
    }

    /// When it happened, in whole microseconds.
    pub fn occurred_at(&self) -> SystemTime {
        self.0.occurred_at
    }

    /// The name of what it is about.
    pub fn aggregate_type(&self) -> &str {
        self.0.aggregate_type.as_str()
    }

    /// Which one it is about.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.0.aggregate_id.as_deref()
    }

    /// The tenant it belongs to. It travels with the event; nothing is filtered by it.
    pub fn tenant_id(&self) -> Option<&str> {
        self.0.tenant_id.as_deref()
    }

    /// What travels beside the payload.
    pub fn headers(&self) -> &Headers {
        &self.0.headers
    }

    /// What it takes of the budget for events in flight: its payload and its headers.
    pub(crate) fn bytes(&self) -> usize {
        self.payload().len() + self.headers().bytes()
    }

    /// What is said.
    pub fn payload(&self) -> &Payload {
        &self.0.payload
    }

    /// The delay that the event was built with, if it has not passed by then.
    ///
    /// An event that is read from its row has none, since its delay is over; see
    /// [`available_at`](Self::available_at) for when it ended.
    pub fn delay(&self) -> Option<Delay> {
        self.0.delay
    }

    /// The time at which the event becomes due, or became due.
    ///
    /// Of an envelope that was built here, this is the end of its [`delay`](Self::delay), or else the time at
    /// which it was built, by the clock of this process. An event that goes straight from the commit to its
    /// listener keeps it.
    ///
    /// Of an event that the poller has claimed, it is what the row's `available_at` said before the claim: the
    /// end of the delay, or for an event without one the time of its insert, by the clock of the database.
    /// The column moves with every outcome but the last, so in a later attempt it is the time for which that
    /// attempt was planned: after a failure the end of its back-off, after
    /// [`Outcome::RetryAfter`](crate::listener::Outcome::RetryAfter) the end of that time, after the loss of
    /// a node the end of its lease, and after a replay the time of the replay.
    ///
    /// Where the row does not hold it any more, in a dead event, it is
    /// [`occurred_at`](Self::occurred_at).
    ///
    /// ```
    /// # use outbox_runtime::event::EventEnvelope;
    /// # use std::time::{Duration, SystemTime};
    /// let due = SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    /// let reminder = EventEnvelope::builder("Reminder").payload_json("{}").deliver_at(due).build()?;
    /// assert_eq!(reminder.available_at(), due);
    /// # Ok::<(), outbox_runtime::event::EventError>(())
    /// ```
    pub fn available_at(&self) -> SystemTime {
        self.0.available_at
    }
}

/// Shows ids, names and sizes, never the payload.
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
