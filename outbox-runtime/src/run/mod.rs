//! Starting, running and stopping an outbox.
//!
//! # Layout
//! [`Builder`] collects options (`options` has their setters, `preset` sets of them), `start` checks them, `assemble` puts the parts together, and [`Outbox`] is the
//! handle. `relay` has the loops and how they are stopped. `config`, `purge_config` and `env` are the options, `policy` what
//! follows from them for a listener, `connections` how many connections a relay needs, and `lint` warns of
//! configurations that cause trouble later. `shared_table` refuses a second outbox that would take events from the
//! first. [`OutboxGroup`] checks and starts several outboxes (`members`), of which [`Outboxes`] is the handle. `relay_lock`
//! lets one node at a time deliver. `purge`, `sample`, `gauges` and `sticky` are small loops; `unroutable` logs what `sample` finds. `stepper`
//! does what the loops do, one step after another, for tests.

mod assemble;
mod builder;
mod concurrently;
mod config;
mod connections;
mod env;
mod gauges;
mod group;
mod lint;
mod members;
mod options;
mod outbox;
mod outboxes;
mod policy;
mod pool;
mod preset;
mod purge;
mod purge_config;
mod registrar;
mod relay;
mod relay_lock;
mod sample;
mod shared_table;
mod start;
mod stepper;
mod sticky;
mod unroutable;
mod writer_only;

pub use builder::Builder;
pub use config::{Config, Mode, Relay, Unroutable};
pub use env::EnvError;
pub use group::OutboxGroup;
pub use members::OutboxBuilders;
pub use outbox::Outbox;
pub use outboxes::Outboxes;
pub use pool::IntoPool;
pub use purge::{Purge, PurgeReport, PurgeScheduler};
pub use purge_config::PurgeConfig;

pub(crate) use stepper::Stepper;
