//! Starting, running and stopping an outbox.
//!
//! # Layout
//! [`Builder`] collects options, `start` checks them, `assemble` puts the parts together, and [`Outbox`] is the
//! handle. `relay` has the loops and how they are stopped. `config` and `env` are the options, `policy` what
//! follows from them for a listener, `connections` how many connections a relay needs, and `lint` warns of
//! configurations that cause trouble later. `shared_table` refuses a second outbox that would take events from the
//! first. `purge`, `sample`, `gauges` and `sticky` are small loops. `stepper` does what the loops do, one step after
//! another, for tests.

mod assemble;
mod builder;
mod config;
mod connections;
mod env;
mod gauges;
mod lint;
mod outbox;
mod policy;
mod purge;
mod relay;
mod sample;
mod shared_table;
mod start;
mod stepper;
mod sticky;

pub use builder::Builder;
pub use config::{
    Config, DispatcherConfig, Mode, PollerConfig, PurgeConfig, RetryConfig, Unroutable,
};
pub use env::EnvError;
pub use outbox::Outbox;
pub use purge::{Purge, PurgeReport, PurgeScheduler};

pub(crate) use stepper::Stepper;
