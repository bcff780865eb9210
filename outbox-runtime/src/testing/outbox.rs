use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::panic::Location;

use sqlx::Pool;

use super::{Deliver, Faults, ManualClock, Report};
use crate::event::{EventEnvelope, IntoEnvelope};
use crate::listener::Listener;
use crate::run::Stepper;
use crate::store::harness::TestHarness;
use crate::store::{Backend, Cleared, StoreOf};
use crate::{Error, Outbox};

sqlite_by_default! {
    /// An outbox that a test controls step by step.
    ///
    /// [`testing::outbox()`](super::outbox()) makes one on SQLite in memory, and
    /// [`testing::outbox_on`](super::outbox_on) on a pool of the application's own. It derefs to an [`Outbox`]; pass
    /// `outbox.clone()` to code that takes one.
    ///
    /// Nothing is delivered in the background: [`drain`](Self::drain) delivers the due events one after another, and
    /// nothing happens between two calls. Time stands still until [`clock`](Self::clock) is advanced. The delays
    /// between attempts have no jitter: the first is `retry_base`, and it doubles.
    ///
    /// A database in memory has one connection, so a transaction must be ended before anything else can be done. The
    /// time of tokio must not be paused (`start_paused`), because the database answers in real time.
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// # use outbox::listener::{Delivery, ListenerRegistry};
    /// use outbox::testing::TestOutbox;
    ///
    /// async fn shop() -> TestOutbox {
    ///     let builder = outbox::testing::outbox().schema("CREATE TABLE orders (id INTEGER PRIMARY KEY)");
    /// #   let registry = ListenerRegistry::new().register("Placed", |_: Delivery| async {});
    /// #   let builder = builder.listeners(registry);
    ///     builder.start().await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let outbox = shop().await;
    /// let mut tx = outbox.begin().await?;
    /// sqlx::query("INSERT INTO orders VALUES (7)").execute(&mut *tx).await?;
    /// tx.write(EventEnvelope::json("Placed", "{}")?)?;
    /// tx.commit().await?;
    /// assert_eq!(outbox.drain().await.delivered(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub struct TestOutbox<DB> {
        outbox: Outbox<DB>,
        pool: Pool<DB>,
        harness: TestHarness,
    }
}

impl<DB: Backend> fmt::Debug for TestOutbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestOutbox").finish_non_exhaustive()
    }
}

impl<DB: Backend> Deref for TestOutbox<DB> {
    type Target = Outbox<DB>;

    fn deref(&self) -> &Outbox<DB> {
        &self.outbox
    }
}

impl<DB: Backend> TestOutbox<DB> {
    pub(super) fn new(outbox: Outbox<DB>, pool: Pool<DB>, harness: TestHarness) -> Self {
        Self { outbox, pool, harness }
    }

    /// Returns the database's pool, for the application's tables.
    ///
    /// An [`Admin`](crate::Admin) that is made from it uses real time and not [`clock`](Self::clock): take that of the
    /// outbox instead, with [`admin`](Outbox::admin).
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Returns the clock, which the outbox and its statements follow.
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// # use outbox::listener::{Delivery, ListenerRegistry};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let registry = ListenerRegistry::new().register("PaymentDue", |_: Delivery| async {});
    /// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let mut tx = outbox.begin().await?;
    /// tx.write(EventEnvelope::builder("PaymentDue").payload_json("{}").deliver_after(day))?;
    /// tx.commit().await?;
    ///
    /// assert_eq!(outbox.drain().await.delivered(), 0);
    /// outbox.clock().advance(day);
    /// assert_eq!(outbox.drain().await.delivered(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn clock(&self) -> &ManualClock {
        &self.harness.clock
    }

    /// Returns the faults to inject where the outbox talks to the database.
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// use outbox::testing::assert_published;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let outbox = outbox::testing::outbox().start().await;
    /// outbox.faults().commit().lose_answer();
    ///
    /// let mut tx = outbox.begin().await?;
    /// tx.write(EventEnvelope::json("Paid", "{}")?)?;
    /// assert!(tx.commit().await.is_err());
    /// // The application sees an error, although the event was committed.
    /// assert_published!(outbox.published().await, ["Paid"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn faults(&self) -> &Faults {
        &self.harness.faults
    }

    /// Returns every committed event, delivered or not, in the order in which they were written. Events that were
    /// deleted since are missing.
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// use outbox::testing::assert_published;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let outbox = outbox::testing::outbox().start().await;
    /// let mut tx = outbox.begin().await?;
    /// tx.write(EventEnvelope::json("Placed", "{}")?)?;
    /// tx.commit().await?;
    /// assert_published!(outbox.published().await, ["Placed"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if the database fails, or if open transactions use all connections of the pool for longer than its
    /// acquire time-out.
    #[track_caller]
    pub fn published(&self) -> impl Future<Output = Vec<EventEnvelope>> + Send {
        let place = Location::caller();
        async move {
            self.wait_for_connection("published", place).await;
            let rows = unwrap_at(place, self.outbox.store().everything().await);
            // An event has a row for each recipient.
            let mut seen = HashSet::new();
            let events = rows.into_iter().map(|stored| stored.row.envelope);
            events.filter(|event| seen.insert(event.event_id())).collect()
        }
    }

    /// Deletes every published event, delivered or not, dead letters included, so that the test can continue with
    /// an empty outbox.
    ///
    /// Only the outbox's own table is emptied. The application's tables, the time of [`clock`](Self::clock),
    /// faults that have not happened yet and paused listeners stay as they are. Events of a transaction that is still
    /// open are not published yet, so they stay as well.
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// use outbox::testing::assert_published;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let outbox = outbox::testing::outbox().start().await;
    /// # let placed = EventEnvelope::json("Placed", "{}")?;
    /// # let mut tx = outbox.begin().await?;
    /// # tx.write(placed)?;
    /// # tx.commit().await?;
    /// // The setup of the test publishes events of its own.
    /// assert_published!(outbox.published().await, "Placed");
    /// outbox.clear().await;
    /// // The code under test starts here.
    /// assert_published!(outbox.published().await, []);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if the database fails, if a transaction that is still open has locked an event, and in the cases of
    /// [`drain`](Self::drain).
    #[track_caller]
    #[expect(clippy::panic, reason = "a test fails by panicking")]
    pub fn clear(&self) -> impl Future<Output = ()> + Send {
        let place = Location::caller();
        async move {
            self.wait_for_writer("clear", place).await;
            let Cleared { locked, all } = unwrap_at(place, self.stepper().clear().await);
            if locked > 0 {
                panic!(
                    "{place}: `clear` cannot delete {locked} of {all} events, which a transaction has locked: \
                     {END_IT}"
                );
            }
        }
    }

    /// Delivers events until none is due, and returns what happened to each.
    ///
    /// It claims one batch at a time. Within a batch, events without a failed attempt come first, by due time and
    /// then in the order in which they were written; the retried ones follow. Events that listeners write are
    /// delivered as well.
    ///
    /// If the database fails, it stops there and the report has the error; the next call continues, as the loops of
    /// an outbox would after their back-off.
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// # use outbox::listener::{Delivery, ListenerRegistry};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let registry = ListenerRegistry::new().register("Paid", |_: Delivery| async { Err::<(), &str>("no paper") });
    /// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
    /// # let mut tx = outbox.begin().await?;
    /// # tx.write(EventEnvelope::json("Paid", "{}")?)?;
    /// # tx.commit().await?;
    /// let report = outbox.drain().await;
    /// assert_eq!(report.retried(), 1, "{report}");
    /// assert_eq!(report.events()[0].error.as_deref(), Some("no paper"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if the outbox has been shut down, if the events cannot be read at the end, and if a transaction that is
    /// still open blocks it for longer than the pool's acquire time-out: because open transactions use all connections
    /// of the pool, or because SQLite permits one writer at a time.
    ///
    /// # Cancel safety
    /// If the future is dropped during a listener call, the call is cancelled and its event stays claimed: this outbox
    /// does not deliver it any more. The next call continues with the other events.
    #[track_caller]
    pub fn drain(&self) -> impl Future<Output = Report> + Send {
        let place = Location::caller();
        async move {
            self.wait_for_writer("drain", place).await;
            let mut report = Report::default();
            // Boxed: with TLS in the driver it is large.
            let drain = Box::pin(self.stepper().drain(|event, attempt| {
                let listener = event.listener.and_then(|id| self.stepper().listeners().get(id));
                let subscription = listener.map_or("", Listener::subscription);
                report.add(event, subscription, attempt);
            }));
            match drain.await {
                Ok(()) => {}
                Err(error @ Error::Closed) => return unwrap_at(place, Err(error)),
                Err(error) => report.fail(error),
            }
            for stored in unwrap_at(place, self.outbox.store().everything().await) {
                if stored.due && !stored.row.status.is_terminal() {
                    self.stepper().report_undeliverable(&stored.row, &mut report);
                }
            }
            report
        }
    }

    /// Calls the listener of an event and returns its result.
    ///
    /// Use it to test one listener. The event is not written to the table, but it reaches the listener as if it were:
    /// its stored form is decoded. A listener that asks for a transaction gets one, which is committed if it returns
    /// `Ok(Outcome::Done)` and rolled back otherwise. Interceptors and time-outs do not apply, and a panic of the
    /// listener is not caught.
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// # use outbox::listener::{Delivery, ListenerRegistry, Outcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let registry = ListenerRegistry::new().register("Paid", |_: Delivery| async {});
    /// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
    /// # let paid = EventEnvelope::json("Paid", "{}").unwrap();
    /// let answer = outbox.deliver(paid).attempts(2).await;
    /// assert_eq!(answer.unwrap(), Outcome::Done);
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if the event is invalid, or if no listener can handle it: there is none, or it asks for a `Tx` of another
    /// database. For a listener that asks for a transaction, it also panics if a transaction that is still open blocks
    /// it, as in [`drain`](Self::drain).
    ///
    /// # Cancel safety
    /// If the future is dropped, the listener's future is dropped and its transaction is rolled back, unless its
    /// commit was already sent.
    #[track_caller]
    pub fn deliver(&self, event: impl IntoEnvelope) -> Deliver<'_, DB> {
        let place = Location::caller();
        let envelope = unwrap_at(place, event.into_envelope_at(self.clock().now()));
        Deliver::new(self, envelope, place)
    }

    pub(super) fn stepper(&self) -> &Stepper<DB> {
        self.outbox.stepper().unwrap_or_else(|| unreachable!("it was started with a harness"))
    }

    /// Waits until the pool has a free connection, up to its acquire time-out.
    async fn wait_for_connection(&self, method: &str, place: &Location<'_>) {
        // A dropped transaction is rolled back in the background and releases the connection soon.
        let Err(error) = self.outbox.store().wait_for_connection().await else { return };
        let connections = self.pool.options().get_max_connections();
        match error {
            // If the pool could still grow, the server cannot be reached.
            sqlx::Error::PoolTimedOut if self.pool.size() >= connections => match connections {
                1 => still_open(method, place, "the database of a test has one connection"),
                _ => {
                    let all = format!("all {connections} connections of the pool are in use");
                    still_open(method, place, &all)
                }
            },
            error => unwrap_at(place, Err(Error::database("connecting")(error))),
        }
    }

    /// Waits until the pool has a free connection on which the outbox may write.
    pub(super) async fn wait_for_writer(&self, method: &str, place: &Location<'_>) {
        self.wait_for_connection(method, place).await;
        if self.outbox.store().wait_for_writer().await.is_err() {
            still_open(method, place, "SQLite permits one writer at a time");
        }
    }
}

/// The remedy for a transaction that is still open.
const END_IT: &str = "commit the transaction, roll it back or drop it first";

/// Fails a test whose open transaction blocks one of the methods above.
#[expect(clippy::panic, reason = "a test fails by panicking")]
fn still_open(method: &str, place: &Location<'_>, reason: &str) {
    panic!("{place}: `{method}` waits for a transaction that is still open; {reason}: {END_IT}");
}

/// Unwraps a result that must be `Ok` in a test; panics with the place in the test and the causes of the error.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub(super) fn unwrap_at<T, E: std::error::Error>(place: &Location<'_>, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{place}: {}", crate::error::chain(&error)))
}
