//! The event model, the derives and the listeners, as a user's crate sees them.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#![allow(missing_docs, reason = "these types are used only here")]

mod config;
mod dashboard;
mod decode;
mod docs;
mod envelope;
mod extract;
mod fuzz;
mod macro_docs;
mod metrics;
mod rename;
