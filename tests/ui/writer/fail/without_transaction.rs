//@ error at: OrderEvent::Placed
#![allow(unused)]

use outbox::{EventType, Writer};

#[derive(EventType)]
enum OrderEvent {
    Placed,
}

fn place(outbox: Writer<sqlx::Postgres>) {
    outbox.write(OrderEvent::Placed);
}

fn main() {}
