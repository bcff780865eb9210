//@ error at: "Order"

use outbox::AggregateType;

#[derive(AggregateType)]
enum Aggregates {
    Order,
    #[outbox(alias = "Order")]
    Basket,
}

fn main() {}
