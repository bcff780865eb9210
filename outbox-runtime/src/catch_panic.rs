//! Turns panics of user code into values.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The error of a future that panicked. It drops the panic's message, which may contain anything; the panic hook
/// has received it.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Runs a future, and returns an error if it panics.
pub(crate) async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}
