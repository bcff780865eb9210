//! probe
use outbox::{AggregateType, EventType, EventEnvelope, ListenerRegistry, Meta, State, listener, IntoEnvelope};
use serde::{Serialize, Deserialize};

#[derive(AggregateType)]
struct Order;

#[derive(Serialize, Deserialize, Debug)]
pub struct OrderPaid { pub cents: u64 }

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { #[outbox(aggregate_id)] order_id: u64, #[serde(rename = "total")] total_cents: u64 },
    Paid(OrderPaid),
    Moved(u64, String),
    #[outbox(no_listener)]
    Cancelled,
}

struct Mailer;

#[listener(event = OrderEvent::Placed { order_id, .. })]
async fn reserve_stock(order_id: u64) -> outbox::Result { println!("{order_id}"); Ok(()) }

#[listener(aggregate = Order, event = OrderEvent::Paid, retry(max_attempts = 5), timeout = "30s")]
async fn send_receipt(paid: OrderPaid, _mailer: State<Mailer>, meta: Meta) -> Result<(), std::io::Error> { println!("{} {}", paid.cents, meta.event_id()); Ok(()) }

#[listener(event = OrderEvent::Moved)]
async fn moved((a, b): &(u64, String), e: &EventEnvelope)  { println!("{a} {b} {e:?}"); }

#[tokio::test]
async fn probe() {
    let l = ListenerRegistry::linked().state(Mailer).build().unwrap();
    for e in [OrderEvent::Placed { order_id: 7, total_cents: 5}, OrderEvent::Paid(OrderPaid { cents: 4 }), OrderEvent::Moved(1, "x".into())] {
        let e = e.into_envelope().unwrap();
        println!("{}", e.payload().as_str());
        let l = l.find(e.aggregate_type(), e.event_type()).unwrap();
        println!("{l:?}");
        l.call(e, 0).await.unwrap();
    }
    let e = OrderEvent::Cancelled.into_envelope().unwrap();
    assert_eq!(e.payload().as_str(), "{}");
    assert!(ListenerRegistry::linked().build().unwrap_err().to_string().contains("State"));
}
