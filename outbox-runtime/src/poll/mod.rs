//! From the table to the cold queue.
//!
//! # Layout
//! `poller` claims one batch: from the low watermark on (`watermark`), and below it in windows (`scan`, `window`).
//! `continued` claims what comes after rows that were just delivered, where events are ordered.
//! `schedule` decides when, with `idle` and [`Wake`]; `interest` says which events, and `takeover` which of them
//! have lost too many owners. `in_sequence` claims for a relay that delivers one event at a time. `renew` renews the leases of events in flight. `handler` is for applications that
//! work on claimed events themselves.

mod admit;
mod continued;
mod handler;
mod idle;
mod in_sequence;
mod interest;
mod poller;
mod renew;
mod scan;
mod schedule;
pub(crate) mod takeover;
mod wake;
mod watermark;
mod window;

pub(crate) use continued::InOrder;
pub use handler::{ClaimedEvent, PollerHandler};
pub(crate) use interest::Interest;
pub(crate) use poller::Poller;
pub(crate) use renew::Renewer;
pub(crate) use schedule::PollLoop;
pub(crate) use wake::Wake;
