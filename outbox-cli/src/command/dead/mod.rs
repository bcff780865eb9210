//! What was given up.

mod list;
mod sweep;

pub(crate) use list::list;
pub(crate) use sweep::{discard, replay};

use outbox_runtime::DeadEvents;
use outbox_runtime::store::Backend;

use crate::connect::Session;

fn dead_events<DB: Backend>(session: &Session<DB>) -> DeadEvents<DB> {
    DeadEvents::new(session.store.pool().clone(), session.table().clone())
}
