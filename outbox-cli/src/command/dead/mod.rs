//! Dead letters.

mod bulk;
mod list;

pub(crate) use bulk::{discard, replay};
pub(crate) use list::list;

use outbox_runtime::DeadEvents;
use outbox_runtime::store::Backend;

use crate::connect::Session;

fn dead_events<DB: Backend>(session: &Session<DB>) -> DeadEvents<DB> {
    DeadEvents::new(session.store.pool().clone(), session.table().clone())
}
