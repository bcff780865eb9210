//@ error at: State<Rc<u8>>
#![allow(unused)]

use outbox::{AggregateType, EventType, State, listener};

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

use std::rc::Rc;

#[listener(event = OrderEvent::Paid)]
async fn on_paid(paid: String, local: State<Rc<u8>>) {}

fn main() {}
