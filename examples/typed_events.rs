//! Typed events, listeners, and the registry that connects them, without a database.

use outbox::event::IntoEnvelope;
use outbox::listener::{ListenerErrorKind, ListenerRegistry};
use outbox::{AggregateType, EventType, Meta, Outcome, State, listener};
use serde::{Deserialize, Serialize};

#[derive(AggregateType)]
struct Order;

#[derive(Serialize, Deserialize)]
struct Receipt {
    number: String,
}

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: u64,
        total_cents: u64,
    },
    Paid(Receipt),
    Cancelled,
}

/// Application state, which listeners take as `State<Mailer>`.
struct Mailer {
    sender: &'static str,
}

#[listener(event = OrderEvent::Placed { order_id, total_cents })]
async fn reserve_stock(order_id: u64, total_cents: u64) {
    println!("  reserving the goods of order {order_id}, worth {total_cents} cents");
}

#[listener(event = OrderEvent::Paid)]
async fn send_receipt(receipt: Receipt, mailer: State<Mailer>) -> outbox::ListenerResult {
    println!("  mailing receipt {} from {}", receipt.number, mailer.sender);
    Ok(())
}

#[listener(event = OrderEvent::Cancelled)]
async fn refund(meta: Meta) -> Result<Outcome, std::io::Error> {
    match meta.attempts() {
        0 => Err(std::io::Error::other("the bank is closed")),
        _ => Ok(Outcome::Done),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("Without the state of its listeners, the registry cannot be built:");
    if let Err(error) = ListenerRegistry::linked().build() {
        println!("  {error}");
    }

    let listeners =
        ListenerRegistry::linked().state(Mailer { sender: "shop@example.org" }).build()?;
    let events = [
        OrderEvent::Placed { order_id: 7, total_cents: 1200 },
        OrderEvent::Paid(Receipt { number: "R-7".to_owned() }),
        OrderEvent::Cancelled,
    ];
    for event in events {
        let envelope = event.into_envelope()?;
        println!(
            "{} of {} {:?}: {}",
            envelope.event_type(),
            envelope.aggregate_type(),
            envelope.aggregate_id(),
            envelope.payload().as_str(),
        );
        let listener = listeners
            .find(envelope.aggregate_type(), envelope.event_type())
            .ok_or("every event has a listener")?;
        match listener.call(envelope.clone(), 0).await {
            Ok(outcome) => println!("  {outcome:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ListenerErrorKind::Failed);
                println!("  failed: {error}; retrying");
                let outcome =
                    listener.call(envelope, 1).await.map_err(|error| error.to_string())?;
                println!("  {outcome:?}");
            }
        }
    }
    Ok(())
}
