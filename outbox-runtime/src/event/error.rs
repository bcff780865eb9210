use std::fmt;

use thiserror::Error;

/// The reason for which an event is invalid.
///
/// Events are validated when they are built or written, before any SQL runs, so an invalid one does not affect the
/// business transaction: the caller may write another event and commit. A write returns it as
/// [`Error::Event`](crate::Error::Event). No variant carries the payload, a header value or an id, so the error can be
/// logged.
///
/// Most variants are mistakes of the program or limits of the stored form; repeating the write does not help.
///
/// ```
/// use outbox::EventEnvelope;
/// use outbox::event::{EventError, Field};
///
/// let refused = EventEnvelope::builder("Paid").tenant("").payload_json("{}").build();
/// assert!(matches!(refused, Err(EventError::Empty(Field::TenantId))));
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EventError {
    /// A name, an id or the key of a header is empty. Leave the setter out if there is no value.
    #[error("{0} is empty")]
    Empty(Field),

    /// A text is longer than its column. The limits are constants of this module, such as
    /// [`MAX_AGGREGATE_ID_BYTES`](crate::event::MAX_AGGREGATE_ID_BYTES).
    #[error("{field} has {actual} bytes; at most {limit} are allowed")]
    TooLong {
        /// The part of the event whose text is too long.
        field: Field,
        /// The maximum length in bytes; a character may take up to four.
        limit: usize,
        /// The actual length in bytes.
        actual: usize,
    },

    /// A text begins or ends with white space, which some databases ignore in comparisons. Trim it before.
    #[error("{0} begins or ends with white space")]
    OuterSpace(Field),

    /// A text contains NUL or another control character; in a header only NUL is refused.
    #[error("{0} contains a control character")]
    ControlCharacter(Field),

    /// An event id has a character outside `!` to `~`, for example a space or a letter with an accent.
    #[error("event id may contain only characters from `!` to `~`")]
    EventIdCharacter,

    /// The headers, as JSON, are larger than their column ([`MAX_HEADERS_BYTES`](crate::event::MAX_HEADERS_BYTES)).
    /// Content belongs in the payload.
    #[error("headers take {actual} bytes as JSON; at most {limit} are allowed")]
    HeadersTooLarge {
        /// The maximum size in bytes.
        limit: usize,
        /// The actual size in bytes.
        actual: usize,
    },

    /// Stored headers are not a JSON object of strings, for example because another program has inserted the row.
    #[error("headers are not a JSON object of strings")]
    HeadersMalformed,

    /// The payload is larger than [`MAX_PAYLOAD_BYTES`](crate::event::MAX_PAYLOAD_BYTES). Store the content elsewhere,
    /// such as in a table or an object store, and write a reference to it.
    #[error("payload has {actual} bytes; at most {limit} are allowed")]
    PayloadTooLarge {
        /// The maximum size in bytes.
        limit: usize,
        /// The actual size in bytes.
        actual: usize,
    },

    /// The payload is not JSON text that can be read back: malformed, nested more than 128 levels deep, with a lone
    /// surrogate or with a number beyond `f64`.
    #[error("payload is not JSON: {reason}")]
    PayloadNotJson {
        /// The parser's error with line and column; it never quotes the content.
        reason: String,
    },

    /// The bytes given to [`payload_bytes`](crate::event::EnvelopeBuilder::payload_bytes) are not UTF-8.
    #[error("payload is not UTF-8 (first bad byte at {offset})")]
    PayloadNotUtf8 {
        /// The offset of the first invalid byte, counted from 0.
        offset: usize,
    },

    /// The event's `Serialize` implementation failed. Its error is dropped, because it may quote the content.
    #[error(
        "payload of `{event_type}` cannot be serialised: a map has keys that are not strings, or a \
         `Serialize` of your own failed"
    )]
    PayloadNotSerializable {
        /// The name of the event type, as it would have been stored.
        event_type: &'static str,
    },

    /// An envelope was built by name and has no payload: neither `payload_json` nor `payload_bytes` was called. An
    /// event without content has the payload `{}`.
    #[error("no payload was set; call `payload_json` or `payload_bytes`")]
    PayloadMissing,

    /// Both `payload_json` and `payload_bytes` were called; it would be unclear which one applies.
    #[error("two payloads were set; call only one of `payload_json` and `payload_bytes`")]
    PayloadTwice,

    /// Both `deliver_at` and `deliver_after` were called; it would be unclear which one applies.
    #[error("two delays were set; call only one of `deliver_at` and `deliver_after`")]
    DelayTwice,

    /// `deliver_after` was called with a delay of zero, usually the result of a wrong computation. Leave it out to
    /// deliver at once.
    #[error("`deliver_after` must be greater than zero; leave it out to deliver at once")]
    DelayZero,

    /// A time is outside the years 1970 to 9999, which every database can store, or a delay ends after them.
    #[error("{0} is outside the years 1970 to 9999")]
    TimeOutOfRange(Field),
}

/// The part of an event that an [`EventError`] is about.
///
/// Its `Display` form is the name in error messages, such as `event id` or `header key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The id that was set with [`EnvelopeBuilder::event_id`](crate::event::EnvelopeBuilder::event_id).
    EventId,
    /// The name of the event type.
    EventType,
    /// The name of the aggregate type.
    AggregateType,
    /// The id of the aggregate: what was set with `aggregate_id`, or the field marked `#[outbox(aggregate_id)]`.
    AggregateId,
    /// The tenant that was set with [`EnvelopeBuilder::tenant`](crate::event::EnvelopeBuilder::tenant).
    TenantId,
    /// The key of one of the headers.
    HeaderKey,
    /// The value of one of the headers, which the error does not contain.
    HeaderValue,
    /// The time at which the event happened, set with `occurred_at`.
    OccurredAt,
    /// The time at which the event becomes due: of `deliver_at`, or the end of `deliver_after`.
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
