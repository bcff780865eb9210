//@ error at: aggregate_id
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
struct Order {
    #[outbox(aggregate_id)]
    id: u64,
}

fn main() {}
