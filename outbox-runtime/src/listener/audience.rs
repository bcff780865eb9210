use std::sync::Arc;

use super::{Listeners, NoListener, Recipients};

/// Who receives the events that a process writes, and which need no listener.
#[derive(Debug, Clone)]
pub(crate) struct Audience {
    pub(crate) recipients: Arc<Recipients>,
    pub(crate) no_listener: Arc<NoListener>,
}

impl Audience {
    /// Knows what this program declares, and no listener of its own: which of them serve the table is not known.
    pub(crate) fn of_program() -> Self {
        Self {
            recipients: Arc::new(Recipients::new([])),
            no_listener: Arc::new(NoListener::of_program()),
        }
    }
}

impl Listeners {
    /// Returns who receives the events that this process writes.
    pub(crate) fn audience(&self) -> Audience {
        Audience {
            recipients: Arc::clone(self.recipients()),
            no_listener: Arc::clone(self.no_listener()),
        }
    }
}
