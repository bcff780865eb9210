//! The whole way of an event, through a running outbox, on every database.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod answers;
mod breaker;
mod connections;
mod credentials;
mod due;
mod exactly_once;
mod fairness;
mod foreign_rows;
mod harness;
mod hot;
mod latency;
mod leases;
mod lifecycle;
mod lifetime;
mod locked;
mod modes;
mod notify;
mod operate;
mod poller;
mod scan;
mod sessions;
mod silence;
mod start;
mod stress;
mod surroundings;
