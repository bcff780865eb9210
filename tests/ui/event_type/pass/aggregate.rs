use outbox::event::IntoEnvelope;
use outbox::{AggregateType, EventType};

#[derive(AggregateType)]
struct Order;

#[derive(AggregateType)]
enum Aggregates {
    Customer,
}

mod shop {
    #[derive(outbox::AggregateType)]
    pub struct Basket;
}

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OfStruct {
    Placed {
        #[outbox(aggregate_id)]
        order_id: u64,
    },
    Paid(#[outbox(aggregate_id)] String, u64),
    Closed,
}

#[derive(EventType)]
#[outbox(aggregate = Aggregates::Customer)]
enum OfVariant {
    Moved,
}

#[derive(EventType)]
#[outbox(aggregate = "Supplier")]
enum OfName {
    Moved,
}

#[derive(EventType)]
#[outbox(aggregate = shop::Basket)]
struct Emptied;

#[derive(EventType)]
struct Untied;

fn main() {
    let about = |event: outbox::EventEnvelope| {
        (event.aggregate_type().to_owned(), event.aggregate_id().map(str::to_owned))
    };
    let of = |name: &str, id: Option<&str>| (name.to_owned(), id.map(str::to_owned));
    let placed = OfStruct::Placed { order_id: 7 };
    assert_eq!(about(placed.into_envelope().unwrap()), of("Order", Some("7")));
    let paid = OfStruct::Paid("x".into(), 1);
    assert_eq!(about(paid.into_envelope().unwrap()), of("Order", Some("x")));
    assert_eq!(about(OfStruct::Closed.into_envelope().unwrap()), of("Order", None));
    assert_eq!(about(OfVariant::Moved.into_envelope().unwrap()), of("Customer", None));
    assert_eq!(about(OfName::Moved.into_envelope().unwrap()), of("Supplier", None));
    assert_eq!(about(Emptied.into_envelope().unwrap()), of("Basket", None));
    assert_eq!(about(Untied.into_envelope().unwrap()), of("__GLOBAL__", None));
}
