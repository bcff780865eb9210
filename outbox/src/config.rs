//! The options of an outbox.
//!
//! [`Config`] lists every option with its default. [`Builder`](crate::Builder) has a setter of the same name for each
//! of them, and [`Config::from_env`] reads some from environment variables. [`Mode`] is the role of a process,
//! [`PurgeConfig`] says how long rows are kept. A [`RetryPolicy`] decides when a failed event is tried again;
//! [`Backoff`], exponential with jitter, is the default one.
//!
//! Three policies sound alike and are about different things: [`Unhandled`] about event types that the program declares
//! and no listener in it handles, checked at the start; [`Unroutable`] about rows in the table that no listener of this
//! process handles; and `#[outbox(no_listener)]` marks an event type that needs no listener.

#[doc(no_inline)]
pub use crate::Config;

#[doc(inline)]
pub use outbox_runtime::listener::Unhandled;
#[doc(inline)]
pub use outbox_runtime::store::Completion;
#[doc(inline)]
pub use outbox_runtime::{
    Backoff, BackoffError, EnvError, FailedAttempt, Failure, IntoPool, Mode, OnDead, Ordering,
    OutboxBuilders, PurgeConfig, Relay, Retry, RetryPolicy, Unroutable,
};
