//@ error at: on_paid
#![allow(unused)]

use outbox::{AggregateType, EventType, Meta, State, listener};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, total_cents: u64 },
    Paid(String),
    Moved(u64, u64),
    Cancelled,
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(meta: Meta, mailer: State<u8>) {}

fn main() {}
