//! The store and the writer, written once and run on every database.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod begin;
mod broken;
mod claim;
mod cost;
mod cut;
mod dead;
mod duplicates;
mod finish;
mod foreign;
mod fuzz;
mod housekeeping;
mod insert;
mod inspect;
mod interleave;
mod lost;
mod model;
mod plan;
mod pooled;
mod price;
mod purge;
mod schema;
mod stats;
mod write;
