//! Subscriptions.

mod drop;
mod list;

pub(crate) use drop::drop;
pub(crate) use list::list;

use outbox::admin::Subscription;
use outbox::tx::Backend;

use crate::connect::Session;
use crate::fault::Fault;
use crate::output::COUNT_LIMIT;

/// Stands for the name of the listeners that have none.
pub(super) const UNNAMED: &str = "(unnamed)";

/// The subscriptions of the table.
struct Listing {
    subscriptions: Vec<Subscription>,
    /// Whether there may be more events than the runtime has counted.
    is_capped: bool,
}

impl Listing {
    async fn read<DB: Backend>(session: &Session<DB>) -> Result<Self, Fault> {
        let (admin, fault) = (&session.admin, |error| session.fault(error));
        let subscriptions = admin.subscriptions().await.map_err(fault)?;
        let stats = admin.stats().await.map_err(fault)?;
        let is_capped = stats.pending >= COUNT_LIMIT || stats.dead >= COUNT_LIMIT;
        Ok(Self { subscriptions, is_capped })
    }
}
