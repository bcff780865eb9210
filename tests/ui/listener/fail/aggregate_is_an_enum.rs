//@ error at: Aggregates
#![allow(unused)]

use outbox::{AggregateType, listener};

#[derive(AggregateType)]
enum Aggregates {
    Order,
}

#[listener(aggregate = Aggregates, event = "Paid")]
async fn on_paid(paid: String) {}

fn main() {}
