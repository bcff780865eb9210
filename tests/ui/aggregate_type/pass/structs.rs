use outbox::{AggregateType, EventEnvelope};

#[derive(AggregateType)]
struct Order {
    #[allow(dead_code)]
    id: u64,
}

#[derive(AggregateType)]
#[outbox(name = "customer", alias = "Client")]
struct Customer;

#[derive(AggregateType)]
struct Basket(#[allow(dead_code)] Vec<u8>);

fn main() {
    assert_eq!(Order { id: 1 }.aggregate_name(), "Order");
    assert_eq!(Customer.aggregate_name(), "customer");
    assert_eq!(Basket(vec![]).aggregate_name(), "Basket");
    let event = EventEnvelope::builder("Moved").aggregate_type(Customer).payload_json("{}");
    assert_eq!(event.build().unwrap().aggregate_type(), "customer");
}
