//@ error at: &pool
#![allow(unused)]

use outbox::{EventType, Writer};

#[derive(EventType)]
enum OrderEvent {
    Placed,
}

async fn place(outbox: Writer<sqlx::Postgres>, pool: sqlx::PgPool) {
    outbox.write_in(&pool, OrderEvent::Placed).await;
}

fn main() {}
