use std::fmt;

use thiserror::Error;

/// Why an event was refused. It is always refused before the database hears of it, so the business
/// transaction is untouched.
///
/// No variant carries the payload, a header value or an id.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EventError {
    /// A name or id has no characters.
    #[error("{0} is empty")]
    Empty(Field),

    /// A text is longer than its column.
    #[error("{field} has {actual} bytes; at most {limit} are allowed")]
    TooLong {
        /// Which text.
        field: Field,
        /// The most bytes it may have.
        limit: usize,
        /// The bytes it has.
        actual: usize,
    },

    /// A text begins or ends with white space, which some databases ignore when they compare.
    #[error("{0} begins or ends with white space")]
    OuterSpace(Field),

    /// A text contains NUL or another control character.
    #[error("{0} contains a control character")]
    ControlCharacter(Field),

    /// An event id has a character outside `!` to `~`.
    #[error("event id may only have characters from `!` to `~`")]
    EventIdCharacter,

    /// The headers, as JSON, are larger than their column.
    #[error("headers take {actual} bytes as JSON; at most {limit} are allowed")]
    HeadersTooLarge {
        /// The most bytes they may take.
        limit: usize,
        /// The bytes they take.
        actual: usize,
    },

    /// Stored headers are not a JSON object of strings.
    #[error("headers are not a JSON object of strings")]
    HeadersMalformed,

    /// The payload is larger than [`MAX_PAYLOAD_BYTES`](crate::event::MAX_PAYLOAD_BYTES).
    #[error("payload has {actual} bytes; at most {limit} are allowed")]
    PayloadTooLarge {
        /// The most bytes it may have.
        limit: usize,
        /// The bytes it has.
        actual: usize,
    },

    /// The payload is not JSON text that can be read back.
    #[error("payload is not JSON: {reason}")]
    PayloadNotJson {
        /// What the parser met and where; never the content.
        reason: String,
    },

    /// The payload bytes are not UTF-8.
    #[error("payload is not UTF-8 (first bad byte at {offset})")]
    PayloadNotUtf8 {
        /// Where the first bad byte is.
        offset: usize,
    },

    /// The event's own `Serialize` failed. What it said is not kept: it may quote the content.
    #[error(
        "payload of `{event_type}` cannot be serialised: a map has keys that are not strings, or a \
         `Serialize` of your own failed"
    )]
    PayloadNotSerializable {
        /// The event's name.
        event_type: &'static str,
    },

    /// Neither `payload_json` nor `payload_bytes` was called.
    #[error("no payload was given; call `payload_json` or `payload_bytes`")]
    PayloadMissing,

    /// Both `payload_json` and `payload_bytes` were called.
    #[error("two payloads were given; call only one of `payload_json` and `payload_bytes`")]
    PayloadTwice,

    /// Both `deliver_at` and `deliver_after` were called.
    #[error("two delays were given; call only one of `deliver_at` and `deliver_after`")]
    DelayTwice,

    /// `deliver_after` was given no time at all.
    #[error("`deliver_after` was given a zero delay; leave it out to deliver at once")]
    DelayZero,

    /// A time is outside the years 1970 to 9999, which every database can store.
    #[error("{0} is outside the years 1970 to 9999")]
    TimeOutOfRange(Field),
}

/// The part of an event that an [`EventError`] speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The event's id.
    EventId,
    /// The event's name.
    EventType,
    /// The aggregate's name.
    AggregateType,
    /// The aggregate's id.
    AggregateId,
    /// The tenant.
    TenantId,
    /// A header's key.
    HeaderKey,
    /// A header's value.
    HeaderValue,
    /// When it happened.
    OccurredAt,
    /// When it may be delivered.
    DeliverAt,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EventId => "event id",
            Self::EventType => "event type",
            Self::AggregateType => "aggregate type",
            Self::AggregateId => "aggregate id",
            Self::TenantId => "tenant id",
            Self::HeaderKey => "header key",
            Self::HeaderValue => "header value",
            Self::OccurredAt => "occurrence time",
            Self::DeliverAt => "delivery time",
        })
    }
}
