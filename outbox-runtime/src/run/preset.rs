//! Sets of options that belong together.

use super::{Builder, Config, Mode, Relay};
use crate::ordering::Ordering;
use crate::store::Backend;

impl<DB: Backend> Builder<DB> {
    /// Delivers one event at a time, in the order in which they were written, by one process at a time.
    ///
    /// It sets four options: [`workers`](Self::workers) to 1, [`mode`](Self::mode) to [`Mode::PollerOnly`],
    /// [`max_attempts`](Self::max_attempts) to 1 and [`relay`](Self::relay) to [`Relay::SingleActive`]. An event whose
    /// listener fails becomes a dead letter, and the next one follows. After a crash or a shutdown, the next process
    /// begins with the events that were not settled.
    ///
    /// The order is that of the column `sequence`. Transactions that write at the same time get their numbers before
    /// they commit, so an event that is committed late is delivered late. A delayed event waits for its time, and so
    /// does one whose listener defers it, has a `max_attempts` of its own, or reports that its dependency is
    /// [unreachable](crate::listener::ListenerError::unreachable): other events go before it meanwhile. Where the order matters
    /// only among the events of one order or account, [`Ordering::PerAggregate`] is much faster.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
    /// let ledger = outbox::builder(pool).table("ledger_event").strictly_ordered().start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn strictly_ordered(self) -> Self {
        self.workers(1).mode(Mode::PollerOnly).max_attempts(1).relay(Relay::SingleActive)
    }
}

impl Config {
    /// Returns whether one event at a time is delivered, so that their sequence can decide about the order.
    pub(super) fn is_in_sequence(&self) -> bool {
        self.workers == 1
            && self.mode == Mode::PollerOnly
            && self.relay == Relay::SingleActive
            && self.order == Ordering::Unordered
    }
}
