use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Poller;
use crate::catch_panic::catch;
use crate::event::{EventEnvelope, Verdict};
use crate::inflight::{InFlight, QueuedEvent};
use crate::metrics::Meter;
use crate::service::within;
use crate::store::{Backend, Claim, Lease, Renewal};

/// Takes the place of the dispatcher: receives every claimed event, and settles each of them itself.
///
/// Implement it to forward all events of a table to another system, such as a message broker, with batching and
/// concurrency of your own, and pass it to [`Builder::handler`](crate::Builder::handler). For reactions to single event
/// types, listeners are simpler.
///
/// The outbox still claims events, renews their leases, records their verdicts and gives up events that crash their
/// process again and again. Everything that belongs to listener calls does not apply: listeners, interceptors,
/// time-outs, `max_attempts`, the retry policy, circuit breakers and the hot queue. The poller passes events of every
/// type, also those that this program does not know.
///
/// Both methods run on the task of the poller and must not block. A panic of `handle` is logged and ends the round.
///
/// # Examples
///
/// Claimed events go through a bounded channel to a task that publishes them:
///
/// ```no_run
/// use outbox::listener::{ClaimedEvent, PollerHandler};
/// use std::ops::ControlFlow;
/// use std::time::Duration;
/// use tokio::sync::mpsc;
///
/// struct Forward(mpsc::Sender<ClaimedEvent>);
///
/// impl PollerHandler for Forward {
///     fn available_capacity(&self) -> usize {
///         self.0.capacity()
///     }
///
///     fn handle(&self, claimed: ClaimedEvent, _attempts: u32) -> ControlFlow<()> {
///         match self.0.try_send(claimed) {
///             Ok(()) => ControlFlow::Continue(()),
///             Err(_) => ControlFlow::Break(()),
///         }
///     }
/// }
///
/// # struct Broker;
/// # impl Broker { async fn send(&self, _: &str, _: &[u8]) -> std::io::Result<()> { Ok(()) } }
/// async fn publish(mut events: mpsc::Receiver<ClaimedEvent>, broker: Broker) {
///     while let Some(claimed) = events.recv().await {
///         let event = claimed.envelope();
///         match broker.send(event.event_type(), event.payload().as_bytes()).await {
///             Ok(()) => claimed.done(),
///             Err(error) => claimed.retry(Duration::from_secs(5), error.to_string()),
///         }
///     }
/// }
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// let (sender, receiver) = mpsc::channel(100);
/// tokio::spawn(publish(receiver, Broker));
/// let outbox = outbox::builder(pool).handler(Forward(sender)).start().await?;
/// # Ok(())
/// # }
/// ```
pub trait PollerHandler: Send + Sync {
    /// Returns how many events it can take now. With zero nothing is claimed.
    ///
    /// It is called before each round of the poller, which claims at most that many rows.
    fn available_capacity(&self) -> usize;

    /// Takes an event, usually by moving it to a task or a queue. [`ControlFlow::Break`] ends the round: the other
    /// claimed events are released, for any process.
    ///
    /// `attempts` is the number of failed attempts so far.
    fn handle(&self, claimed: ClaimedEvent, attempts: u32) -> ControlFlow<()>;
}

/// An event that this node has claimed for a [`PollerHandler`].
///
/// Its lease is renewed for as long as this value exists, so no other process delivers the event meanwhile. Settle it
/// with [`done`](Self::done), [`retry`](Self::retry) or [`dead`](Self::dead); the verdict is recorded shortly after,
/// together with others. If it is dropped unsettled, or the process crashes, the event becomes available when the lease
/// expires, and is delivered again: delivery is at least once.
///
/// A shutdown waits for claimed events up to `drain_timeout`.
#[must_use = "finish it with `done`, `retry` or `dead`"]
pub struct ClaimedEvent {
    inflight: Arc<InFlight>,
    event: QueuedEvent,
    finished: bool,
    meter: Arc<Meter>,
}

impl std::fmt::Debug for ClaimedEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClaimedEvent").field(&self.event.envelope).finish()
    }
}

impl ClaimedEvent {
    /// Returns the event in its stored form, for example to publish its payload; its id is for deduplication by the
    /// receiver.
    pub fn envelope(&self) -> &EventEnvelope {
        &self.event.envelope
    }

    /// Settles the event as delivered.
    pub fn done(self) {
        self.finish(Verdict::Done);
    }

    /// Settles the attempt as failed; the event is claimed again after a delay.
    ///
    /// The number of failed attempts increases by one, and `error` is stored in the row's `last_error`. There is no
    /// limit: compare the `attempts` of [`handle`](PollerHandler::handle) with one of your own, and call
    /// [`dead`](Self::dead).
    pub fn retry(self, delay: Duration, error: impl Into<String>) {
        let attempts = self.event.attempts.saturating_add(1);
        self.finish(Verdict::Retry { attempts, delay, error: error.into() });
    }

    /// Gives the event up: it becomes a dead letter, with `error` as the reason.
    ///
    /// The attempt counts as a failed one. A dead letter is kept, and can be replayed with
    /// [`DeadEvents`](crate::DeadEvents).
    pub fn dead(self, error: impl Into<String>) {
        let attempts = self.event.attempts.saturating_add(1);
        self.finish(Verdict::Dead { attempts, error: error.into() });
    }

    fn finish(mut self, verdict: Verdict) {
        self.finished = true;
        self.meter.dead_if(self.event.sequence, &self.event.envelope, None, &verdict);
        self.inflight.finish(&self.event, verdict);
    }
}

impl Drop for ClaimedEvent {
    fn drop(&mut self) {
        if !self.finished {
            self.inflight.abandon(&self.event);
        }
    }
}

impl<DB: Backend> Poller<DB> {
    /// Passes claimed rows to a handler.
    pub(super) async fn pass_to(
        &self,
        handler: &dyn PollerHandler,
        rows: Vec<Claim>,
        anchor: Instant,
    ) {
        // Another node may deliver by now: the rows are given back.
        let mut flow = match self.inflight.is_active() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        for row in self.record_starts(rows, anchor).await {
            let attempts = row.attempts;
            let Some(event) = self.inflight.admit_external(row, anchor) else { continue };
            let claimed = ClaimedEvent {
                inflight: Arc::clone(&self.inflight),
                event,
                finished: false,
                meter: Arc::clone(&self.meter),
            };
            if flow.is_continue() {
                let handled = catch(|| handler.handle(claimed, attempts));
                flow = handled.unwrap_or_else(|panic| {
                    tracing::error!(place = panic.place(), "a poller handler panicked");
                    ControlFlow::Break(())
                });
            } else {
                claimed.finish(Verdict::Released);
            }
        }
    }

    /// Records which suspects are started now, and releases the others. Returns the rows to work on.
    async fn record_starts(&self, rows: Vec<Claim>, anchor: Instant) -> Vec<Claim> {
        if !rows.iter().any(Claim::is_suspect) {
            return rows;
        }
        let chosen = self.inflight.may_be_tried(&rows);
        let started: Vec<Renewal> = rows
            .iter()
            .filter(|row| chosen.contains(&row.sequence))
            .map(|row| Renewal { takeovers: row.takeovers.saturating_add(1), ..row.into() })
            .collect();
        let lease = Lease { owner: &self.owner, length: self.inflight.lease().length() };
        let renewal = self.store.renew(lease, &started);
        let renewed = within(self.statement_timeout, "renewing leases", renewal).await;
        let recorded: HashSet<i64> = match renewed {
            Ok(recorded) => recorded.into_iter().collect(),
            Err(error) => {
                tracing::debug!(%error, "events whose owner was lost are released");
                HashSet::new()
            }
        };
        let mut kept = Vec::new();
        for mut row in rows {
            if recorded.contains(&row.sequence) {
                row.takeovers = row.takeovers.saturating_add(1);
            } else if row.is_suspect() {
                self.inflight.settle(row.sequence, row.token, Verdict::Released, anchor);
                continue;
            }
            kept.push(row);
        }
        kept
    }
}
