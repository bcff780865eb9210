#![allow(dead_code)]

use outbox::{AggregateType, EventType, listener};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, customer: String },
    Paid(String),
    Moved(u64, u64),
    Cancelled,
}

use std::time::Duration;

use outbox::{ListenerError, Outcome};

#[listener(event = OrderEvent::Paid, outbox = "a")]
async fn nothing(paid: String) {}

#[listener(event = OrderEvent::Paid, outbox = "b")]
async fn short(paid: String) -> outbox::ListenerResult {
    let _: u64 = paid.parse()?;
    Ok(())
}

#[listener(event = OrderEvent::Paid, outbox = "c")]
async fn own_error(paid: String) -> Result<(), std::num::ParseIntError> {
    paid.parse::<u64>().map(drop)
}

#[listener(event = OrderEvent::Paid, outbox = "d")]
async fn outcome(paid: String) -> Result<Outcome, std::io::Error> {
    Ok(Outcome::RetryAfter(Duration::from_secs(5)))
}

#[listener(event = OrderEvent::Paid, outbox = "e")]
async fn short_outcome(paid: String) -> outbox::ListenerResult<Outcome> {
    Err(ListenerError::permanent("gone"))
}

#[listener(event = OrderEvent::Paid, outbox = "f")]
async fn boxed(paid: String) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Err("boxed".into())
}

#[listener(event = OrderEvent::Paid, outbox = "g")]
async fn text(paid: String) -> Result<(), String> {
    Err("text".to_owned())
}

#[listener(event = OrderEvent::Paid, outbox = "h")]
async fn opaque(paid: String) -> Result<(), impl std::error::Error + Send + Sync + 'static> {
    Err(std::io::Error::other("opaque"))
}

fn main() {}
