//! What is said: typed events, their names and ids, and the envelope that carries one.

mod builder;
mod envelope;
mod error;
mod headers;
mod id;
pub(crate) mod kind;
mod name;
mod payload;
mod status;
mod text;

#[doc(hidden)]
pub use builder::Chosen;
pub use builder::{Dynamic, EnvelopeBuilder, IntoEnvelope, Typed, event};
pub(crate) use envelope::StoredParts;
pub use envelope::{Delay, EventEnvelope};
pub use error::{EventError, Field};
pub use headers::{Headers, MAX_HEADERS_BYTES};
pub use id::{EventId, MAX_EVENT_ID_BYTES};
pub use kind::{AggregateType, EventType, Global};
pub use name::{
    AggregateName, EventName, IntoAggregateName, MAX_AGGREGATE_NAME_BYTES, MAX_EVENT_NAME_BYTES,
};
pub use payload::{MAX_PAYLOAD_BYTES, Payload};
pub use status::{Mark, Status};

pub use text::{MAX_AGGREGATE_ID_BYTES, MAX_TENANT_ID_BYTES};
