use sqlx::pool::PoolConnection;

use super::{Backend, Store};

/// A connection for one piece of work. If the work is cut short, nobody knows what the server will
/// still say on it, and a driver may wait for ever for something else: it is closed then instead of
/// going back to the pool.
pub(super) struct Lent<DB: Backend> {
    connection: PoolConnection<DB>,
    returned: bool,
}

impl<DB: Backend> Store<DB> {
    pub(super) async fn lend(&self) -> sqlx::Result<Lent<DB>> {
        Ok(Lent { connection: self.pool.acquire().await?, returned: false })
    }
}

impl<DB: Backend> Lent<DB> {
    pub(super) fn connection(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }

    /// The work came to its end, good or bad.
    pub(super) fn give_back(mut self) {
        self.returned = true;
    }
}

impl<DB: Backend> Drop for Lent<DB> {
    fn drop(&mut self) {
        if !self.returned && DB::DIALECT.remote {
            self.connection.close_on_drop();
        }
    }
}

/// Evaluates an expression with a connection. Not a function, for the reason of
/// [`retrying`](super::contention::retrying).
macro_rules! lending {
    ($store:expr, $connection:ident => $work:expr) => {{
        let mut lent = $store.lend().await?;
        let $connection = lent.connection();
        let result = $work;
        lent.give_back();
        result
    }};
}

pub(super) use lending;
