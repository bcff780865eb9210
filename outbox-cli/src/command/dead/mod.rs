//! Dead letters.

mod bulk;
mod list;

pub(crate) use bulk::{discard, replay};
pub(crate) use list::list;

use outbox::dead::DeadEvents;
use outbox::tx::Backend;

use crate::connect::Session;

fn dead_events<DB: Backend>(session: &Session<DB>) -> DeadEvents<DB> {
    session.admin.dead()
}
