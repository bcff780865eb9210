use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Faults that a test injects between the outbox and its database, to see what the application does then.
///
/// `outbox.faults().commit().fail()` is one, and `outbox.faults().claim().times(3).lose_answer()` are three. They
/// happen where the outbox talks to the database, so that everything above is the real thing. Several faults at the
/// same point happen one after another.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # let registry = outbox::listener::ListenerRegistry::new();
/// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
/// outbox.faults().commit().lose_answer();            // it is committed, and the connection breaks
/// let mut tx = outbox.begin().await?;
/// tx.write(outbox::EventEnvelope::json("Paid", "{}")?)?;
/// assert!(tx.commit().await.is_err());
/// assert_eq!(outbox.published().await.len(), 1, "an error of a commit does not mean that it failed");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Faults {
    waiting: Arc<Mutex<Waiting>>,
}

type Waiting = HashMap<Point, VecDeque<Fault>>;

/// A place where the outbox talks to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Point {
    Begin,
    Write,
    Commit,
    Claim,
    Record,
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    /// `None` is without end.
    left: Option<u32>,
    effect: Effect,
}

/// The effect of a fault on its statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    Fail,
    LoseAnswer,
    Delay(Duration),
    Hang,
}

impl Faults {
    /// A fault when a transaction is begun: the application's, or that of a listener.
    pub fn begin(&self) -> FaultPoint<'_> {
        self.at(Point::Begin)
    }

    /// A fault when events are inserted: by a commit, a `flush` or `write_in`.
    pub fn write(&self) -> FaultPoint<'_> {
        self.at(Point::Write)
    }

    /// A fault when a transaction is committed: the application's, or that of a listener.
    pub fn commit(&self) -> FaultPoint<'_> {
        self.at(Point::Commit)
    }

    /// A fault when due events are claimed. A search that finds none claims nothing, and has no fault.
    pub fn claim(&self) -> FaultPoint<'_> {
        self.at(Point::Claim)
    }

    /// A fault when an event is settled.
    pub fn record(&self) -> FaultPoint<'_> {
        self.at(Point::Record)
    }

    /// Removes the faults that have not happened yet.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn at(&self, point: Point) -> FaultPoint<'_> {
        FaultPoint { faults: self, point, times: Some(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next fault at a point, if there is one.
    pub(super) fn next(&self, point: Point) -> Option<Effect> {
        let mut waiting = self.lock();
        let queue = waiting.get_mut(&point)?;
        let fault = queue.front_mut()?;
        let effect = fault.effect;
        fault.left = fault.left.map(|left| left.saturating_sub(1));
        if fault.left == Some(0) {
            queue.pop_front();
        }
        Some(effect)
    }
}

/// A point at which a fault is to happen; once unless [`times`](Self::times) or [`always`](Self::always) is called.
#[derive(Debug)]
#[must_use = "say what is to happen: `fail()`, `lose_answer()`, `delay(..)` or `hang()`"]
pub struct FaultPoint<'a> {
    faults: &'a Faults,
    point: Point,
    times: Option<u32>,
}

impl FaultPoint<'_> {
    /// The fault happens `times` times in a row.
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// The fault happens every time, until [`Faults::clear`].
    pub fn always(self) -> Self {
        Self { times: None, ..self }
    }

    /// The connection fails before the statement runs.
    pub fn fail(self) {
        self.add(Effect::Fail);
    }

    /// The statement runs, and the connection fails before its answer arrives.
    pub fn lose_answer(self) {
        self.add(Effect::LoseAnswer);
    }

    /// The statement takes this much longer, in real time.
    pub fn delay(self, delay: Duration) {
        self.add(Effect::Delay(delay));
    }

    /// The statement does not run, and no answer arrives. The outbox itself waits for a third of the lease for an
    /// answer to `claim` and `record`, and to `begin` and `commit` for a listener, between half a second
    /// and 10 seconds; `begin` and `commit` of the application wait without limit.
    pub fn hang(self) {
        self.add(Effect::Hang);
    }

    fn add(self, effect: Effect) {
        if self.times != Some(0) {
            let fault = Fault { left: self.times, effect };
            self.faults.lock().entry(self.point).or_default().push_back(fault);
        }
    }
}

/// What happens to the answer of a statement.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) enum Answer {
    Arrives,
    IsLost,
}

impl Answer {
    pub(crate) fn pass<T>(self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        match (self, result) {
            (Self::IsLost, Ok(_)) => Err(broken("injected: the answer was lost")),
            (_, result) => result,
        }
    }
}

/// Causes a fault before its statement.
pub(super) async fn cause(effect: Option<Effect>) -> sqlx::Result<Answer> {
    match effect {
        None => {}
        Some(Effect::LoseAnswer) => return Ok(Answer::IsLost),
        Some(Effect::Fail) => return Err(broken("injected: the connection failed")),
        Some(Effect::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Effect::Hang) => std::future::pending().await,
    }
    Ok(Answer::Arrives)
}

fn broken(text: &'static str) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::ConnectionReset, text))
}
