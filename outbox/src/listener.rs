//! Listeners: the functions that handle events.
//!
//! [`#[listener]`](macro@crate::listener) turns an async function into a listener and registers it at link time. Its
//! arguments are the payload and, in any order, [`State`], [`Meta`], [`EventEnvelope`](crate::EventEnvelope) and
//! [`Tx`](crate::Tx). It returns nothing or a `Result`; [`Result`] is one whose error takes any other with `?`. The
//! answer decides what becomes of the event: see [`Outcome`] and [`ListenerError`].
//!
//! A [`ListenerRegistry`] holds listeners that are registered manually instead, for event types that are known only at
//! run time and for tests. An [`EventInterceptor`] runs around every call, and a [`PollerHandler`] replaces the
//! listeners of an outbox altogether.

#[doc(no_inline)]
pub use crate::{ListenerError, Meta, Outcome, State};

#[doc(inline)]
pub use outbox_runtime::listener::{
    BoxFuture, Delivery, IntoListenerError, IntoOutcome, Listener, ListenerErrorKind,
    ListenerOptions, ListenerRegistry, ListenerTx, Listeners, Place, RegistryError, RegistryFault,
    Result, Timeout, TxDatabase,
};
#[doc(inline)]
pub use outbox_runtime::{ClaimedEvent, EventInterceptor, PollerHandler};
