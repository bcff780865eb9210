use std::fmt;

use crate::Error;
use crate::dispatch::Attempt;
use crate::error::chain;
use crate::event::{EventEnvelope, EventId, Verdict, VerdictKind};
use crate::inflight::QueuedEvent;
use crate::store::Claim;

/// The deliveries of a [`drain`](super::TestOutbox::drain): what happened to each event, and counts of it.
///
/// Its `Display` form lists them one by one, so pass it to an assertion as the message. An event that is delivered in
/// several attempts is there once for each. A row that cannot be decoded at all becomes dead and is not in the report.
///
/// ```
/// # use outbox::listener::{Delivery, ListenerRegistry};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # let registry = ListenerRegistry::new().register("Paid", |_: Delivery| async { Err::<(), _>("no address") });
/// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
/// # let mut tx = outbox.begin().await?;
/// # tx.write(outbox::EventEnvelope::json("Paid", "{}")?)?;
/// # tx.commit().await?;
/// let report = outbox.drain().await;
/// assert_eq!((report.delivered(), report.retried()), (0, 1), "{report}");
/// assert_eq!(report.events()[0].error.as_deref(), Some("no address"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use = "it contains the results of the deliveries"]
pub struct Report {
    events: Vec<Reported>,
    failure: Option<Error>,
}

/// One delivery in a [`Report`]: an event, and what followed from calling its listener.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reported {
    /// The event as it was read from its row.
    pub event: EventEnvelope,
    /// The name of the subscription; empty for the unnamed listener.
    pub subscription: String,
    /// What followed from the delivery: a verdict, or why there is none.
    pub result: DeliveryResult,
    /// Why its listener failed, or was left aside.
    pub error: Option<String>,
}

/// What followed from a delivery in a test. Compare it with a [`VerdictKind`] through [`Report::count`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeliveryResult {
    /// The listener was called, or the event was given up, and this verdict was recorded.
    Verdict(VerdictKind),
    /// No listener handles the event; it waits for a process that has one. Its type or its aggregate type may be
    /// misspelt.
    Unroutable,
    /// The event's listener asks for a `Tx` of another database, so that this test cannot call it.
    LeftAside,
    /// The database did not say whether the listener's transaction was committed. If it was not, the event
    /// becomes available when its lease expires.
    Unknown,
}

impl Report {
    /// Returns every delivery, in the order in which they happened; events that could not be delivered come last.
    pub fn events(&self) -> &[Reported] {
        &self.events
    }

    /// Returns why the drain stopped early, if the database failed; `None` if nothing was left to deliver.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Returns the number of events whose listener handled them.
    pub fn delivered(&self) -> usize {
        self.count(VerdictKind::Done)
    }

    /// Returns the number of attempts that failed and are followed by another one, after their delay.
    pub fn retried(&self) -> usize {
        self.count(VerdictKind::Retry)
    }

    /// Returns the number of events that were given up and are dead letters now.
    pub fn dead(&self) -> usize {
        self.count(VerdictKind::Dead)
    }

    /// Returns the number of deliveries that will be repeated without a failed attempt, such as after
    /// [`Outcome::RetryAfter`](crate::listener::Outcome::RetryAfter).
    pub fn deferred(&self) -> usize {
        let is_deferred = |kind| {
            use VerdictKind::{Cancelled, Deferred, Postponed, Released};
            matches!(kind, Deferred | Postponed | Released | Cancelled)
        };
        let results = self.events.iter().map(|reported| reported.result);
        results
            .filter(|result| matches!(result, DeliveryResult::Verdict(kind) if is_deferred(*kind)))
            .count()
    }

    /// Returns the number of due events that no listener of the test handles.
    pub fn unroutable(&self) -> usize {
        self.count(DeliveryResult::Unroutable)
    }

    /// Returns how many events were not delivered because their listener was left aside: it asks for a `Tx` of another
    /// database than that of this test.
    ///
    /// A real outbox with such a listener does not start. A test outbox does, because a test on SQLite in memory may
    /// well be about the program's other listeners. [`Reported::error`] names the listener. To deliver its events,
    /// start the test with [`outbox_on`](super::outbox_on) and a pool of its database.
    pub fn left_aside(&self) -> usize {
        self.count(DeliveryResult::LeftAside)
    }

    /// Returns how many deliveries had this result: a [`VerdictKind`] or a [`DeliveryResult`].
    pub fn count(&self, result: impl Into<DeliveryResult>) -> usize {
        let result = result.into();
        self.events.iter().filter(|reported| reported.result == result).count()
    }

    /// Returns the deliveries to one subscription; those to the unnamed listener if the name is empty.
    ///
    /// ```
    /// # use outbox::listener::{Delivery, ForwardFilter, ListenerRegistry};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # let registry = ListenerRegistry::new()
    /// #     .register("Paid", |_: Delivery| async { Err::<(), _>("no address") })
    /// #     .forward("audit", ForwardFilter::all(), |_: Delivery| async {});
    /// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
    /// # let mut tx = outbox.begin().await?;
    /// # tx.write(outbox::EventEnvelope::json("Paid", "{}")?)?;
    /// # tx.commit().await?;
    /// let report = outbox.drain().await;
    /// assert_eq!(report.of("audit").delivered(), 1, "{report}");
    /// assert_eq!(report.of("").retried(), 1, "{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(&self, subscription: &str) -> Self {
        let events = self.events.iter().filter(|reported| reported.subscription == subscription);
        Self { events: events.cloned().collect(), failure: None }
    }

    pub(super) fn add(&mut self, event: &QueuedEvent, subscription: &str, attempt: &Attempt) {
        let verdict = attempt.verdict.as_ref();
        let result = verdict.map_or(DeliveryResult::Unknown, |verdict| verdict.kind().into());
        let error = verdict.and_then(Verdict::error).map(str::to_owned);
        let error = error.or_else(|| attempt.call.unreachable());
        let (event, subscription) = (event.envelope.clone(), subscription.to_owned());
        self.events.push(Reported { event, subscription, result, error });
    }

    /// Adds a row that was not delivered.
    pub(super) fn add_undelivered(
        &mut self,
        row: &Claim,
        result: DeliveryResult,
        error: Option<String>,
    ) {
        let (event, subscription) = (row.envelope.clone(), row.recipient.name().to_owned());
        self.events.push(Reported { event, subscription, result, error });
    }

    pub(super) fn fail(&mut self, error: Error) {
        self.failure = Some(error);
    }
}

impl Reported {
    /// Returns the unique id of the event, as [`Tx::write`](crate::write::Tx::write) returned it.
    pub fn event_id(&self) -> EventId {
        self.event.event_id()
    }

    /// Returns the name of the event's type.
    pub fn event_type(&self) -> &str {
        self.event.event_type()
    }
}

impl From<VerdictKind> for DeliveryResult {
    fn from(verdict: VerdictKind) -> Self {
        Self::Verdict(verdict)
    }
}

impl fmt::Display for DeliveryResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => verdict.fmt(f),
            Self::Unroutable => f.pad("unroutable"),
            Self::LeftAside => f.pad("left aside"),
            Self::Unknown => f.pad("unknown"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events.is_empty() {
            f.write_str("nothing was due")?;
        }
        for (number, Reported { event, subscription, result, error }) in (1..).zip(&self.events) {
            let separator = if number == 1 { "" } else { "\n" };
            let (aggregate, name) = (event.aggregate_type(), event.event_type());
            write!(f, "{separator}{number}. {aggregate}/{name} {}", event.event_id())?;
            if !subscription.is_empty() {
                write!(f, " for {subscription}")?;
            }
            write!(f, ": {result}")?;
            if let Some(error) = error {
                write!(f, ": {error}")?;
            }
        }
        match &self.failure {
            Some(error) => write!(f, "\nthe drain stopped there: {}", chain(error)),
            None => Ok(()),
        }
    }
}
