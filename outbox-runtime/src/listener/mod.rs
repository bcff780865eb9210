//! Listeners, their arguments and return values, and the registry that routes events to them.
//!
//! # Layout
//! `entry` is what the macros register at link time; [`ListenerRegistry`] collects listeners and checks them,
//! `unserved` finds those whose outbox is not started, `missing` events without one, `no_listener` knows those that need
//! none, and `route` finds the listener of an event. [`ForwardFilter`] selects many types for one listener, `recipients`
//! knows who receives an event, also in other processes, and `audience` is what a writer needs of that. `call` invokes a
//! listener with a [`Delivery`], `decode_error` describes a payload that does not fit, `argument` decides by types where
//! its arguments come from, `from_delivery`, `extract` and `in_tx` provide them, `outcome` has its return types. `aside`
//! has the listeners that a test cannot call.

pub(crate) mod argument;
pub(crate) mod aside;
mod audience;
mod call;
mod decode_error;
pub(crate) mod delivery;
pub(crate) mod entry;
pub(crate) mod extract;
mod fault;
mod forward;
pub(crate) mod from_delivery;
pub(crate) mod in_tx;
mod missing;
mod no_listener;
pub(crate) mod outcome;
mod recipients;
mod registry;
mod route;
mod unserved;

pub(crate) use audience::Audience;
pub use call::Listener;
pub use delivery::Delivery;
pub(crate) use entry::declared_event_types;
pub use entry::{ListenerOptions, Place, Timeout};
pub use extract::{Meta, State};
pub use fault::{RegistryError, RegistryFault};
pub use forward::ForwardFilter;
pub(crate) use forward::TypePattern;
pub use from_delivery::{FromDelivery, Needs};
pub use in_tx::{ListenerTx, TxDatabase};
pub(crate) use missing::MissingListener;
pub(crate) use no_listener::NoListener;
pub use outcome::{
    BoxFuture, IntoListenerError, IntoOutcome, ListenerError, ListenerErrorKind, Outcome, Result,
};
pub(crate) use recipients::{Expansion, Recipients, Subscribed};
pub use registry::{ListenerRegistry, Unhandled};
pub(crate) use route::ListenerId;
pub use route::Listeners;
pub(crate) use unserved::{LinkedFor, unserved};
