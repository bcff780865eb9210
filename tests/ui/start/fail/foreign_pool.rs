//@ error at: pool
#![allow(unused)]

/// Stands in for another version of sqlx.
mod sqlx {
    pub struct Postgres;
    pub struct Pool<DB>(DB);
    pub type PgPool = Pool<Postgres>;
}

async fn start(pool: sqlx::PgPool) -> outbox::Result<()> {
    let outbox = outbox::start(pool).await?;
    let tx = outbox.begin().await?;
    tx.commit().await?;
    Ok(())
}

fn main() {}
