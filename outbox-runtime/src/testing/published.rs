use crate::event::EventEnvelope;
use crate::store::Backend;
use crate::write::Tx;

/// Returns the events that a transaction has written so far, in order: those that wait for the commit, and those that
/// were flushed. An event whose id existed already is not among them.
///
/// Use it where [`assert_published!`](crate::testing::assert_published) is not enough, for example to compare headers
/// of several events.
///
/// ```
/// # use outbox::tx::Backend;
/// # use outbox::Tx;
/// # fn example<DB: Backend>(tx: Tx<DB>) {
/// let ids: Vec<_> = outbox::testing::published(&tx).iter().map(|event| event.event_id()).collect();
/// # }
/// ```
pub fn published(events: &(impl Published + ?Sized)) -> Vec<EventEnvelope> {
    events.published()
}

/// A source of published events: an open [`Tx`], or a list such as the result of
/// [`TestOutbox::published`](super::TestOutbox::published).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no published events",
    label = "not a transaction, nor a list of events",
    note = "give a `Tx`, or what was committed: `outbox.published().await`"
)]
pub trait Published {
    /// Returns the events, in the order in which they were written.
    fn published(&self) -> Vec<EventEnvelope>;

    /// Returns whether the events are as they were written, and not as they were stored.
    #[doc(hidden)]
    fn is_open(&self) -> bool {
        false
    }
}

impl<DB: Backend> Published for Tx<DB> {
    fn published(&self) -> Vec<EventEnvelope> {
        self.written()
    }

    fn is_open(&self) -> bool {
        true
    }
}

impl Published for [EventEnvelope] {
    fn published(&self) -> Vec<EventEnvelope> {
        self.to_vec()
    }
}

impl Published for Vec<EventEnvelope> {
    fn published(&self) -> Vec<EventEnvelope> {
        self.clone()
    }
}

impl<T: Published + ?Sized> Published for &T {
    fn published(&self) -> Vec<EventEnvelope> {
        (**self).published()
    }

    fn is_open(&self) -> bool {
        (**self).is_open()
    }
}

impl<T: Published + ?Sized> Published for &mut T {
    fn published(&self) -> Vec<EventEnvelope> {
        (**self).published()
    }

    fn is_open(&self) -> bool {
        (**self).is_open()
    }
}
