//! End-to-end delivery through a running outbox, on every database.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod admin;
mod breaker;
mod connection_lifetime;
mod connections;
mod credentials;
mod delivery_log;
mod documented_privileges;
mod due_time;
mod exactly_once;
mod fairness;
mod foreign_rows;
mod forgotten_transaction;
mod full_scan;
mod group;
mod harness;
mod hooks;
mod hot_path;
mod large_order;
mod latency;
mod leases;
mod lifecycle;
mod locked_rows;
mod metric_labels;
mod modes;
mod no_listener;
mod node_log;
mod notify;
mod observability;
mod ordering;
mod ordering_dead;
mod other_languages;
mod outcomes;
mod panics;
mod poller;
mod rights;
mod sessions;
mod shared_table;
mod shared_workers;
mod silent_database;
mod single_active;
mod start;
mod stress;
mod strict_order;
mod subscriptions;
