//! Runs long operations batch by batch, with a progress bar and a stop on Ctrl-C.

use std::future::Future;

use indicatif::{ProgressBar, ProgressStyle};
use outbox::Error;

/// An operation that runs in batches.
pub(super) trait Batches {
    /// Runs the next batch; returns `None` when there are no more.
    fn next_batch(&mut self) -> impl Future<Output = Result<Option<u64>, Error>>;

    /// Returns the number of events processed so far.
    fn processed(&self) -> u64;
}

/// How a batched operation ended.
pub(super) enum BatchOutcome {
    Completed,
    Failed(Error),
    /// By Ctrl-C.
    Interrupted,
}

/// Creates a progress bar; it is hidden if there is no terminal.
pub(super) fn bar(expected: u64) -> ProgressBar {
    let bar = ProgressBar::new(expected);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta}") {
        bar.set_style(style);
    }
    bar
}

/// Creates a counter, for when the total is unknown.
pub(super) fn counter() -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} {per_sec}") {
        bar.set_style(style);
    }
    bar
}

/// Runs all batches.
pub(super) async fn run(batches: &mut impl Batches, bar: ProgressBar) -> BatchOutcome {
    let stop = tokio::signal::ctrl_c();
    tokio::pin!(stop);
    let outcome = loop {
        tokio::select! {
            _ = &mut stop => break BatchOutcome::Interrupted,
            batch = batches.next_batch() => match batch {
                Ok(Some(_)) => bar.set_position(batches.processed()),
                Ok(None) => break BatchOutcome::Completed,
                Err(error) => break BatchOutcome::Failed(error),
            },
        }
    };
    bar.finish_and_clear();
    outcome
}
