//! The events of the application.

use outbox::{AggregateType, EventType};

/// An order.
#[derive(Debug, AggregateType)]
pub struct Order;

/// The events of an order.
#[derive(Debug, EventType)]
#[outbox(aggregate = Order)]
pub enum OrderEvent {
    /// The order was placed.
    Placed {
        /// The order number.
        order_id: u64,
    },
    /// The order was paid; contains the receipt.
    Paid(String),
    /// The order was closed.
    Closed,
}
