use std::future::poll_fn;
use std::task::Poll;

use crate::listener::BoxFuture;

/// Runs futures at the same time, in the task of the caller, and returns their results in order.
pub(super) async fn concurrently<'a, T>(
    futures: impl IntoIterator<Item = BoxFuture<'a, T>>,
) -> Vec<T> {
    let mut futures: Vec<BoxFuture<'a, T>> = futures.into_iter().collect();
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, result) in futures.iter_mut().zip(&mut results).filter(|(_, r)| r.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(output) => *result = Some(output),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn results_are_in_order_and_the_slowest_decides_when() {
        let started = Instant::now();
        let futures = [3, 1, 2].map(|seconds| -> BoxFuture<'static, u64> {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                seconds
            })
        });
        assert_eq!(concurrently(futures).await, [3, 1, 2]);
        assert_eq!(started.elapsed().as_secs(), 3);
    }
}
