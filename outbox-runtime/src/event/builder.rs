use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::envelope::{IdUsed, Parts};
use super::name::IntoAggregateName;
use super::{
    AggregateName, Delay, EventEnvelope, EventError, EventId, EventName, EventType, Field, Headers,
    MAX_AGGREGATE_ID_BYTES, MAX_TENANT_ID_BYTES, Payload, text,
};
use crate::clock;

/// Starts building an envelope for a typed event.
///
/// `tx.write(..)` takes a typed event as it is. Use this function to set more than the event itself carries:
/// an aggregate id, a tenant, headers, an id of your own, or a delay. The builder can be written without calling
/// [`build`](EnvelopeBuilder::build).
///
/// An event that cannot be serialised is not reported here, but by `build` or by the write.
///
/// ```
/// # use outbox_runtime as outbox;
/// # use std::time::Duration;
/// # fn remind(cancelled: impl outbox::event::EventType) -> Result<(), outbox::event::EventError> {
/// let envelope = outbox::event::event(cancelled)
///     .aggregate_id("7")
///     .tenant("acme")
///     .header("reply-to", "billing")
///     .deliver_after(Duration::from_secs(300))
///     .build()?;
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
/// [`event`] starts one for a typed event, [`EventEnvelope::builder`] one for an event with a dynamic name. `K` is
/// where name and payload come from: with [`Typed`] both come from the event, with [`Dynamic`] the name is a string
/// and the payload is raw JSON.
///
/// The setters check nothing. [`build`](Self::build) checks every value, and so does writing the builder with
/// `tx.write(..)`, before any SQL runs.
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
#[derive(Debug)]
pub struct Typed {
    event_type: EventName,
    payload: Result<Payload, EventError>,
}

/// Marks an [`EnvelopeBuilder`] whose name is a string and whose payload is raw JSON.
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
    /// Writing the same id twice stores one event, so an id of your own makes a write idempotent. It may have
    /// 1 to 36 characters from `!` to `~`.
    pub fn event_id(mut self, id: impl AsRef<str>) -> Self {
        self.event_id = Some(id.as_ref().parse());
        self
    }

    /// Sets the time at which the event happened; the default is the time at which it is built or written.
    ///
    /// The time is truncated to whole microseconds, which every database can store.
    pub fn occurred_at(mut self, time: SystemTime) -> Self {
        self.occurred_at = Some(time);
        self
    }

    /// Sets the aggregate type: a value of a type that derives [`AggregateType`](super::AggregateType), or a name.
    pub fn aggregate_type(mut self, aggregate: impl IntoAggregateName) -> Self {
        self.aggregate_type = aggregate.into_aggregate_name();
        self
    }

    /// Sets the id of the aggregate that the event belongs to.
    pub fn aggregate_id(mut self, id: impl Into<String>) -> Self {
        self.aggregate_id = Some(id.into());
        self
    }

    /// Sets the tenant that the event belongs to.
    pub fn tenant(mut self, tenant_id: impl Into<String>) -> Self {
        self.tenant_id = Some(tenant_id.into());
        self
    }

    /// Adds a header, replacing an earlier one with the same key.
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(key.into(), value.into());
        self
    }

    /// Delays the delivery until a point in time.
    ///
    /// A time that has already passed when the event is built, by the clock of this process, is no delay: the event
    /// is due when it is written.
    pub fn deliver_at(mut self, time: SystemTime) -> Self {
        self.deliver_at = Some(time);
        self
    }

    /// Delays the delivery by a duration, counted from the write by the database's clock.
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.deliver_after = Some(delay);
        self
    }

    fn set_by_caller(&self) -> Chosen {
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
    /// # Errors
    /// Returns the first value that cannot be stored: a payload that cannot be serialised or is too large, an id,
    /// name or header that is empty, too long or has forbidden characters, a time out of range, two delays.
    pub fn build(self) -> Result<EventEnvelope, EventError> {
        self.build_at(clock::now())
    }

    fn build_at(self, now: SystemTime) -> Result<EventEnvelope, EventError> {
        self.assemble(now, |Typed { event_type, payload }| Ok((event_type, payload?)))
    }
}

impl EnvelopeBuilder<Dynamic> {
    pub(super) fn dynamic(event_type: String) -> Self {
        Self::new(Dynamic { event_type, json: None, bytes: None })
    }

    /// Sets the payload as JSON text, which is stored as given.
    pub fn payload_json(mut self, json: impl Into<String>) -> Self {
        self.kind.json = Some(Redacted(json.into()));
        self
    }

    /// Sets the payload as the UTF-8 bytes of JSON text, which is stored as given.
    pub fn payload_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.kind.bytes = Some(Redacted(bytes.into()));
        self
    }

    /// Checks every value and returns the envelope.
    ///
    /// # Errors
    /// Returns the first value that cannot be stored: a payload that is missing, set twice, not JSON or too large,
    /// an id, name or header that is empty, too long or has forbidden characters, a time out of range, two delays.
    pub fn build(self) -> Result<EventEnvelope, EventError> {
        self.build_at(clock::now())
    }

    fn build_at(self, now: SystemTime) -> Result<EventEnvelope, EventError> {
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

fn delay(
    now: SystemTime,
    at: Option<SystemTime>,
    after: Option<Duration>,
) -> Result<Option<Delay>, EventError> {
    match (at, after) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(EventError::DelayTwice),
        (Some(time), None) => {
            let time = storable(Field::DeliverAt, time)?;
            Ok((time > now).then_some(Delay::Until(time)))
        }
        (None, Some(Duration::ZERO)) => Err(EventError::DelayZero),
        (None, Some(delay)) => {
            // The database adds the delay to its own clock; here it is only checked that the sum can be stored.
            let due = now.checked_add(delay);
            storable(Field::DeliverAt, due.ok_or(EventError::TimeOutOfRange(Field::DeliverAt))?)?;
            Ok(Some(Delay::For(delay)))
        }
    }
}

/// 9999-12-31T00:00:00Z, one day before the end of the range of `DATETIME`.
const LAST_STORABLE: Duration = Duration::from_secs(253_402_214_400);

fn storable(field: Field, time: SystemTime) -> Result<SystemTime, EventError> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) if since <= LAST_STORABLE => Ok(clock::to_micros(time)),
        _ => Err(EventError::TimeOutOfRange(field)),
    }
}

/// A value that can be written to the outbox: a typed event, an [`EnvelopeBuilder`] or an [`EventEnvelope`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    label = "this cannot be written to the outbox",
    note = "write a value whose type derives `outbox::EventType`, `outbox::event(..)`, or an \
            `EventEnvelope`"
)]
pub trait IntoEnvelope {
    /// Converts the value into a checked envelope.
    ///
    /// # Errors
    /// Returns the first value of the event that cannot be stored.
    fn into_envelope(self) -> Result<EventEnvelope, EventError>;

    /// Converts the value into a checked envelope, with `now` for every time that was not set.
    #[doc(hidden)]
    fn into_envelope_at(self, now: SystemTime) -> Result<EventEnvelope, EventError>
    where
        Self: Sized,
    {
        let _ = now;
        self.into_envelope()
    }

    /// Returns which of the values that are otherwise generated were set by the caller.
    #[doc(hidden)]
    fn chosen(&self) -> Chosen {
        Chosen::default()
    }
}

/// Which of the values that are otherwise generated for each event were set by the caller.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Chosen {
    pub event_id: bool,
    pub occurred_at: bool,
}

#[diagnostic::do_not_recommend]
impl<E: EventType> IntoEnvelope for E {
    fn into_envelope(self) -> Result<EventEnvelope, EventError> {
        event(self).build()
    }

    fn into_envelope_at(self, now: SystemTime) -> Result<EventEnvelope, EventError> {
        event(self).build_at(now)
    }
}

impl IntoEnvelope for EnvelopeBuilder<Typed> {
    fn into_envelope(self) -> Result<EventEnvelope, EventError> {
        self.build()
    }

    fn into_envelope_at(self, now: SystemTime) -> Result<EventEnvelope, EventError> {
        self.build_at(now)
    }

    fn chosen(&self) -> Chosen {
        self.set_by_caller()
    }
}

impl IntoEnvelope for EnvelopeBuilder<Dynamic> {
    fn into_envelope(self) -> Result<EventEnvelope, EventError> {
        self.build()
    }

    fn into_envelope_at(self, now: SystemTime) -> Result<EventEnvelope, EventError> {
        self.build_at(now)
    }

    fn chosen(&self) -> Chosen {
        self.set_by_caller()
    }
}

impl IntoEnvelope for EventEnvelope {
    fn into_envelope(self) -> Result<EventEnvelope, EventError> {
        Ok(self)
    }
}
