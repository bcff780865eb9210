use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::service::Service;
use crate::store::{Backend, Store};

/// Gives back to the pool the connections that idle loops have kept for long enough. Busy ones do so by
/// themselves.
pub(super) struct StickyConnections<DB: Backend> {
    stores: Vec<Store<DB>>,
    period: Duration,
}

impl<DB: Backend> StickyConnections<DB> {
    /// `None` if there is no limit to how long they keep them.
    pub(super) fn new(stores: Vec<Store<DB>>) -> Option<Self> {
        let period = stores.iter().filter_map(Store::keeps_for).min()?;
        Some(Self { stores, period: period.max(SHORTEST) })
    }
}

/// Not more often, however short the limit is.
const SHORTEST: Duration = Duration::from_millis(10);

impl<DB: Backend> Service for StickyConnections<DB> {
    const NAME: &'static str = "kept connections";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(self.period) => self.stores.iter().for_each(Store::let_go_old),
        }
        Ok(())
    }
}
