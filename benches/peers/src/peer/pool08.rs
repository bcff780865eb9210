//! Pools of sqlx 0.8, which some of the peers use.

use sqlx08::PgPool;
use sqlx08::postgres::PgPoolOptions;

use crate::Result;

/// Opens a pool with all of its connections.
pub(super) async fn open(url: &str, connections: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(connections)
        .test_before_acquire(false)
        .connect(url)
        .await?)
}
