use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that runs to its end even if its caller is dropped: what is left of it then becomes a task.
///
/// sqlx does not know what became of a BEGIN or a COMMIT that was cancelled. The next statement on that connection could
/// be part of a transaction that is never ended.
pub(super) struct RunToEnd<F: Future<Output: Send> + Send + 'static> {
    /// `None` once it has ended.
    future: Option<Pin<Box<F>>>,
    runtime: Handle,
}

impl<F: Future<Output: Send> + Send + 'static> RunToEnd<F> {
    pub(super) fn new(future: F) -> Self {
        Self { future: Some(Box::pin(future)), runtime: Handle::current() }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for RunToEnd<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for RunToEnd<F> {
    #[expect(clippy::disallowed_methods, reason = "it must outlive its caller")]
    fn drop(&mut self) {
        // One that has panicked cannot be polled again.
        if let (Some(future), false) = (self.future.take(), std::thread::panicking()) {
            self.runtime.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn it_returns_the_output() {
        assert_eq!(RunToEnd::new(async { 7 }).await, 7);
    }

    #[tokio::test]
    async fn it_ends_although_its_caller_is_dropped() {
        let (go, ended, done) =
            (Arc::new(Notify::new()), Arc::new(Notify::new()), AtomicBool::new(false));
        let done = Arc::new(done);
        let (wait, tell, set) = (Arc::clone(&go), Arc::clone(&ended), Arc::clone(&done));
        let mut running = Box::pin(RunToEnd::new(async move {
            wait.notified().await;
            set.store(true, Ordering::SeqCst);
            tell.notify_one();
        }));
        let polled = std::future::poll_fn(|context| Poll::Ready(running.as_mut().poll(context)));
        assert!(polled.await.is_pending());
        drop(running);
        assert!(!done.load(Ordering::SeqCst));
        go.notify_one();
        ended.notified().await;
        assert!(done.load(Ordering::SeqCst));
    }
}
