use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::event::Verdict;
use crate::inflight::InFlight;
use crate::log_throttle::LogThrottle;
use crate::metrics::Meter;
use crate::poll::Wake;
use crate::service::{Service, within};
use crate::store::{Backend, Completion, LockedRows, Settlement, Store, Unsettled};

/// Writes verdicts to their rows: all that have gathered while the last batch was written, in one statement. So an
/// idle node pays no batching latency, and a busy one batches by itself.
pub(crate) struct Recorder<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) owner: Arc<str>,
    pub(crate) completion: Completion,
    pub(crate) meter: Arc<Meter>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) statement_timeout: Duration,
    pub(crate) locked: LogThrottle,
}

/// The most settlements in one statement.
const BATCH: usize = 1_000;

/// The loop of the recorder.
pub(crate) struct RecordLoop<DB: Backend> {
    recorder: Arc<Recorder<DB>>,
    last: Option<Instant>,
}

/// Batches start at least this far apart. An idle node does not notice; a busy one writes fewer and larger
/// batches, each of which costs the server a commit.
const SPACING: Duration = Duration::from_millis(5);

impl<DB: Backend> RecordLoop<DB> {
    pub(crate) fn new(recorder: Arc<Recorder<DB>>) -> Self {
        Self { recorder, last: None }
    }
}

impl<DB: Backend> Service for RecordLoop<DB> {
    const NAME: &'static str = "recorder";
    const DOING: &'static str = "recording the results of listeners";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = self.recorder.inflight.result_ready() => {}
            () = stop.cancelled() => return Ok(()),
        }
        if let Some(last) = self.last {
            tokio::time::sleep_until((last + SPACING).into()).await;
        }
        self.last = Some(Instant::now());
        self.recorder.record().await
    }
}

impl<DB: Backend> Recorder<DB> {
    /// Writes the verdicts that are ready, if there are any.
    pub(crate) async fn record(&self) -> Result<(), Error> {
        let results = self.inflight.borrow_results(BATCH);
        let rows = results.batch().len();
        if rows == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        match self.write(results.batch(), results.locked).await {
            Ok(unsettled) => {
                let locked = unsettled.locked.len();
                let recorded = results.recorded(&unsettled);
                if locked > 0 && self.locked.allows() {
                    tracing::warn!(
                        events = locked,
                        "events cannot be settled because another session has locked their rows; end the \
                         transaction that holds them (`SELECT … FOR UPDATE` on the outbox's table)"
                    );
                }
                let (rows, took) = (rows - locked, begun.elapsed());
                self.meter.report(|exporter| exporter.recorded(rows, recorded.stale, took));
                if recorded.stale > 0 {
                    tracing::warn!(
                        events = recorded.stale,
                        "settlements were stale: their leases had expired, and another node had claimed the rows"
                    );
                }
                if let Some(delay) = recorded.due_in {
                    self.wake.peek_in(delay);
                }
                self.wake.recorder_works(true);
                Ok(())
            }
            Err(error) => {
                if error.is_time_out() {
                    results.timed_out();
                }
                // Until verdicts are written, a claim might bring back events that are only not settled
                // yet.
                self.wake.recorder_works(false);
                Err(error)
            }
        }
    }

    /// Writes a batch. If the database refuses it because of a value in one settlement, finds that one.
    async fn write(&self, batch: &[Settlement], locked: LockedRows) -> Result<Unsettled, Error> {
        match self.settle(batch, locked).await {
            Err(error) if error.is_about_data() => match batch {
                [single] => self.settle(&[without_text(single)], locked).await,
                batch => {
                    let (first, second) = batch.split_at(batch.len() / 2);
                    let mut unsettled = Box::pin(self.write(first, locked)).await?;
                    let more = Box::pin(self.write(second, locked)).await?;
                    unsettled.stale.extend(more.stale);
                    unsettled.locked.extend(more.locked);
                    Ok(unsettled)
                }
            },
            result => result,
        }
    }

    async fn settle(&self, batch: &[Settlement], locked: LockedRows) -> Result<Unsettled, Error> {
        let settle = self.store.settle_with(&self.owner, batch, self.completion, locked);
        within(self.statement_timeout, "settling events", settle).await
    }
}

/// The same settlement without the text of its error, which this database cannot store.
fn without_text(settlement: &Settlement) -> Settlement {
    const NOT_STORABLE: &str = "the error cannot be stored in this database";
    let mut settlement = settlement.clone();
    if let Verdict::Retry { error, .. } | Verdict::Dead { error, .. } = &mut settlement.verdict {
        NOT_STORABLE.clone_into(error);
    }
    settlement
}
