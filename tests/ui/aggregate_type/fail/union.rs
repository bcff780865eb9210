//@ error at: union

use outbox::AggregateType;

#[derive(AggregateType)]
union Order {
    id: u64,
}

fn main() {}
