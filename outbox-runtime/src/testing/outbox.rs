use std::fmt;
use std::ops::Deref;
use std::panic::Location;

use sqlx::{Sqlite, SqlitePool};

use super::{Deliver, Faults, ManualClock, Report};
use crate::Outbox;
use crate::event::{EventEnvelope, IntoEnvelope};
use crate::run::Stepper;
use crate::store::harness::TestHarness;

/// An outbox in the hands of a test. It is an [`Outbox`] on SQLite in memory; what takes an
/// `Outbox<Sqlite>` is given `outbox.clone()`.
///
/// Nothing is delivered behind the test's back: [`drain`](Self::drain) delivers what is due, one event after
/// another, and between two of them nothing happens. Time stands still until [`clock`](Self::clock) is
/// advanced. Delays between attempts have no random part: the first is `retry.base`, and it doubles.
///
/// The database has one connection. A transaction must be ended before anything else can be done. It runs
/// in a thread of its own, so the time of tokio must not be paused (`start_paused`).
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

    /// The database, for the tables of the application. What is made of it goes by the real time, and not by
    /// [`clock`](Self::clock): dead events are at [`dead_events`](Outbox::dead_events), the purge at
    /// [`store`](Outbox::store).
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// The time, for the database and for everybody else.
    pub fn clock(&self) -> &ManualClock {
        &self.harness.clock
    }

    /// What is to go wrong on the connection.
    pub fn faults(&self) -> &Faults {
        &self.harness.faults
    }

    /// Every event that was committed, delivered or not, in the order of writing; without those that were
    /// deleted since.
    ///
    /// # Panics
    /// If the database fails, or a transaction is still open.
    #[track_caller]
    pub fn published(&self) -> impl Future<Output = Vec<EventEnvelope>> + Send {
        let place = Location::caller();
        async move {
            self.free("published", place).await;
            let rows = sound(self.outbox.store().everything().await, place);
            rows.into_iter().map(|stored| stored.row.envelope).collect()
        }
    }

    /// Forgets every event that was published, delivered or not, dead ones included, so that a test can go on
    /// as if it began here.
    ///
    /// Only the outbox's own table is emptied. The application's tables, the time of [`clock`](Self::clock),
    /// faults that have not happened yet and listeners that pause stay as they are.
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
    /// // What the test prepares publishes events of its own.
    /// assert_published!(outbox.published().await, "Placed");
    /// outbox.clear().await;
    /// // What is tested begins here.
    /// assert_published!(outbox.published().await, []);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the database fails, or a transaction is still open.
    #[track_caller]
    pub fn clear(&self) -> impl Future<Output = ()> + Send {
        let place = Location::caller();
        async move {
            self.free("clear", place).await;
            sound(self.stepper().clear().await, place);
        }
    }

    /// Delivers everything that is due until nothing is, a batch at a time: in each those that were never tried
    /// by due time and writing, then those that were. What listeners write is delivered as well. Tells what
    /// became of each event.
    ///
    /// If the database fails, it stops there and the report says so; the next call goes on, as the outbox
    /// would after a while.
    ///
    /// # Panics
    /// If a transaction is still open, or the outbox has been shut down.
    #[track_caller]
    pub fn drain(&self) -> impl Future<Output = Report> + Send {
        let place = Location::caller();
        async move {
            self.free("drain", place).await;
            let mut report = Report::default();
            match self.stepper().drain(|entry, decision| report.note(entry, decision)).await {
                Ok(()) => {}
                Err(error @ crate::Error::Closed) => return sound(Err(error), place),
                Err(error) => report.fail(error),
            }
            for stored in sound(self.outbox.store().everything().await, place) {
                let event = &stored.row.envelope;
                let heard = self.stepper().hears(event);
                if stored.due && !stored.row.status.is_terminal() && !heard {
                    report.note_unroutable(event);
                }
            }
            report
        }
    }

    /// Calls the listener of an event with it, and gives its answer. The event is not in the table, but it
    /// comes to the listener as if it were: as text that is decoded.
    ///
    /// A listener that asks for a transaction gets one, which is committed if it says `Ok(Outcome::Done)`
    /// and undone if not. Interceptors and time-outs are left out, and a panic is the test's.
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
    /// If the event is refused, nobody listens to it, or a transaction is still open.
    #[track_caller]
    pub fn deliver(&self, event: impl IntoEnvelope) -> Deliver<'_> {
        let place = Location::caller();
        Deliver::new(self, sound(event.into_envelope_at(self.clock().now()), place), place)
    }

    pub(super) fn stepper(&self) -> &Stepper<Sqlite> {
        self.outbox.stepper().unwrap_or_else(|| unreachable!("it was started by hand"))
    }

    /// Waits until nobody has the connection, but not for ever.
    #[expect(clippy::panic, reason = "a test fails by panicking")]
    pub(super) async fn free(&self, what: &str, place: &Location<'_>) {
        // One that was dropped is being undone at this moment.
        if self.pool.acquire().await.is_err() {
            panic!(
                "{place}: `{what}` waits for a transaction that is still open; the database of a test has \
                 one connection: commit the transaction, roll it back or drop it first"
            );
        }
    }
}

/// What must not fail in a test.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub(super) fn sound<T, E: std::error::Error>(result: Result<T, E>, place: &Location<'_>) -> T {
    result.unwrap_or_else(|error| panic!("{place}: {}", crate::error::chain(&error)))
}
