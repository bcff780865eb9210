//! Runs the built program as a user would, on every database, on rows that the real runtime has written.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod bulk;
mod change;
mod doctor;
mod fixture;
mod inspect;
mod ordered;
mod password;
mod program;
mod refusal;
mod subscriptions;
mod tail;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
mod upgrade;
