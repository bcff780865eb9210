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

    /// When it may be delivered, if not at once.
    pub fn delay(&self) -> Option<Delay> {
        self.0.delay
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
