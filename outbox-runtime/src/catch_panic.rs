//! Panics of other people's code as values.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// A future has panicked. What it said is in the panic hook's hands, and may hold anything.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Runs a future and catches its panic.
pub(crate) async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}
