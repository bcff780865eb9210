//! A variant is retired the ordinary way, in a crate that tolerates no warning and lets nobody allow
//! one either.

#![deny(warnings)]
#![forbid(missing_docs, missing_debug_implementations, dead_code, unreachable_patterns)]

use outbox::{AggregateType, EventType, listener};

/// What events are about.
#[derive(Debug, AggregateType)]
pub enum Aggregates {
    /// Nobody uses it any more.
    #[deprecated]
    Basket,
    /// An order.
    Order,
}

/// What happens.
#[derive(Debug, EventType)]
#[outbox(aggregate = Aggregates::Order)]
pub enum OrderEvent {
    /// Nobody writes it any more.
    #[deprecated]
    Old {
        /// Its number.
        id: u64,
    },
    /// Its successor.
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
