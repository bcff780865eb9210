use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{EventError, Field};
use crate::clock;

/// How long the delivery of an event is delayed, as [`EventEnvelope::delay`](super::EventEnvelope::delay) returns it.
///
/// [`deliver_at`](super::EnvelopeBuilder::deliver_at) and [`deliver_after`](super::EnvelopeBuilder::deliver_after) set
/// it.
///
/// ```
/// use outbox::EventEnvelope;
/// use outbox::event::Delay;
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let envelope = EventEnvelope::builder("Reminder").payload_json("{}").deliver_after(minute).build()?;
/// assert_eq!(envelope.delay(), Some(Delay::For(minute)));
/// # Ok::<(), outbox::event::EventError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// The event is due at this time, from `deliver_at`.
    Until(SystemTime),
    /// The event is due this long after it was inserted, by the clock of the database, from `deliver_after`.
    For(Duration),
}

/// Returns the delay of an event, of which at most one may be set; none if its end has passed.
pub(super) fn delay(
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

/// Returns a time in the precision of every database, unless one of them cannot store it.
pub(super) fn storable(field: Field, time: SystemTime) -> Result<SystemTime, EventError> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) if since <= LAST_STORABLE => Ok(clock::to_micros(time)),
        _ => Err(EventError::TimeOutOfRange(field)),
    }
}
