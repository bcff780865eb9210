//! Load: tasks that repeat an operation as fast as they can, or at a fixed rate.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Result;

/// Repeats an operation in some tasks until the time is over. Returns the operations per second. Each call gets a
/// number of its own.
pub(crate) async fn closed_loop<F, Fut>(tasks: usize, time: Duration, once: F) -> Result<f64>
where
    F: Fn(u64) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result> + Send + 'static,
{
    let start = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks as u64 {
        let once = once.clone();
        running.spawn(async move {
            let mut done = 0;
            while start.elapsed() < time {
                once(task * 1_000_000 + done).await?;
                done += 1;
            }
            Result::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(task) = running.join_next().await {
        done += task??;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// Does an operation a number of times, shared by some tasks.
pub(crate) async fn repeat<F, Fut>(tasks: usize, times: usize, once: F) -> Result
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result> + Send + 'static,
{
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let once = once.clone();
        running.spawn(async move {
            for _ in 0..times / tasks {
                once().await?;
            }
            Result::Ok(())
        });
    }
    while let Some(task) = running.join_next().await {
        task??;
    }
    Ok(())
}

/// Starts an operation at a fixed rate, whether or not the operations before it have ended. Passes their results to
/// `each`.
pub(crate) async fn open_loop<T, F, Fut>(
    per_second: f64,
    time: Duration,
    mut once: F,
    mut each: impl FnMut(T),
) -> Result
where
    T: Send + 'static,
    F: FnMut(usize) -> Fut,
    Fut: Future<Output = Result<T>> + Send + 'static,
{
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / per_second));
    let mut running = JoinSet::new();
    for number in 0..(per_second * time.as_secs_f64()) as usize {
        ticks.tick().await;
        running.spawn(once(number));
        while let Some(ended) = running.try_join_next() {
            each(ended??);
        }
    }
    while let Some(ended) = running.join_next().await {
        each(ended??);
    }
    Ok(())
}
