//! The runtime behind the [`outbox`](https://docs.rs/outbox) crate. Depend on that one: it adds the
//! macros and re-exports everything that is public here.
//!
//! # Layout
//! The modules follow the way of an event: [`event`] is what is said, [`listener`] is who hears it,
//! [`mod@write`] puts it into a transaction, [`store`] is the only SQL.

pub mod event;

pub mod listener;

pub mod write;

pub mod store;

mod clock;
mod error;

pub use error::Error;

#[doc(hidden)]
pub mod private;
