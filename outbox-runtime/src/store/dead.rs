use std::time::SystemTime;

use super::batch::Arg;
use super::row::{self, micros};
use super::{Backend, Claimed, Store};
use crate::Error;
use crate::event::EventId;

/// Which dead events are meant; what is not said lets every one pass.
#[derive(Debug, Clone, Default)]
pub struct DeadFilter {
    /// Of this event type.
    pub event_type: Option<String>,
    /// Of this aggregate type.
    pub aggregate_type: Option<String>,
    /// Of this aggregate.
    pub aggregate_id: Option<String>,
    /// Of this tenant.
    pub tenant_id: Option<String>,
    /// That happened at this time or later.
    pub since: Option<SystemTime>,
    /// That happened before this time.
    pub before: Option<SystemTime>,
}

/// An event that was given up.
#[derive(Debug, Clone)]
pub struct DeadEvent {
    /// The row and the event.
    pub row: Claimed,
    /// Why it was given up.
    pub last_error: Option<String>,
    /// When it was given up.
    pub died_at: Option<SystemTime>,
}

impl DeadFilter {
    pub(super) fn args(&self) -> Vec<Arg> {
        vec![
            self.event_type.as_deref().into(),
            self.aggregate_type.as_deref().into(),
            self.aggregate_id.as_deref().into(),
            self.tenant_id.as_deref().into(),
            self.since.map(micros).into(),
            self.before.map(micros).into(),
        ]
    }
}

impl<DB: Backend> Store<DB> {
    /// Dead events after a sequence, oldest first. One that cannot be read is left out.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn dead(
        &self,
        filter: &DeadFilter,
        after: i64,
        limit: u32,
    ) -> Result<Vec<DeadEvent>, Error> {
        let mut args = filter.args();
        args.extend([after.into(), i64::from(limit).into()]);
        let rows = self.rows("reading dead events", self.sql.dead_query.clone(), args).await?;
        Ok(rows
            .iter()
            .filter_map(|found| {
                Some(DeadEvent {
                    row: row::read::<DB>(found).ok()?,
                    last_error: DB::text(found, row::WIDTH).ok()?,
                    died_at: DB::int(found, row::WIDTH + 1).ok()?.and_then(row::time),
                })
            })
            .collect())
    }

    /// How many dead events there are, counted up to 100,000.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        let doing = "counting dead events";
        let count = self.number(doing, self.sql.dead_count.clone(), filter.args()).await?;
        Ok(count.unwrap_or_default().unsigned_abs())
    }

    /// Makes a dead event new again; gives whether there was one.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn replay(&self, event_id: EventId) -> Result<bool, Error> {
        let doing = "looking for a dead event";
        let args = vec![event_id.as_str().into()];
        match self.number(doing, self.sql.dead_by_event_id.clone(), args).await? {
            Some(sequence) => Ok(self.replay_rows(vec![sequence]).await? == 1),
            None => Ok(false),
        }
    }

    /// Makes the dead events that are there now new again, a batch at a time; gives how many.
    /// Events that die meanwhile are left alone, so it ends.
    ///
    /// # Errors
    /// If the database fails; what was replayed before stays replayed.
    pub async fn replay_all(&self, filter: &DeadFilter, batch: u32) -> Result<u64, Error> {
        let doing = "looking for dead events";
        // The walk goes by rising sequence and ends here, so it touches each row once at most.
        let end = self.number(doing, self.sql.last_sequence.clone(), vec![]).await?;
        let (mut after, mut replayed) = (0, 0);
        while let Some(end) = end {
            let mut args = filter.args();
            args.extend([after.into(), end.into(), i64::from(batch.max(1)).into()]);
            let rows = self.rows(doing, self.sql.dead_sequences.clone(), args).await?;
            let sequences: Vec<i64> =
                rows.iter().filter_map(|row| DB::int(row, 0).ok().flatten()).collect();
            match sequences.last() {
                Some(last) => after = *last,
                None => break,
            }
            replayed += self.replay_rows(sequences).await?;
        }
        Ok(replayed)
    }

    async fn replay_rows(&self, sequences: Vec<i64>) -> Result<u64, Error> {
        let args = || vec![Arg::Ints(sequences.iter().copied().map(Some).collect())];
        self.change("replaying dead events", &self.sql.replay, args).await
    }
}
