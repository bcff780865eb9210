use std::fmt;
use std::ops::Deref;
use std::panic::Location;

use sqlx::{Sqlite, SqlitePool};

use super::{Deliver, Faults, ManualClock, Report};
use crate::Outbox;
use crate::event::{EventEnvelope, IntoEnvelope};
use crate::run::Stepper;
use crate::store::harness::TestHarness;

/// An outbox that a test controls step by step, made by [`testing::outbox()`](super::outbox()).
///
/// It derefs to an [`Outbox`] on SQLite in memory; pass `outbox.clone()` to code that takes an `Outbox<Sqlite>`.
///
/// Nothing is delivered in the background: [`drain`](Self::drain) delivers the due events one after another, and
/// nothing happens between two calls. Time stands still until [`clock`](Self::clock) is advanced. The delays
/// between attempts have no jitter: the first is `retry.base`, and it doubles.
///
/// The database has one connection, so a transaction must be ended before anything else can be done. SQLite runs in
/// a thread of its own, so the time of tokio must not be paused (`start_paused`).
pub struct TestOutbox {
    outbox: Outbox<Sqlite>,
    pool: SqlitePool,
    harness: TestHarness,
}

impl fmt::Debug for TestOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestOutbox").finish_non_exhaustive()
    }
}

impl Deref for TestOutbox {
    type Target = Outbox<Sqlite>;

    fn deref(&self) -> &Outbox<Sqlite> {
        &self.outbox
    }
}

impl TestOutbox {
    pub(super) fn new(outbox: Outbox<Sqlite>, pool: SqlitePool, harness: TestHarness) -> Self {
        Self { outbox, pool, harness }
    }

    /// Returns the database's pool, for the application's tables.
    ///
    /// A `DeadEvents` or `Store` that is made from it uses real time and not [`clock`](Self::clock): take those of
    /// the outbox instead, with [`dead_events`](Outbox::dead_events) and [`store`](Outbox::store).
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Returns the clock, which the outbox and its database follow.
    pub fn clock(&self) -> &ManualClock {
        &self.harness.clock
    }

    /// Returns the faults to inject on the database connection.
    pub fn faults(&self) -> &Faults {
        &self.harness.faults
    }

    /// Returns every committed event, delivered or not, in the order in which they were written. Events that were
    /// deleted since are missing.
    ///
    /// # Panics
    /// Panics if the database fails, or if a transaction is still open.
    #[track_caller]
    pub fn published(&self) -> impl Future<Output = Vec<EventEnvelope>> + Send {
        let place = Location::caller();
        async move {
            self.wait_for_connection("published", place).await;
            let rows = unwrap_at(place, self.outbox.store().everything().await);
            rows.into_iter().map(|stored| stored.row.envelope).collect()
        }
    }

    /// Deletes every published event, delivered or not, dead letters included, so that the test can continue with
    /// an empty outbox.
    ///
    /// Only the outbox's own table is emptied. The application's tables, the time of [`clock`](Self::clock),
    /// faults that have not happened yet and paused listeners stay as they are.
    ///
    /// ```
    /// # use outbox_runtime as outbox;
    /// # use outbox::event::EventEnvelope;
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
    /// Panics if the database fails, or if a transaction is still open.
    #[track_caller]
    pub fn clear(&self) -> impl Future<Output = ()> + Send {
        let place = Location::caller();
        async move {
            self.wait_for_connection("clear", place).await;
            unwrap_at(place, self.stepper().clear().await);
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
    /// # Panics
    /// Panics if a transaction is still open, or if the outbox has been shut down.
    #[track_caller]
    pub fn drain(&self) -> impl Future<Output = Report> + Send {
        let place = Location::caller();
        async move {
            self.wait_for_connection("drain", place).await;
            let mut report = Report::default();
            match self.stepper().drain(|event, attempt| report.add(event, attempt)).await {
                Ok(()) => {}
                Err(error @ crate::Error::Closed) => return unwrap_at(place, Err(error)),
                Err(error) => report.fail(error),
            }
            for stored in unwrap_at(place, self.outbox.store().everything().await) {
                if stored.due && !stored.row.status.is_terminal() {
                    self.stepper().report_undeliverable(&stored.row.envelope, &mut report);
                }
            }
            report
        }
    }

    /// Calls the listener of an event and returns its result.
    ///
    /// The event is not written to the table, but it reaches the listener as if it were: its stored form is
    /// decoded. A listener that asks for a transaction gets one, which is committed if it returns
    /// `Ok(Outcome::Done)` and rolled back otherwise. Interceptors and time-outs do not apply, and a panic of the
    /// listener is not caught.
    ///
    /// ```
    /// # use outbox_runtime as outbox;
    /// # use outbox::event::EventEnvelope;
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
    /// Panics if the event is invalid, if no listener handles it, or if a transaction is still open.
    #[track_caller]
    pub fn deliver(&self, event: impl IntoEnvelope) -> Deliver<'_> {
        let place = Location::caller();
        let envelope = unwrap_at(place, event.into_envelope_at(self.clock().now()));
        Deliver::new(self, envelope, place)
    }

    pub(super) fn stepper(&self) -> &Stepper<Sqlite> {
        self.outbox.stepper().unwrap_or_else(|| unreachable!("it was started with a harness"))
    }

    /// Waits until the connection is free, up to the pool's acquire time-out.
    #[expect(clippy::panic, reason = "a test fails by panicking")]
    pub(super) async fn wait_for_connection(&self, method: &str, place: &Location<'_>) {
        // A dropped transaction is rolled back in the background and releases the connection soon.
        if self.pool.acquire().await.is_err() {
            panic!(
                "{place}: `{method}` waits for a transaction that is still open; the database of a test has \
                 one connection: commit the transaction, roll it back or drop it first"
            );
        }
    }
}

/// Unwraps a result that must be `Ok` in a test; panics with the place in the test and the causes of the error.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub(super) fn unwrap_at<T, E: std::error::Error>(place: &Location<'_>, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{place}: {}", crate::error::chain(&error)))
}
