//@ error at: name = "b"

use outbox::AggregateType;

#[derive(AggregateType)]
#[outbox(name = "a", name = "b")]
struct Order;

fn main() {}
