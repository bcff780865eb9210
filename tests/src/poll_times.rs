use std::task::Poll;

/// Polls a future at most `times` times; returns its output if it completed.
pub async fn poll_times<F: Future>(future: F, times: u32) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut left = times;
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        left -= 1;
        if left == 0 { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}
