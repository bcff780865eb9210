//! The generated code triggers no lint of a strict crate.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations, unreachable_pub, unused)]
#![deny(unused_qualifications, non_camel_case_types, single_use_lifetimes, unnameable_types)]
#![deny(clippy::all)]

use outbox::EventType;

/// The events of an order.
#[derive(Debug, EventType)]
pub enum OrderEvent {
    /// The order was placed.
    Placed {
        /// The order number.
        order_id: u64,
    },
    /// The order was closed.
    Closed,
}

fn main() {
    assert_eq!(OrderEvent::Closed.event_name(), "Closed");
    assert_eq!(OrderEvent::Placed { order_id: 1 }.event_name(), "Placed");
}
