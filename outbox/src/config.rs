//! The options of an outbox.
//!
//! [`Config`] lists every option with its default. [`Builder`](crate::Builder) has a setter of the same name for each
//! of them, and [`Config::from_env`] reads some from environment variables. A [`RetryPolicy`] decides when a failed
//! event is tried again; [`Backoff`] is the default one.

#[doc(no_inline)]
pub use crate::Config;

#[doc(inline)]
pub use outbox_runtime::listener::Unhandled;
#[doc(inline)]
pub use outbox_runtime::store::Completion;
#[doc(inline)]
pub use outbox_runtime::{
    Backoff, BackoffError, EnvError, FailedAttempt, Failure, Mode, PurgeConfig, Retry, RetryPolicy,
    Unroutable,
};
