//@ error at: Mailer
#![allow(unused)]

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

struct Mailer;

#[listener(event = OrderEvent::Paid)]
async fn on_paid(paid: String, mailer: &mut Mailer) {}

fn main() {}
