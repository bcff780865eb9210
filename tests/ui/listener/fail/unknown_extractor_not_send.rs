//@ error at: Rc<u8>
#![allow(unused)]

use std::rc::Rc;

use outbox::{AggregateType, EventType, listener};

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

#[listener(event = OrderEvent::Placed { order_id, .. })]
async fn on_placed(order_id: u64, local: Rc<u8>) {}

fn main() {}
