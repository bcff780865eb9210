//@ error at: aggregate

use outbox::AggregateType;

#[derive(AggregateType)]
#[outbox(aggregate = Shop)]
struct Order;

fn main() {}
