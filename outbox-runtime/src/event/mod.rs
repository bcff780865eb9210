//! Typed events, their names and ids, and the envelope in which an event is stored and delivered.
//!
//! # Layout
//! `kind` has the traits behind the derives. [`EventEnvelope`] is one event with its metadata, [`EnvelopeBuilder`]
//! makes it, and [`IntoEnvelope`] is what can be written; [`EventId`], [`EventName`], [`Headers`] and [`Payload`] are
//! its parts, each with its limits. `recipient` says whose delivery a row is, [`Status`] is the state machine of a row.

mod aggregate_key;
mod builder;
mod delay;
mod envelope;
mod error;
mod headers;
mod id;
mod into_envelope;
pub(crate) mod kind;
mod name;
mod payload;
mod recipient;
mod status;
mod text;
mod verdict;

pub(crate) use aggregate_key::{AggregateKey, SEPARATOR};
pub use builder::{Dynamic, EnvelopeBuilder, Typed, event};
pub use delay::Delay;
pub use envelope::EventEnvelope;
pub(crate) use envelope::StoredParts;
pub use error::{EventError, Field};
pub use headers::{Headers, MAX_HEADERS_BYTES};
pub use id::{EventId, MAX_EVENT_ID_BYTES};
#[doc(hidden)]
pub use into_envelope::Chosen;
pub use into_envelope::IntoEnvelope;
pub use kind::{AggregateType, EventType, Global};
pub use name::{
    AggregateName, EventName, IntoAggregateName, MAX_AGGREGATE_NAME_BYTES, MAX_EVENT_NAME_BYTES,
};
pub use payload::{MAX_PAYLOAD_BYTES, Payload};
pub use recipient::MAX_SUBSCRIPTION_NAME_BYTES;
#[doc(hidden)]
pub use recipient::Recipient;
pub(crate) use recipient::check_subscription_name;
pub use status::Status;

pub use text::{MAX_AGGREGATE_ID_BYTES, MAX_TENANT_ID_BYTES};
pub use verdict::{Verdict, VerdictKind};
