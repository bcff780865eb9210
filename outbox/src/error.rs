//! Errors in detail.
//!
//! [`Error`] is the error of every operation; its page groups the variants by what to do about them. [`StartError`]
//! collects everything that prevents the start of an outbox, each as a [`StartFault`] with its remedy; [`ConfigFault`]
//! is about an option, [`SchemaError`] about the table. [`ShutdownError`] collects the errors of a group of outboxes that
//! are shut down. [`DatabaseErrorKind`] classifies errors of the three databases.
//!
//! Errors of single parts are with them: [`EventError`](crate::event::EventError),
//! [`RegistryFault`](crate::listener::RegistryFault), [`EnvError`](crate::config::EnvError). What a listener returns is
//! a [`ListenerError`](crate::ListenerError).

#[doc(no_inline)]
pub use crate::{Error, Result};

#[doc(inline)]
pub use outbox_runtime::store::{DatabaseErrorKind, SchemaError};
#[doc(inline)]
pub use outbox_runtime::{ConfigFault, ShutdownError, ShutdownFailure, StartError, StartFault};
