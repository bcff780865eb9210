use std::time::{Duration, SystemTime};

use super::delay::{delay, storable};
use super::envelope::{IdUsed, Parts};
use super::into_envelope::Chosen;
use super::name::IntoAggregateName;
use super::{
    AggregateName, Delay, EventEnvelope, EventError, EventId, EventName, EventType, Field, Headers,
    MAX_AGGREGATE_ID_BYTES, MAX_TENANT_ID_BYTES, Payload, text,
};
use crate::clock;

/// Starts building an envelope for a typed event, to set more than the event itself carries.
///
/// [`Tx::write`](crate::write::Tx::write) takes a typed event as it is, so most writes do not need this function. Use
/// it to add a tenant, headers or a delay, to choose the event's id, or to override the aggregate that the type
/// declares. The builder can be written without calling [`build`](EnvelopeBuilder::build).
///
/// An event that cannot be serialised is not reported here, but by `build` or by the write:
/// [`EventError::PayloadNotSerializable`].
///
/// ```
/// use outbox::EventType;
/// use std::time::Duration;
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent { Cancelled }
///
/// # fn remind<DB: outbox::tx::Backend>(tx: &mut outbox::Tx<DB>) -> outbox::Result<()> {
/// tx.write(
///     outbox::event(OrderEvent::Cancelled)
///         .aggregate_id("7")
///         .tenant("acme")
///         .header("reply-to", "billing")
///         .deliver_after(Duration::from_secs(300)),
/// )?;
/// # Ok(())
/// # }
/// ```
pub fn event<E: EventType>(event: E) -> EnvelopeBuilder<Typed> {
    let event_type = event.event_name();
    let aggregate_id = event.aggregate_id();
    let payload = match event.encode() {
        Ok(json) => Payload::json(json),
        Err(_) => Err(EventError::PayloadNotSerializable { event_type }),
    };
    EnvelopeBuilder {
        aggregate_type: Ok(E::AGGREGATE
            .map_or_else(AggregateName::default, |tied| AggregateName::derived(tied.name))),
        aggregate_id,
        no_listener: E::EVENTS.iter().any(|info| info.no_listener && info.name == event_type),
        ..EnvelopeBuilder::new(Typed { event_type: EventName::derived(event_type), payload })
    }
}

/// Builds an [`EventEnvelope`].
///
/// [`event`] starts one for a typed event, [`EventEnvelope::builder`] one for an event whose name is known only at run
/// time. `K` is where name and payload come from: with [`Typed`] both come from the event, with [`Dynamic`] the name is
/// a string and the payload is raw JSON. Everything else has a default:
///
/// | value | default |
/// |---|---|
/// | [`event_id`](Self::event_id) | a generated id, see [`EventId`] |
/// | [`occurred_at`](Self::occurred_at) | the time of the write |
/// | [`aggregate_type`](Self::aggregate_type) | what the event's type declares, otherwise [`Global`](super::Global) |
/// | [`aggregate_id`](Self::aggregate_id) | the field marked `#[outbox(aggregate_id)]`, otherwise none |
/// | [`tenant`](Self::tenant) | none |
/// | [`header`](Self::header) | none; with the feature `opentelemetry` the trace context of the writer |
/// | [`deliver_at`](Self::deliver_at), [`deliver_after`](Self::deliver_after) | the event is due when it is committed |
///
/// The setters check nothing. [`build`](Self::build) checks every value, and so does writing the builder with
/// [`Tx::write`](crate::write::Tx::write), before any SQL runs: an invalid event cannot abort the business transaction.
///
/// # Examples
///
/// A reminder that is due in an hour, under an id by which it is written once and can be found again:
///
/// ```
/// use outbox::EventType;
/// use std::time::Duration;
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Invoice")]
/// enum InvoiceEvent {
///     PaymentDue { #[outbox(aggregate_id)] invoice: u32 },
/// }
///
/// let reminder = outbox::event(InvoiceEvent::PaymentDue { invoice: 7 })
///     .event_id("payment-due-7")
///     .deliver_after(Duration::from_secs(3600))
///     .build()?;
/// assert_eq!(reminder.event_id().as_str(), "payment-due-7");
/// assert_eq!(reminder.aggregate_id(), Some("7"));
/// # Ok::<(), outbox::event::EventError>(())
/// ```
///
/// An event that is relayed from another system, without a Rust type:
///
/// ```
/// use outbox::EventEnvelope;
///
/// let (name, body) = ("UserCreated", br#"{"id":42}"#);
/// let envelope = EventEnvelope::builder(name)
///     .aggregate_type("User")
///     .header("source", "crm")
///     .payload_bytes(body)
///     .build()?;
/// assert_eq!(envelope.headers().get("source"), Some("crm"));
/// # Ok::<(), outbox::event::EventError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built or written"]
pub struct EnvelopeBuilder<K> {
    kind: K,
    event_id: Option<Result<EventId, EventError>>,
    occurred_at: Option<SystemTime>,
    aggregate_type: Result<AggregateName, EventError>,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    headers: Headers,
    deliver_at: Option<SystemTime>,
    deliver_after: Option<Duration>,
    no_listener: bool,
}

/// Marks an [`EnvelopeBuilder`] whose name and payload come from a typed event.
///
/// [`event`] returns such a builder. A program names this type only in signatures: `EnvelopeBuilder<Typed>`.
#[derive(Debug)]
pub struct Typed {
    event_type: EventName,
    payload: Result<Payload, EventError>,
}

/// Marks an [`EnvelopeBuilder`] whose name is a string and whose payload is raw JSON.
///
/// [`EventEnvelope::builder`] returns such a builder; only it has [`payload_json`](EnvelopeBuilder::payload_json) and
/// [`payload_bytes`](EnvelopeBuilder::payload_bytes).
#[derive(Debug)]
pub struct Dynamic {
    event_type: String,
    json: Option<Redacted<String>>,
    bytes: Option<Redacted<Vec<u8>>>,
}

/// Keeps a payload out of `Debug` output.
struct Redacted<T>(T);

impl<T> std::fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

impl<K> EnvelopeBuilder<K> {
    fn new(kind: K) -> Self {
        Self {
            kind,
            event_id: None,
            occurred_at: None,
            aggregate_type: Ok(AggregateName::default()),
            aggregate_id: None,
            tenant_id: None,
            headers: Headers::default(),
            deliver_at: None,
            deliver_after: None,
            no_listener: false,
        }
    }

    /// Sets the event's id, instead of generating one.
    ///
    /// An id of your own makes a write idempotent: writing an id that is in the table already adds no row and is not an
    /// error, so a request that is repeated by its client publishes its event once. Derive the id from what makes the
    /// event unique, such as the id of the request or of the invoice. It may have 1 to 36 characters from `!` to `~`,
    /// for example a UUID with its hyphens.
    ///
    /// The deduplication lasts as long as the row: a delivered event is purged after `purge.retention` (7 days by
    /// default), or deleted at once with [`Completion::Delete`](crate::store::Completion::Delete), and its id can be
    /// written again then. [`Tx::flush`](crate::write::Tx::flush) and
    /// [`Receipt::is_new`](crate::write::Receipt::is_new) tell a new event from a duplicate.
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let outbox = outbox::testing::outbox().listeners(outbox::listener::ListenerRegistry::new()).start().await;
    /// let invoiced = || EventEnvelope::builder("Invoiced").payload_json("{}").event_id("invoice-7");
    /// for _request in ["the first", "its repetition"] {
    ///     let mut tx = outbox.begin().await?;
    ///     tx.write(invoiced())?;
    ///     tx.commit().await?;
    /// }
    /// assert_eq!(outbox.published().await.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn event_id(mut self, id: impl AsRef<str>) -> Self {
        self.event_id = Some(id.as_ref().parse());
        self
    }

    /// Sets the time at which the event happened; the default is the time at which it is built or written, by the clock
    /// of this process.
    ///
    /// Set it for events that happened earlier, such as imported ones. It is information for listeners and for the
    /// metric of the delivery lag: it neither delays the event nor orders it. The time is truncated to whole
    /// microseconds, which every database can store.
    pub fn occurred_at(mut self, time: SystemTime) -> Self {
        self.occurred_at = Some(time);
        self
    }

    /// Sets the aggregate type: a value of a type that derives [`AggregateType`](super::AggregateType), or a name.
    ///
    /// It is part of the key by which the listener is found, together with the event type. For a typed event it
    /// overrides what the type declares with `#[outbox(aggregate = ..)]`.
    ///
    /// ```
    /// use outbox::{AggregateType, EventEnvelope};
    ///
    /// #[derive(AggregateType)]
    /// enum Aggregates { Order, Customer }
    ///
    /// let by_type = EventEnvelope::builder("Moved").payload_json("{}").aggregate_type(Aggregates::Customer);
    /// let by_name = EventEnvelope::builder("Moved").payload_json("{}").aggregate_type("Customer");
    /// assert_eq!(by_type.build()?.aggregate_type(), by_name.build()?.aggregate_type());
    /// # Ok::<(), outbox::event::EventError>(())
    /// ```
    pub fn aggregate_type(mut self, aggregate: impl IntoAggregateName) -> Self {
        self.aggregate_type = aggregate.into_aggregate_name();
        self
    }

    /// Sets the id of the aggregate that the event belongs to, such as the number of an order.
    ///
    /// A typed event sets it by itself if one of its fields is marked `#[outbox(aggregate_id)]`. It is stored in a
    /// column of its own, so that events can be found by it
    /// ([`EventFilter::aggregate_id`](crate::store::EventFilter::aggregate_id)), and it is a field of the spans in
    /// which listeners run. It has no influence on the delivery: events of one aggregate may be delivered concurrently
    /// and in any order. Up to [`MAX_AGGREGATE_ID_BYTES`] long.
    pub fn aggregate_id(mut self, id: impl Into<String>) -> Self {
        self.aggregate_id = Some(id.into());
        self
    }

    /// Sets the tenant that the event belongs to.
    ///
    /// It is metadata: events are neither filtered nor isolated by it. A listener reads it with
    /// [`Meta::tenant_id`](crate::listener::Meta::tenant_id), dead letters can be selected by it, and it is a field of
    /// the spans in which listeners run, unless [`Config::redact_tenant`](crate::Config::redact_tenant) is set. Up to
    /// [`MAX_TENANT_ID_BYTES`] long.
    pub fn tenant(mut self, tenant_id: impl Into<String>) -> Self {
        self.tenant_id = Some(tenant_id.into());
        self
    }

    /// Adds a header, replacing an earlier one with the same key.
    ///
    /// Headers are for what concerns the delivery rather than the event itself, such as a reply address or a content
    /// type; a listener reads them with [`Meta::headers`](crate::listener::Meta::headers). Their values never occur in
    /// log lines or `Debug` output. With the feature `opentelemetry`, the write adds `traceparent` and `tracestate`
    /// unless there is a `traceparent` already.
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(key.into(), value.into());
        self
    }

    /// Delays the delivery until a point in time, for example a reminder or the end of a trial period.
    ///
    /// A time that has already passed when the event is built, by the clock of this process, is no delay: the event is
    /// due when it is committed. A delayed event does not use the hot queue; the poller of some process claims it when
    /// it is due by the clock of the database.
    ///
    /// ```
    /// use outbox::EventEnvelope;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let tomorrow = SystemTime::now() + Duration::from_secs(24 * 60 * 60);
    /// let reminder = EventEnvelope::builder("TrialEnds").payload_json("{}").deliver_at(tomorrow).build()?;
    /// assert!(reminder.delay().is_some());
    /// # Ok::<(), outbox::event::EventError>(())
    /// ```
    pub fn deliver_at(mut self, time: SystemTime) -> Self {
        self.deliver_at = Some(time);
        self
    }

    /// Delays the delivery by a duration, counted from the insert by the clock of the database.
    ///
    /// Zero is refused ([`EventError::DelayZero`]); leave the call out instead. Only one of this method and
    /// [`deliver_at`](Self::deliver_at) can be used ([`EventError::DelayTwice`]).
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.deliver_after = Some(delay);
        self
    }

    pub(super) fn set_by_caller(&self) -> Chosen {
        Chosen { event_id: self.event_id.is_some(), occurred_at: self.occurred_at.is_some() }
    }

    /// Checks the parts and assembles the envelope. `now` is used for every time that was not set.
    fn assemble(
        self,
        now: SystemTime,
        name_and_payload: impl FnOnce(K) -> Result<(EventName, Payload), EventError>,
    ) -> Result<EventEnvelope, EventError> {
        let (event_type, payload) = name_and_payload(self.kind)?;
        if let Some(id) = &self.aggregate_id {
            text::check(Field::AggregateId, id, MAX_AGGREGATE_ID_BYTES)?;
        }
        if let Some(id) = &self.tenant_id {
            text::check(Field::TenantId, id, MAX_TENANT_ID_BYTES)?;
        }
        self.headers.check()?;
        let occurred_at = match self.occurred_at {
            Some(time) => storable(Field::OccurredAt, time)?,
            None => now,
        };
        let delay = delay(now, self.deliver_at, self.deliver_after)?;
        let (event_id, id_used) = match self.event_id {
            Some(id) => (id?, IdUsed::Maybe),
            None => (EventId::generate(), IdUsed::generated()),
        };
        Ok(EventEnvelope::new(Parts {
            event_id,
            event_type,
            occurred_at,
            aggregate_type: self.aggregate_type?,
            aggregate_id: self.aggregate_id,
            tenant_id: self.tenant_id,
            headers: self.headers,
            payload,
            available_at: match delay {
                None => now,
                Some(Delay::Until(time)) => time,
                // `delay` has checked that the sum does not overflow.
                Some(Delay::For(delay)) => now.checked_add(delay).unwrap_or(now),
            },
            delay,
            id_used,
            no_listener: self.no_listener,
        }))
    }
}

impl EnvelopeBuilder<Typed> {
    /// Checks every value and returns the envelope.
    ///
    /// Writing the builder does the same, so call this method only to keep or to inspect the envelope, or to write it
    /// several times.
    ///
    /// # Errors
    /// Returns the error of the first value that cannot be stored:
    ///
    /// - [`EventError::PayloadNotSerializable`] if the event's `Serialize` failed: a map in it has keys that are not
    ///   strings, for example;
    /// - [`EventError::PayloadTooLarge`] above [`MAX_PAYLOAD_BYTES`](super::MAX_PAYLOAD_BYTES): store the content
    ///   elsewhere and write a reference to it;
    /// - [`EventError::Empty`], [`EventError::TooLong`], [`EventError::OuterSpace`] or [`EventError::ControlCharacter`]
    ///   for an aggregate, an aggregate id, a tenant or a header, and [`EventError::EventIdCharacter`] for an id;
    /// - [`EventError::HeadersTooLarge`] above [`MAX_HEADERS_BYTES`](super::MAX_HEADERS_BYTES);
    /// - [`EventError::DelayTwice`], [`EventError::DelayZero`] or [`EventError::TimeOutOfRange`] for a time.
    pub fn build(self) -> Result<EventEnvelope, EventError> {
        self.build_at(clock::now())
    }

    pub(super) fn build_at(self, now: SystemTime) -> Result<EventEnvelope, EventError> {
        self.assemble(now, |Typed { event_type, payload }| Ok((event_type, payload?)))
    }
}

impl EnvelopeBuilder<Dynamic> {
    pub(super) fn dynamic(event_type: String) -> Self {
        Self::new(Dynamic { event_type, json: None, bytes: None })
    }

    /// Sets the payload as JSON text, which is stored as given.
    ///
    /// White space, the order of keys and the form of numbers are kept, so a signature of the text remains valid. The
    /// text is parsed once when the envelope is built, so that every listener can read it.
    pub fn payload_json(mut self, json: impl Into<String>) -> Self {
        self.kind.json = Some(Redacted(json.into()));
        self
    }

    /// Sets the payload as the UTF-8 bytes of JSON text, which is stored as given.
    ///
    /// Use it where the JSON arrives as bytes, such as the body of an HTTP request or a message of a broker.
    pub fn payload_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.kind.bytes = Some(Redacted(bytes.into()));
        self
    }

    /// Checks every value and returns the envelope.
    ///
    /// Writing the builder does the same, so call this method only to keep or to inspect the envelope, or to write it
    /// several times.
    ///
    /// # Errors
    /// Returns the error of the first value that cannot be stored:
    ///
    /// - [`EventError::PayloadMissing`] or [`EventError::PayloadTwice`] unless exactly one of
    ///   [`payload_json`](Self::payload_json) and [`payload_bytes`](Self::payload_bytes) was called;
    /// - [`EventError::PayloadNotJson`], [`EventError::PayloadNotUtf8`] or [`EventError::PayloadTooLarge`] if the
    ///   payload cannot be stored or could not be read back;
    /// - [`EventError::Empty`], [`EventError::TooLong`], [`EventError::OuterSpace`] or [`EventError::ControlCharacter`]
    ///   for the event type, an aggregate, an aggregate id, a tenant or a header, and [`EventError::EventIdCharacter`]
    ///   for an id;
    /// - [`EventError::HeadersTooLarge`] above [`MAX_HEADERS_BYTES`](super::MAX_HEADERS_BYTES);
    /// - [`EventError::DelayTwice`], [`EventError::DelayZero`] or [`EventError::TimeOutOfRange`] for a time.
    pub fn build(self) -> Result<EventEnvelope, EventError> {
        self.build_at(clock::now())
    }

    pub(super) fn build_at(self, now: SystemTime) -> Result<EventEnvelope, EventError> {
        self.assemble(now, |Dynamic { event_type, json, bytes }| {
            let event_type = EventName::new(event_type)?;
            let payload = match (json, bytes) {
                (Some(Redacted(json)), None) => Payload::json(json)?,
                (None, Some(Redacted(bytes))) => Payload::bytes(bytes)?,
                (None, None) => return Err(EventError::PayloadMissing),
                (Some(_), Some(_)) => return Err(EventError::PayloadTwice),
            };
            Ok((event_type, payload))
        })
    }
}
