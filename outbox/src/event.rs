//! Events and their stored form.
//!
//! An application derives [`EventType`] for its domain events and passes their values to
//! [`Tx::write`](crate::Tx::write). What is stored is an [`EventEnvelope`]: the payload as JSON, with an id, the names
//! of the event type and of the aggregate type, and headers. [`event()`](crate::event()) sets more than the type does,
//! such as a tenant or a delay; [`EventEnvelope::builder`] makes an event without a Rust type.
//!
//! Every part is validated when an event is written, before any SQL runs: [`EventError`] says what is wrong.
//!
//! ```
//! use outbox::{EventEnvelope, EventType};
//!
//! #[derive(EventType)]
//! #[outbox(aggregate = "Order")]
//! enum OrderEvent {
//!     Paid { #[outbox(aggregate_id)] order_id: u64 },
//! }
//!
//! let paid: EventEnvelope = outbox::event(OrderEvent::Paid { order_id: 7 }).tenant("acme").build()?;
//! assert_eq!(paid.event_type(), "Paid");
//! assert_eq!(paid.aggregate_id(), Some("7"));
//! assert_eq!(paid.payload().as_str(), r#"{"order_id":7}"#);
//! # Ok::<(), outbox::event::EventError>(())
//! ```

#[doc(no_inline)]
pub use crate::{AggregateType, EventEnvelope, EventType};

#[doc(inline)]
pub use outbox_runtime::event::{
    AggregateName, Delay, Dynamic, EnvelopeBuilder, EventError, EventId, EventName, Field, Global,
    Headers, IntoAggregateName, IntoEnvelope, MAX_AGGREGATE_ID_BYTES, MAX_AGGREGATE_NAME_BYTES,
    MAX_EVENT_ID_BYTES, MAX_EVENT_NAME_BYTES, MAX_HEADERS_BYTES, MAX_PAYLOAD_BYTES,
    MAX_TENANT_ID_BYTES, Payload, Status, Typed,
};
