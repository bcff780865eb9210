//! A variant is deprecated in a crate that denies warnings and forbids lints, so that no attribute can
//! allow them.

#![deny(warnings)]
#![forbid(missing_docs, missing_debug_implementations, dead_code, unreachable_patterns)]

use outbox::{AggregateType, EventType, listener};

/// The aggregates.
#[derive(Debug, AggregateType)]
pub enum Aggregates {
    /// Not used any more.
    #[deprecated]
    Basket,
    /// An order.
    Order,
}

/// The events of an order.
#[derive(Debug, EventType)]
#[outbox(aggregate = Aggregates::Order)]
pub enum OrderEvent {
    /// Not written any more.
    #[deprecated]
    Old {
        /// The order number.
        id: u64,
    },
    /// The replacement of `Old`.
    New(u64),
}

#[listener(event = OrderEvent::Old { .. })]
async fn on_old() {}

#[listener(event = OrderEvent::New)]
#[deprecated]
async fn on_new(_id: u64) {}

fn main() {
    assert_eq!(OrderEvent::New(1).event_name(), "New");
    assert_eq!(Aggregates::Order.aggregate_name(), "Order");
}
