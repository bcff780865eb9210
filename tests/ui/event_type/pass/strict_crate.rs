//! Nothing that is generated trips the lints of a strict crate.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations, unreachable_pub, unused)]
#![deny(unused_qualifications, non_camel_case_types, single_use_lifetimes, unnameable_types)]
#![deny(clippy::all)]

use outbox::EventType;

/// Something that happens to an order.
#[derive(Debug, EventType)]
pub enum OrderEvent {
    /// It was placed.
    Placed {
        /// Its number.
        order_id: u64,
    },
    /// It was closed.
    Closed,
}

fn main() {
    assert_eq!(OrderEvent::Closed.event_name(), "Closed");
    assert_eq!(OrderEvent::Placed { order_id: 1 }.event_name(), "Placed");
}
