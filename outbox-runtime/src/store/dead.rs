use std::time::SystemTime;

use super::batch::Arg;
use super::columns::{self, Column, RowReader, ints};
use super::row::{self, limit_of_time, micros};
use super::skip_locked::keys;
use super::{Backend, Fingerprint, Store, Undecodable};
use crate::Error;
use crate::event::{EventEnvelope, Status};

/// Filters are optional: an argument that is NULL lets every row pass.
pub(super) const FILTER: &str = "\
    status = 3 \
    AND (event_type = COALESCE($1, event_type)) \
    AND (COALESCE(aggregate_type, '__GLOBAL__') = COALESCE($2, aggregate_type, '__GLOBAL__')) \
    AND (COALESCE(aggregate_id, '') = COALESCE($3, aggregate_id, '')) \
    AND (COALESCE(tenant_id, '') = COALESCE($4, tenant_id, '')) \
    AND COALESCE(created_at >= {time:$5}, true) AND COALESCE(created_at < {time:$6}, true)";

pub(super) const QUERY: &str = "\
    SELECT {dead_columns} FROM {table} AS entry {by:dead} \
    WHERE {filter} AND entry.sequence > $7 ORDER BY entry.sequence LIMIT $8";

pub(super) const ONE: &str = "\
    SELECT {dead_columns} FROM {table} AS entry \
    WHERE event_id = $1 AND status = 3";

pub(super) const COUNT: &str = "SELECT {int:COUNT(*)} FROM {table} {by:dead} WHERE {filter}";

/// Without those that have died between a time and now.
pub(super) const KEYS: &str = "\
    SELECT {dead_key_columns} FROM {table} AS entry {by:dead} \
    WHERE {filter} AND sequence > $7 AND COALESCE(done_at <= {time:$8} OR done_at > {now}, true) \
    ORDER BY sequence LIMIT $9";

pub(super) const STATUS: &str =
    "SELECT {int:sequence}, {int:status} FROM {table} WHERE event_id = $1";

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
        let of = |named: Fingerprint| named == Fingerprint::new(error.unwrap_or_default());
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
        Ok(rows.first().map(ints::<DB, 2>).and_then(|[sequence, status]| {
            // A row with an unknown status is not changed.
            let status = Status::from_code(i16::try_from(status?).ok()?)?;
            Some((sequence?, status))
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
        Ok(rows.iter().map(dead_key::<DB>).collect())
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

fn dead_event<DB: Backend>(row: &DB::Row) -> DeadEvent {
    let row = RowReader::<DB>::new(row, &columns::DEAD);
    let attempts = row.int(Column::Attempts).and_then(|attempts| attempts.try_into().ok());
    DeadEvent {
        sequence: row.int(Column::Sequence).unwrap_or_default(),
        event_id: row.text(Column::EventId).unwrap_or_default(),
        event_type: row.text(Column::EventType).unwrap_or_default(),
        attempts: attempts.unwrap_or_default(),
        last_error: row.text(Column::LastError),
        died_at: row.time(Column::DoneAt),
        // The due time is no longer known: the last claim replaced it with the end of its lease.
        event: row::read(&row, None).map(|claim| claim.envelope),
    }
}

fn dead_key<DB: Backend>(row: &DB::Row) -> DeadKey {
    let row = RowReader::<DB>::new(row, &columns::DEAD_KEY);
    DeadKey {
        sequence: row.int(Column::Sequence).unwrap_or_default(),
        event_id: row.text(Column::EventId).unwrap_or_default(),
        event_type: row.text(Column::EventType).unwrap_or_default(),
        last_error: row.text(Column::LastError),
        died_at: row.time(Column::DoneAt),
    }
}
