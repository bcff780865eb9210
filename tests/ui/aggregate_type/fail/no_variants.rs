//@ error at: Aggregates

use outbox::AggregateType;

#[derive(AggregateType)]
enum Aggregates {}

fn main() {}
