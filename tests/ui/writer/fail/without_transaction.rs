//@ error at: OrderEvent::Placed
#![allow(unused)]

use outbox::tx::Writer;
use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed,
}

fn place(outbox: Writer<sqlx::Postgres>) {
    outbox.write(OrderEvent::Placed);
}

fn main() {}
