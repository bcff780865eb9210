//! The generated code triggers no lint of a strict crate.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations, unreachable_pub, unused)]
#![deny(unused_qualifications, non_camel_case_types, unnameable_types, clippy::all)]

use outbox::{EventType, State, listener};

/// The events of an order.
#[derive(Debug, EventType)]
pub enum OrderEvent {
    /// The order was placed.
    Placed {
        /// The order number.
        order_id: u64,
    },
    /// The order was paid.
    Paid(String),
}

#[listener(aggregate = "Order", event = OrderEvent::Placed { order_id })]
async fn on_placed(order_id: u64, prices: State<Vec<u64>>) -> Result<(), std::io::Error> {
    assert!(prices.contains(&order_id));
    Ok(())
}

#[listener(aggregate = "Order", event = OrderEvent::Paid)]
async fn on_paid(_paid: &str) {}

fn main() {
    assert_eq!(OrderEvent::Placed { order_id: 1 }.event_name(), "Placed");
    assert_eq!(OrderEvent::Paid(String::new()).event_name(), "Paid");
}
