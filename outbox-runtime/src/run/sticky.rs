use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::service::Service;
use crate::store::{Backend, Store};

/// Returns connections to the pool that idle loops have kept for long enough. Busy loops do so by themselves.
pub(super) struct StickyConnections<DB: Backend> {
    stores: Vec<Store<DB>>,
    period: Duration,
}

impl<DB: Backend> StickyConnections<DB> {
    /// Returns `None` if connections may be kept without limit.
    pub(super) fn new(stores: Vec<Store<DB>>) -> Option<Self> {
        let period = stores.iter().filter_map(Store::sticky_for).min()?;
        Some(Self { stores, period: period.max(SHORTEST) })
    }
}

/// Not more often, however short the limit is.
const SHORTEST: Duration = Duration::from_millis(10);

impl<DB: Backend> Service for StickyConnections<DB> {
    const NAME: &'static str = "sticky connections";
    const DOING: &'static str = "returning idle connections to the pool";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(self.period) => self.stores.iter().for_each(Store::release_expired),
        }
        Ok(())
    }
}
