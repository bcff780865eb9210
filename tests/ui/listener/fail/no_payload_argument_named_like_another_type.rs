//@ error at: on_cancelled
#![allow(unused)]

use outbox::{EventType, listener};

#[derive(serde::Serialize, serde::Deserialize)]
struct Cancelled;

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Cancelled(Cancelled),
}

#[listener(event = OrderEvent::Cancelled)]
async fn on_cancelled() {}

fn main() {}
