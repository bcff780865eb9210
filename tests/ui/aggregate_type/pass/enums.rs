use outbox::{AggregateType, EventEnvelope};

#[derive(AggregateType)]
#[outbox(rename_all = "kebab-case")]
enum Aggregates {
    SalesOrder,
    #[outbox(name = "client", alias = "customer")]
    Customer,
    Basket(#[allow(dead_code)] u64),
    Shelf {
        #[allow(dead_code)]
        row: u8,
    },
}

fn main() {
    assert_eq!(Aggregates::SalesOrder.aggregate_name(), "sales-order");
    assert_eq!(Aggregates::Customer.aggregate_name(), "client");
    assert_eq!(Aggregates::Basket(1).aggregate_name(), "basket");
    assert_eq!(Aggregates::Shelf { row: 1 }.aggregate_name(), "shelf");
    let event = EventEnvelope::json("Moved", "{}").unwrap();
    assert_eq!(event.aggregate_type(), outbox::event::Global.aggregate_name());
}
