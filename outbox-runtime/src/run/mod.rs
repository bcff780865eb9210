//! Starting it, running it, stopping it.
//!
//! # Layout
//! [`Builder`] gathers what is wanted, `start` checks it, `assemble` puts the parts together, [`Outbox`]
//! is the handle. `relay` is what runs: the loops and how they are stopped. `hot` is the straight way
//! from a commit to a worker. Every loop is a `service`. `config` has the numbers with their defaults,
//! `connections` how many a relay needs, `lint` warns of set-ups that will hurt, `keep` lets go of connections
//! that are too old; `sample`, `gauges` and `notify`
//! are small loops. `stepper` does what the loops do, one step after another, for tests.

mod assemble;
mod builder;
mod config;
mod connections;
mod env;
mod gauges;
mod lint;
mod notify;
mod outbox;
mod purge;
mod relay;
mod sample;
mod start;
#[cfg(feature = "testing")]
mod stepper;
mod sticky;

pub use builder::Builder;
pub use config::{
    Config, ConfigFault, DispatcherConfig, Mode, PollerConfig, PurgeConfig, RetryConfig, Unroutable,
};
pub use env::EnvError;
pub use outbox::Outbox;
pub use purge::{Purge, PurgeReport, PurgeScheduler};
pub use start::{StartError, StartFault};

pub(crate) use notify::NotifySignal;
#[cfg(feature = "testing")]
pub(crate) use stepper::Stepper;
