//! From the queue to the listener and back.
//!
//! # Layout
//! `dispatcher` delivers one event, on a worker of its own or on one that outboxes share (`shared_workers`); `decide` has the decision that follows from a call, `report` logs and counts it,
//! `interceptor` is what an application can put around it, `transactional` calls in a transaction that settles its
//! event, and `recorder` writes all other verdicts.

pub(crate) mod decide;
mod dispatcher;
mod interceptor;
mod recorder;
mod report;
mod shared_workers;
mod transactional;

pub(crate) use dispatcher::{Attempt, DeliveryPolicy, Dispatcher, Worker};
pub use interceptor::EventInterceptor;
pub(crate) use interceptor::{After, Before, Interceptors};
pub(crate) use recorder::{RecordLoop, Recorder};
pub(crate) use shared_workers::SharedWorkers;
