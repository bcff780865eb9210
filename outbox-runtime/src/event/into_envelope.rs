use std::time::SystemTime;

use super::{Dynamic, EnvelopeBuilder, EventEnvelope, EventError, EventType, Typed, event};

/// A value that can be written to the outbox.
///
/// [`Tx::write`](crate::write::Tx::write), [`Savepoint::write`](crate::write::Savepoint::write) and
/// [`Writer::write_in`](crate::write::Writer::write_in) take any such value:
///
/// - a typed event, whose type derives [`EventType`];
/// - an [`EnvelopeBuilder`], from [`event()`] or [`EventEnvelope::builder`], without calling `build`;
/// - an [`EventEnvelope`] that was built before.
///
/// Use the trait as a bound for functions of your own that publish events, or implement it for a type that has a stored
/// form of its own:
///
/// ```
/// use outbox::event::{EventError, IntoEnvelope};
/// use outbox::tx::Backend;
/// use outbox::{EventEnvelope, Tx};
///
/// /// A webhook that was received and is stored as it is.
/// struct Webhook { name: String, body: Vec<u8> }
///
/// impl IntoEnvelope for Webhook {
///     fn into_envelope(self) -> Result<EventEnvelope, EventError> {
///         EventEnvelope::builder(self.name).aggregate_type("Webhook").payload_bytes(self.body).build()
///     }
/// }
///
/// fn publish<DB: Backend>(tx: &mut Tx<DB>, event: impl IntoEnvelope) -> outbox::Result<()> {
///     tx.write(event)?;
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    label = "this cannot be written to the outbox",
    note = "write a value whose type derives `outbox::EventType`, `outbox::event(..)`, or an \
            `EventEnvelope`"
)]
pub trait IntoEnvelope {
    /// Converts the value into a checked envelope, with the current time for everything that was not set.
    ///
    /// # Errors
    /// Returns the error of the first value of the event that cannot be stored, as
    /// [`EnvelopeBuilder::build`](EnvelopeBuilder::<Typed>::build) does.
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
