//! The testing kit, used as an application's tests would.
//!
//! A binary of its own: the link-time registry is one for each program, and here it holds the listeners
//! of this shop and no others.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod clear;
mod clock;
mod deliver;
mod drain;
mod faults;
mod lag;
mod published;
mod shop;
mod texts;
