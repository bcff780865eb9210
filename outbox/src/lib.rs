#![cfg_attr(not(doctest), doc = include_str!("links.md"))]
#![doc = include_str!("../README.md")]

pub mod admin;
pub mod config;
pub mod dead;
pub mod error;
pub mod event;
pub mod guide;
pub mod listener;
pub mod metrics;
pub mod tx;

#[cfg(feature = "testing")]
#[doc(inline)]
pub use outbox_runtime::testing;

#[doc(inline)]
pub use outbox_macros::{AggregateType, EventType, listener};

#[doc(inline)]
pub use outbox_runtime::event::{AggregateType, EventEnvelope, EventType, event};
#[doc(inline)]
pub use outbox_runtime::listener::{ListenerError, Meta, Outcome, Result as ListenerResult, State};
#[doc(inline)]
pub use outbox_runtime::write::Tx;
#[doc(inline)]
pub use outbox_runtime::{
    Builder, Config, Error, Outbox, OutboxGroup, Outboxes, Result, builder, group, start,
};

/// The version of sqlx that this crate is built with.
///
/// Its pools and transactions are part of the API, so an application needs the same version. Depend on it directly,
/// or use this re-export: `outbox::sqlx::PgPool`.
pub use outbox_runtime::sqlx;

#[doc(hidden)]
pub use outbox_runtime::private as __private;
