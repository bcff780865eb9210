use std::any::Any;
use std::fmt::Debug;
use std::time::Instant;

use crate::event::EventEnvelope;
use crate::store::Lease;

/// Places for events that a worker of this process will take as soon as they are committed. The
/// runtime implements it; without one, every event is left to a poller.
pub trait Seats: Send + Sync + Debug {
    /// A place for an event, if there is one. Never waits. `already` is how many its transaction
    /// has.
    fn reserve(&self, event: &EventEnvelope, already: usize) -> Option<Seat>;

    /// In whose name rows with a seat are inserted, and for how long.
    fn lease(&self) -> Lease<'_>;

    /// After a commit: the events that have a seat, and how many were left for the poller.
    fn committed(&self, hot: Vec<Hot>, left: Left);
}

/// How many committed events are left to a poller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// They are due.
    pub due: usize,
    /// They will be.
    pub delayed: usize,
    /// When the first of them was inserted. A transaction may have been open for long since.
    pub since: Option<Instant>,
}

/// A reserved place. Dropping it frees the place.
#[derive(Debug)]
pub struct Seat(Box<dyn Place>);

/// What a seat holds on to.
trait Place: Any + Send + Debug {
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Any + Send + Debug> Place for T {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Seat {
    /// A seat that holds on to something until it is taken or dropped.
    pub fn new(place: impl Any + Send + Debug) -> Self {
        Self(Box::new(place))
    }

    /// What it holds on to, if it is of this type.
    pub fn into_inner<T: Any>(self) -> Option<T> {
        self.0.into_any().downcast().ok().map(|place| *place)
    }
}

/// A committed event on its way to a worker, claimed with token 1.
#[derive(Debug)]
pub struct Hot {
    /// Its place.
    pub seat: Seat,
    /// Its row.
    pub sequence: i64,
    /// The event.
    pub envelope: EventEnvelope,
}

/// No places at all.
#[derive(Debug, Clone, Copy)]
pub struct NoSeats;

impl Seats for NoSeats {
    fn reserve(&self, _: &EventEnvelope, _: usize) -> Option<Seat> {
        None
    }

    fn lease(&self) -> Lease<'_> {
        Lease { owner: "", length: std::time::Duration::ZERO }
    }

    fn committed(&self, _: Vec<Hot>, _: Left) {}
}
