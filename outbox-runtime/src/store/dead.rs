use std::time::SystemTime;

use super::batch::Arg;
use super::row::{self, limit_of_time, micros};
use super::skip_locked::keys;
use super::{Backend, Fingerprint, Store, Undecodable};
use crate::Error;
use crate::event::{EventEnvelope, Status};

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
    /// With an error of this cause.
    pub fingerprint: Option<Fingerprint>,
}

/// An event that was given up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadEvent {
    /// Its row.
    pub sequence: i64,
    /// Its id.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// How many attempts have failed.
    pub attempts: u32,
    /// Why it was given up.
    pub last_error: Option<String>,
    /// When it was given up.
    pub died_at: Option<SystemTime>,
    /// The event itself, if its row can be read.
    pub event: Result<EventEnvelope, Undecodable>,
}

/// What is needed to know a dead event again, without its payload.
#[derive(Debug, Clone)]
pub(crate) struct DeadKey {
    pub(crate) sequence: i64,
    pub(crate) event_id: String,
    pub(crate) event_type: String,
    pub(crate) last_error: Option<String>,
    pub(crate) died_at: Option<SystemTime>,
}

impl DeadFilter {
    /// Whether an error is of the cause that is meant. All else is asked of the database.
    pub(crate) fn names_error(&self, error: Option<&str>) -> bool {
        let of = |named: Fingerprint| named == Fingerprint::of(error.unwrap_or_default());
        self.fingerprint.is_none_or(of)
    }

    pub(crate) fn names_error_of(&self, dead: &DeadEvent) -> bool {
        self.names_error(dead.last_error.as_deref())
    }

    pub(super) fn args(&self) -> Vec<Arg> {
        vec![
            self.event_type.as_deref().into(),
            self.aggregate_type.as_deref().into(),
            self.aggregate_id.as_deref().into(),
            self.tenant_id.as_deref().into(),
            self.since.map(limit_of_time).into(),
            self.before.map(limit_of_time).into(),
        ]
    }

    fn and(&self, more: &[i64]) -> Vec<Arg> {
        let mut args = self.args();
        args.extend(more.iter().copied().map(Arg::from));
        args
    }
}

impl<DB: Backend> Store<DB> {
    /// Dead events after a sequence, oldest first, of any cause.
    pub(crate) async fn dead(
        &self,
        filter: &DeadFilter,
        after: i64,
        limit: u32,
    ) -> Result<Vec<DeadEvent>, Error> {
        let args = filter.and(&[after, limit.into()]);
        let rows = self.rows("reading dead events", self.sql.dead_query.clone(), args).await?;
        Ok(rows.iter().map(dead_event::<DB>).collect())
    }

    /// A dead event by its id.
    pub(crate) async fn dead_one(&self, event_id: &str) -> Result<Option<DeadEvent>, Error> {
        let args = vec![event_id.into()];
        let rows = self.rows("reading dead events", self.sql.dead_one.clone(), args).await?;
        Ok(rows.first().map(dead_event::<DB>))
    }

    /// How many dead events there are, of any cause.
    pub(crate) async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        let doing = "counting dead events";
        let count = self.number(doing, self.sql.dead_count.clone(), filter.args()).await?;
        Ok(count.unwrap_or_default().unsigned_abs())
    }

    /// The row and the status of an event.
    pub(crate) async fn status_of(&self, event_id: &str) -> Result<Option<(i64, Status)>, Error> {
        let doing = "looking for an event";
        let rows = self.rows(doing, self.sql.status_of.clone(), vec![event_id.into()]).await?;
        let int = |row, column| DB::int(row, column).ok().flatten();
        Ok(rows.first().and_then(|row| {
            let status = int(row, 1).and_then(|code| i16::try_from(code).ok());
            // A status that nobody knows is nobody's to change.
            Some((int(row, 0)?, status.and_then(Status::from_code)?))
        }))
    }

    /// Dead events after a sequence, oldest first, but for those that have died since a time.
    pub(crate) async fn dead_keys(
        &self,
        filter: &DeadFilter,
        after: i64,
        since: SystemTime,
        limit: u32,
    ) -> Result<Vec<DeadKey>, Error> {
        let args = filter.and(&[after, micros(since), limit.into()]);
        let rows = self.rows("looking for dead events", self.sql.dead_keys.clone(), args).await?;
        let text = |row, column| DB::text(row, column).ok().flatten();
        Ok(rows
            .iter()
            .map(|row| DeadKey {
                sequence: DB::int(row, 0).ok().flatten().unwrap_or_default(),
                event_id: text(row, 1).unwrap_or_default(),
                event_type: text(row, 2).unwrap_or_default(),
                last_error: text(row, 3),
                died_at: DB::int(row, 4).ok().flatten().and_then(row::time),
            })
            .collect())
    }

    /// Makes those of these rows that are dead new again; gives how many.
    pub(crate) async fn replay_rows(&self, sequences: &[i64]) -> Result<u64, Error> {
        self.change("replaying dead events", &self.sql.replay, || keys(sequences)).await
    }

    /// Deletes those of these rows that are dead; gives how many.
    pub(crate) async fn discard_rows(&self, sequences: &[i64]) -> Result<u64, Error> {
        self.change("discarding dead events", &self.sql.discard, || keys(sequences)).await
    }
}

fn dead_event<DB: Backend>(found: &DB::Row) -> DeadEvent {
    let int = |column| DB::int(found, column).ok().flatten();
    let text = |column| DB::text(found, column).ok().flatten();
    DeadEvent {
        sequence: int(0).unwrap_or_default(),
        event_id: text(1).unwrap_or_default(),
        event_type: text(2).unwrap_or_default(),
        attempts: int(9).and_then(|attempts| attempts.try_into().ok()).unwrap_or_default(),
        last_error: text(row::WIDTH),
        died_at: int(row::WIDTH + 1).and_then(row::time),
        // Its row has no due time any more: the last claim has put the end of its lease there.
        event: row::read::<DB>(found, None).map(|row| row.envelope),
    }
}
