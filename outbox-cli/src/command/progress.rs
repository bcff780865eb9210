//! Long work that can be watched, and interrupted.

use std::future::Future;

use indicatif::{ProgressBar, ProgressStyle};
use outbox_runtime::Error;

/// Something that is done a batch at a time.
pub(super) trait Steps {
    /// Does the next batch; `None` when all is done.
    fn step(&mut self) -> impl Future<Output = Result<Option<u64>, Error>>;

    /// How much was done.
    fn done(&self) -> u64;
}

/// How long work ended.
pub(super) enum Ending {
    Complete,
    Failed(Error),
    /// By Ctrl-C.
    Stopped,
}

/// A bar, if there is a terminal.
pub(super) fn bar(expected: u64) -> ProgressBar {
    let bar = ProgressBar::new(expected);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta}") {
        bar.set_style(style);
    }
    bar
}

/// The same where nobody knows how much there is.
pub(super) fn counter() -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} {per_sec}") {
        bar.set_style(style);
    }
    bar
}

/// Goes on to the end.
pub(super) async fn run(steps: &mut impl Steps, bar: ProgressBar) -> Ending {
    let stop = tokio::signal::ctrl_c();
    tokio::pin!(stop);
    let ending = loop {
        tokio::select! {
            _ = &mut stop => break Ending::Stopped,
            step = steps.step() => match step {
                Ok(Some(_)) => bar.set_position(steps.done()),
                Ok(None) => break Ending::Complete,
                Err(error) => break Ending::Failed(error),
            },
        }
    };
    bar.finish_and_clear();
    ending
}
