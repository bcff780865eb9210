//! Tests of the store and the writer, each run on every database.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod adopt;
mod begin;
mod blocked;
mod broken_connections;
mod cancel_safety;
mod claim;
mod cost;
mod dead;
mod duplicates;
mod expected_row;
mod foreign;
mod fuzz;
mod guard_cost;
mod housekeeping;
mod insert;
mod inspect;
mod interleave;
mod lost_transaction;
mod model;
mod no_listener;
mod ordered_cost;
mod pending_change;
mod plan;
mod pooler;
mod purge;
mod registration;
mod schema;
mod settle;
mod state_machine;
mod stats;
mod subscriptions;
mod upgrade;
mod write;
