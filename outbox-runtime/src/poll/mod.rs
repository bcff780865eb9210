//! From the table to the cold queue.
//!
//! # Layout
//! `poller` claims one batch: from the low watermark on (`watermark`), and below it in windows (`scan`, `window`).
//! `schedule` decides when, with `idle` and [`Wake`]; `interest` says which events, and `takeover` which of them
//! have lost too many owners. `renew` renews the leases of events in flight. `handler` is for applications that
//! work on claimed events themselves.

mod handler;
mod idle;
mod interest;
mod poller;
mod renew;
mod scan;
mod schedule;
pub(crate) mod takeover;
mod wake;
mod watermark;
mod window;

pub use handler::{ClaimedEvent, PollerHandler};
pub(crate) use interest::Interest;
pub(crate) use poller::Poller;
pub(crate) use renew::Renewer;
pub(crate) use schedule::PollLoop;
pub(crate) use wake::Wake;
