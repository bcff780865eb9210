//@ error at: tx
#![allow(unused)]

use outbox::{EventType, Tx};

#[derive(EventType)]
enum OrderEvent {
    Placed,
}

async fn place(mut tx: Tx<sqlx::Postgres>) {
    tx.commit().await;
    tx.write(OrderEvent::Placed);
}

fn main() {}
