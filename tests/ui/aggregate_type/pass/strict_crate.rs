//! The generated code triggers no lint of a strict crate.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations, unreachable_pub, unused)]

use outbox::AggregateType;

/// An order.
#[derive(Debug, AggregateType)]
pub struct Order;

fn main() {
    assert_eq!(Order.aggregate_name(), "Order");
}
