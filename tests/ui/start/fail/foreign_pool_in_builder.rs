//@ error at: pool
#![allow(unused)]

/// Stands in for another version of sqlx.
mod sqlx {
    pub struct Postgres;
    pub struct Pool<DB>(DB);
    pub type PgPool = Pool<Postgres>;
}

async fn start(pool: sqlx::PgPool) -> outbox::Result<()> {
    let outbox = outbox::builder(pool).workers(4).start().await?;
    outbox.shutdown().await
}

fn main() {}
