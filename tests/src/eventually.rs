use std::time::Duration;

/// How long a test waits for something that must happen.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Waits until a condition holds; panics if it does not within a minute.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let checks = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while !condition().await {
            ticks.tick().await;
        }
    };
    if tokio::time::timeout(WAIT_LIMIT, checks).await.is_err() {
        panic!("never came true: {what}");
    }
}
