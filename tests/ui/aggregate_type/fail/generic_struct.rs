//@ error at: T

use outbox::AggregateType;

#[derive(AggregateType)]
struct Order<T>(T);

fn main() {}
