use std::time::Duration;

use sqlx::Pool;

use crate::store::Backend;

/// Connections of the relay's own, made like the application's, so that a busy application cannot
/// starve it. A statement on them is ended by the server when it takes too long.
pub(super) async fn private<DB: Backend>(
    pool: &Pool<DB>,
    connections: u32,
    patience: Duration,
) -> sqlx::Result<Pool<DB>> {
    let own = (*pool.connect_options()).clone();
    let make = |options| {
        pool.options()
            .clone()
            .max_connections(connections)
            .min_connections(0)
            // The loops notice a broken connection by themselves, and try again.
            .test_before_acquire(false)
            .acquire_timeout(patience)
            .connect_lazy_with(options)
    };
    // The server gives up a little earlier than we do, and so says which statement it was.
    let bounded = make(DB::private(own.clone(), patience.mul_f64(0.9)));
    match bounded.acquire().await {
        Ok(_) => Ok(bounded),
        Err(error) => {
            // A connection pooler between us and the server may refuse start-up parameters.
            let plain = make(own);
            plain.acquire().await?;
            tracing::warn!(%error, "statements are not bounded by the server");
            Ok(plain)
        }
    }
}
