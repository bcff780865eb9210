//! Listeners, their arguments and return values, and the registry that routes events to them.
//!
//! # Layout
//! `entry` is what the macros register at link time; [`ListenerRegistry`] collects listeners and checks them,
//! `missing` finds events without one, `no_listener` knows those that need none, and `route` finds the listener of an
//! event. `call` invokes a listener with a [`Delivery`], `decode_error` describes a payload that does not fit, `extract`
//! and `in_tx` provide its arguments, `outcome` has its return types. `aside` has the listeners that a test cannot call.

pub(crate) mod aside;
mod call;
mod decode_error;
pub(crate) mod delivery;
pub(crate) mod entry;
pub(crate) mod extract;
mod fault;
pub(crate) mod in_tx;
mod missing;
mod no_listener;
pub(crate) mod outcome;
mod registry;
mod route;

pub use call::Listener;
pub use delivery::Delivery;
pub(crate) use entry::declared_event_types;
pub use entry::{ListenerOptions, Place, Timeout};
pub use extract::{Meta, State};
pub use fault::{RegistryError, RegistryFault};
pub use in_tx::{ListenerTx, TxDatabase};
pub(crate) use missing::MissingListener;
pub(crate) use no_listener::NoListener;
pub use outcome::{
    BoxFuture, IntoListenerError, IntoOutcome, ListenerError, ListenerErrorKind, Outcome, Result,
};
pub use registry::{ListenerRegistry, Unhandled};
pub(crate) use route::ListenerId;
pub use route::Listeners;
