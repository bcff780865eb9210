//! Tests with several processes, without faults.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod idle_cost;
mod memory;
mod rolling_deployment;
mod single_delivery;
