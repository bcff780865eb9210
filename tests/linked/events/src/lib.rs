//! What can happen in the application.

use outbox::{AggregateType, EventType};

/// An order.
#[derive(Debug, AggregateType)]
pub struct Order;

/// What can happen to an order.
#[derive(Debug, EventType)]
#[outbox(aggregate = Order)]
pub enum OrderEvent {
    /// It was placed.
    Placed {
        /// Its number.
        order_id: u64,
    },
    /// It was paid with a receipt.
    Paid(String),
    /// It was closed.
    Closed,
}
