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

use outbox::{EventEnvelope, Meta, State};

struct Mailer;
struct Clock;

#[listener(event = OrderEvent::Paid)]
async fn all(
    clock: State<Clock>,
    meta: Meta,
    paid: String,
    envelope: &EventEnvelope,
    mailer: &State<Mailer>,
) {
    let _: &Clock = &clock;
}

#[listener(event = OrderEvent::Cancelled)]
async fn by_path(mailer: outbox::State<Mailer>, envelope: EventEnvelope) {
    let _: std::sync::Arc<Mailer> = mailer.into_inner();
}

fn main() {}
