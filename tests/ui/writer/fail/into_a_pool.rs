//@ error at: &pool
#![allow(unused)]

use outbox::tx::Writer;
use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed,
}

async fn place(outbox: Writer<sqlx::Postgres>, pool: sqlx::PgPool) {
    outbox.write_in(&pool, OrderEvent::Placed).await;
}

fn main() {}
