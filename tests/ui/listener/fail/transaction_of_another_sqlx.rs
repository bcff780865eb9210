//@ error at: Tx<sqlx::Postgres>
//@ errors: 2, because rustc reports a type of an async function also at its body
#![allow(unused)]

use outbox::{EventType, Tx, listener};

/// Stands in for another version of sqlx.
mod sqlx {
    pub struct Postgres;
}

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Paid(String),
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(paid: String, tx: &mut Tx<sqlx::Postgres>) {}

fn main() {}
