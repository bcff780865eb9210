use std::fmt;

use thiserror::Error;

/// The reason for which an event is invalid.
///
/// Events are validated before any SQL runs, so an invalid one does not affect the business transaction. No
/// variant carries the payload, a header value or an id.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EventError {
    /// A name or id is empty.
    #[error("{0} is empty")]
    Empty(Field),

    /// A text is longer than its column.
    #[error("{field} has {actual} bytes; at most {limit} are allowed")]
    TooLong {
        /// The part of the event.
        field: Field,
        /// The maximum length in bytes.
        limit: usize,
        /// The actual length in bytes.
        actual: usize,
    },

    /// A text begins or ends with white space, which some databases ignore in comparisons.
    #[error("{0} begins or ends with white space")]
    OuterSpace(Field),

    /// A text contains NUL or another control character.
    #[error("{0} contains a control character")]
    ControlCharacter(Field),

    /// An event id has a character outside `!` to `~`.
    #[error("event id may contain only characters from `!` to `~`")]
    EventIdCharacter,

    /// The headers, as JSON, are larger than their column.
    #[error("headers take {actual} bytes as JSON; at most {limit} are allowed")]
    HeadersTooLarge {
        /// The maximum size in bytes.
        limit: usize,
        /// The actual size in bytes.
        actual: usize,
    },

    /// Stored headers are not a JSON object of strings.
    #[error("headers are not a JSON object of strings")]
    HeadersMalformed,

    /// The payload is larger than [`MAX_PAYLOAD_BYTES`](crate::event::MAX_PAYLOAD_BYTES).
    #[error("payload has {actual} bytes; at most {limit} are allowed")]
    PayloadTooLarge {
        /// The maximum size in bytes.
        limit: usize,
        /// The actual size in bytes.
        actual: usize,
    },

    /// The payload is not JSON text that can be read back.
    #[error("payload is not JSON: {reason}")]
    PayloadNotJson {
        /// The parser's error with line and column; it never quotes the content.
        reason: String,
    },

    /// The payload bytes are not UTF-8.
    #[error("payload is not UTF-8 (first bad byte at {offset})")]
    PayloadNotUtf8 {
        /// The offset of the first invalid byte.
        offset: usize,
    },

    /// The event's `Serialize` implementation failed. Its error is dropped, because it may quote the content.
    #[error(
        "payload of `{event_type}` cannot be serialised: a map has keys that are not strings, or a \
         `Serialize` of your own failed"
    )]
    PayloadNotSerializable {
        /// The name of the event type.
        event_type: &'static str,
    },

    /// Neither `payload_json` nor `payload_bytes` was called.
    #[error("no payload was set; call `payload_json` or `payload_bytes`")]
    PayloadMissing,

    /// Both `payload_json` and `payload_bytes` were called.
    #[error("two payloads were set; call only one of `payload_json` and `payload_bytes`")]
    PayloadTwice,

    /// Both `deliver_at` and `deliver_after` were called.
    #[error("two delays were set; call only one of `deliver_at` and `deliver_after`")]
    DelayTwice,

    /// `deliver_after` was called with a delay of zero.
    #[error("`deliver_after` must be greater than zero; leave it out to deliver at once")]
    DelayZero,

    /// A time is outside the years 1970 to 9999, which every database can store.
    #[error("{0} is outside the years 1970 to 9999")]
    TimeOutOfRange(Field),
}

/// The part of an event that an [`EventError`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The event's id.
    EventId,
    /// The name of the event type.
    EventType,
    /// The name of the aggregate type.
    AggregateType,
    /// The aggregate's id.
    AggregateId,
    /// The tenant's id.
    TenantId,
    /// The key of a header.
    HeaderKey,
    /// The value of a header.
    HeaderValue,
    /// The time at which the event happened.
    OccurredAt,
    /// The time at which the event becomes due.
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
