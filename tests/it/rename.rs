//! Rows that were written under an old name, or from another module, find their listener.

use outbox::event::IntoEnvelope;
use outbox::listener::ListenerRegistry;
use outbox::{AggregateType, EventEnvelope, EventType, Outcome, listener};

/// The old code: other names, another module.
mod old {
    pub(super) mod sales {
        #[derive(outbox::AggregateType)]
        #[outbox(name = "rename.Basket")]
        pub(in super::super) struct Basket;

        #[derive(outbox::EventType)]
        #[outbox(aggregate = Basket, rename_all = "snake_case")]
        pub(in super::super) enum BasketEvent {
            #[outbox(no_listener)]
            CheckedOut { order_id: u64 },
            #[outbox(no_listener)]
            Shipped { order_id: u64 },
        }
    }
}

/// The current code.
#[derive(AggregateType)]
#[outbox(name = "rename.Order", alias = "rename.Basket")]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order, rename_all = "snake_case")]
enum OrderEvent {
    #[outbox(alias = "checked_out", alias = "ordered")]
    Placed {
        order_id: u64,
    },
    Shipped {
        order_id: u64,
    },
}

#[listener(outbox = "rename", event = OrderEvent::Placed { order_id })]
async fn on_placed(order_id: u64) -> outbox::ListenerResult {
    if order_id == 7 { Ok(()) } else { Err("another order".into()) }
}

#[listener(outbox = "rename", event = OrderEvent::Shipped { order_id })]
async fn on_shipped(order_id: u64) -> outbox::ListenerResult {
    if order_id == 7 { Ok(()) } else { Err("another order".into()) }
}

async fn deliver(envelope: EventEnvelope) -> (String, Outcome) {
    let listeners = ListenerRegistry::linked_for("rename").build().unwrap();
    let listener = listeners
        .find(envelope.aggregate_type(), envelope.event_type())
        .unwrap_or_else(|| panic!("no listener for {envelope:?}"));
    (listener.name().to_owned(), listener.call(envelope, 0).await.unwrap())
}

#[tokio::test]
async fn rows_written_under_old_names_are_delivered() {
    use old::sales::BasketEvent;
    let checked_out = BasketEvent::CheckedOut { order_id: 7 }.into_envelope().unwrap();
    assert_eq!(checked_out.event_type(), "checked_out");
    assert_eq!(checked_out.aggregate_type(), "rename.Basket");
    assert_eq!(deliver(checked_out).await, ("`it::rename::on_placed`".to_owned(), Outcome::Done));
    let shipped = BasketEvent::Shipped { order_id: 7 }.into_envelope().unwrap();
    assert_eq!(deliver(shipped).await, ("`it::rename::on_shipped`".to_owned(), Outcome::Done));
}

#[tokio::test]
async fn every_combination_of_names_and_aliases_finds_the_listener() {
    for aggregate in ["rename.Order", "rename.Basket"] {
        for event in ["placed", "checked_out", "ordered"] {
            let row = EventEnvelope::builder(event)
                .aggregate_type(aggregate)
                .payload_json(r#"{"order_id":7}"#)
                .build()
                .unwrap();
            assert_eq!(deliver(row).await.0, "`it::rename::on_placed`");
        }
    }
    let listeners = ListenerRegistry::linked_for("rename").build().unwrap();
    assert!(listeners.find("rename.Order", "Placed").is_none());
    assert!(listeners.find("Order", "placed").is_none());
}

#[test]
fn new_code_writes_the_new_name() {
    let envelope = OrderEvent::Placed { order_id: 7 }.into_envelope().unwrap();
    assert_eq!(envelope.event_type(), "placed");
    assert_eq!(envelope.aggregate_type(), "rename.Order");
    let module = module_path!();
    assert!(!format!("{envelope:?}").contains(module), "a Rust path is stored");
}
