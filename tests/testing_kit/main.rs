//! The testing kit, used like in the tests of an application.
//!
//! A separate binary: there is one link-time registry per program, and here it must contain only the listeners
//! of this shop.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod clear;
mod clock;
mod connections;
mod deliver;
mod drain;
mod faults;
mod lag;
mod left_aside;
mod open_transaction;
mod published;
mod sessions;
mod shop;
mod sqlx_test;
mod texts;
