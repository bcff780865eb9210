//! What is measured.

mod deliver;
mod drain;
mod latency;
mod write;

use std::time::{Duration, Instant};

use crate::Result;
use crate::peer::{Peer, Relay};
use crate::tally::Tally;

/// The number of tasks that write.
const WRITERS: u32 = 16;
/// The time limit of a run.
const LIMIT: Duration = Duration::from_secs(60);

/// A measurement that every peer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    /// Transactions with a business statement and one event each; nothing is delivered.
    Write,
    /// Delivery of a table full of events, with up-to-date statistics.
    DrainAnalysed,
    /// The same without statistics, as in the first burst after a migration.
    DrainNeverAnalysed,
    /// Transactions with one event each, until all are handled and settled.
    Deliver,
    /// The time from the end of a commit to the call of the handler.
    Latency,
}

/// The result of one run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    /// Events per second, or milliseconds: the median and the 99th percentile.
    pub(crate) figures: Vec<f64>,
    pub(crate) events: usize,
    /// The number of events that were handled at least once.
    pub(crate) handled: usize,
    /// The number of further calls of the handler.
    pub(crate) duplicates: usize,
    /// Whether all events were handled and settled within the time limit.
    pub(crate) is_finished: bool,
}

impl Scenario {
    /// All scenarios, in the order in which they are measured.
    pub(crate) const ALL: [Self; 5] =
        [Self::Write, Self::DrainAnalysed, Self::DrainNeverAnalysed, Self::Deliver, Self::Latency];

    /// The title of the table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Write => "write, one event per transaction, 16 tasks",
            Self::DrainAnalysed => "drain, analysed tables",
            Self::DrainNeverAnalysed => "drain, never analysed tables",
            Self::Deliver => "write and deliver 20,000 events, 16 tasks",
            Self::Latency => "commit to handler at 200 events/s",
        }
    }

    /// Measures a peer in a runtime of its own, so that no task of it outlives the run.
    pub(crate) fn run(self, url: &str, peer: &dyn Peer, quick: bool) -> Result<Run> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let result = runtime.block_on(async {
            match self {
                Self::Write => write::measure(url, peer, quick).await,
                Self::DrainAnalysed => drain::measure(url, peer, quick, true).await,
                Self::DrainNeverAnalysed => drain::measure(url, peer, quick, false).await,
                Self::Deliver => deliver::measure(url, peer).await,
                Self::Latency => latency::measure(url, peer, quick).await,
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(5));
        result
    }
}

impl Run {
    /// Returns the throughput of a run with a handler.
    fn throughput(tally: &Tally, start: Instant, is_finished: bool) -> Self {
        let figures = vec![tally.handled() as f64 / start.elapsed().as_secs_f64()];
        Self::new(figures, tally, is_finished)
    }

    fn new(figures: Vec<f64>, tally: &Tally, is_finished: bool) -> Self {
        let (handled, duplicates) = (tally.handled(), tally.duplicates());
        Self { figures, events: tally.events(), handled, duplicates, is_finished }
    }
}

/// Stops a relay; one that does not stop is left to the end of the runtime.
async fn stop(relay: Box<dyn Relay>) -> Result {
    tokio::time::timeout(Duration::from_secs(20), relay.stop()).await.unwrap_or(Ok(()))
}
