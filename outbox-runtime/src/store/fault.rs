use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Faults that a test has the connection make.
///
/// `outbox.faults().commit().fail()` is one, and `outbox.faults().claim().times(3).lose_answer()` are
/// three. They happen where the outbox talks to the database, so everything above is the real thing.
/// Several at the same point happen one after another.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    waiting: Arc<Mutex<Waiting>>,
}

type Waiting = HashMap<Point, VecDeque<Fault>>;

/// Where the outbox talks to the database.
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
    /// `None` is for ever.
    left: Option<u32>,
    effect: Effect,
}

/// What happens in place of the statement, or around it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    Fail,
    LoseAnswer,
    Delay(Duration),
    Hang,
}

impl Faults {
    /// When a transaction is begun: the application's, or that of a listener.
    pub fn begin(&self) -> FaultPoint<'_> {
        self.at(Point::Begin)
    }

    /// When events are inserted: by a commit, a `flush` or `write_in`.
    pub fn write(&self) -> FaultPoint<'_> {
        self.at(Point::Write)
    }

    /// When a transaction is committed: the application's, or that of a listener.
    pub fn commit(&self) -> FaultPoint<'_> {
        self.at(Point::Commit)
    }

    /// When due events are claimed.
    pub fn claim(&self) -> FaultPoint<'_> {
        self.at(Point::Claim)
    }

    /// When the result of a delivery is recorded.
    pub fn record(&self) -> FaultPoint<'_> {
        self.at(Point::Record)
    }

    /// Forgets those that have not happened yet.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn at(&self, point: Point) -> FaultPoint<'_> {
        FaultPoint { faults: self, point, times: Some(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to happen at a point now, if anything is.
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

/// A point at which a fault is to happen: once, if nothing else is said.
#[derive(Debug)]
#[must_use = "say what is to happen: `fail()`, `lose_answer()`, `delay(..)` or `hang()`"]
pub struct FaultPoint<'a> {
    faults: &'a Faults,
    point: Point,
    times: Option<u32>,
}

impl FaultPoint<'_> {
    /// So many times in a row.
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Every time, until [`Faults::clear`].
    pub fn always(self) -> Self {
        Self { times: None, ..self }
    }

    /// The connection fails before anything is done.
    pub fn fail(self) {
        self.add(Effect::Fail);
    }

    /// It is done, and the connection fails before the answer comes.
    pub fn lose_answer(self) {
        self.add(Effect::LoseAnswer);
    }

    /// It takes this much longer, in real time.
    pub fn delay(self, delay: Duration) {
        self.add(Effect::Delay(delay));
    }

    /// Nothing is done and no answer ever comes. The outbox itself waits for a third of the lease for an
    /// answer to `claim` and `record`, and to `begin` and `commit` for a listener, between half a second
    /// and 10; the application waits for `begin` and `commit` as long as it likes.
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

/// Whether the answer gets through.
#[must_use]
pub(super) struct Answer {
    is_lost: bool,
}

impl Answer {
    pub(super) fn to<T>(&self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        match result {
            Ok(_) if self.is_lost => Err(broken("injected: the answer was lost")),
            result => result,
        }
    }
}

/// Meets what is to happen at a point.
pub(super) async fn meet(effect: Option<Effect>) -> sqlx::Result<Answer> {
    match effect {
        None => {}
        Some(Effect::LoseAnswer) => return Ok(Answer { is_lost: true }),
        Some(Effect::Fail) => return Err(broken("injected: the connection failed")),
        Some(Effect::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Effect::Hang) => std::future::pending().await,
    }
    Ok(Answer { is_lost: false })
}

fn broken(text: &'static str) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::ConnectionReset, text))
}
