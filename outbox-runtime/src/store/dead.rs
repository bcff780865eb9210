//! Statements for dead letters.

use std::time::SystemTime;

use super::batch::Arg;
use super::columns::{self, Column, RowReader, ints};
use super::row::{self, micros};
use super::skip_locked::keys;
use super::{Backend, EventFilter, Failure, Store, Undecodable, history};
use crate::Error;
use crate::event::{EventEnvelope, Recipient, Status};

pub(super) const QUERY: &str = "\
    SELECT {dead_columns} FROM {table} AS entry {by:dead} \
    WHERE status = 3 AND {filter:1} AND entry.sequence > $8 ORDER BY entry.sequence LIMIT $9";

pub(super) const ONE: &str = "\
    SELECT {dead_columns} FROM {table} AS entry \
    WHERE event_id = $1 AND status = 3 AND {of:$2} ORDER BY entry.sequence";

pub(super) const COUNT: &str =
    "SELECT {int:COUNT(*)} FROM {table} {by:dead} WHERE status = 3 AND {filter:1}";

/// Excludes events that died between `$9` and now.
pub(super) const KEYS: &str = "\
    SELECT {dead_key_columns} FROM {table} AS entry {by:dead} \
    WHERE status = 3 AND {filter:1} AND sequence > $8 \
        AND COALESCE(done_at <= {time:$9} OR done_at > {now}, true) \
    ORDER BY sequence LIMIT $10";

pub(super) const STATUS: &str = "SELECT {int:sequence}, {int:status} FROM {table} WHERE event_id = $1 AND {of:$2} ORDER BY sequence";

/// `{of:$2}`: the row is one of the subscription in an argument, or any if that is NULL.
pub(super) const OF: &str = "\
    CASE WHEN subscription = '*' THEN '' ELSE subscription END \
    = COALESCE($2, CASE WHEN subscription = '*' THEN '' ELSE subscription END)";

/// A dead letter: an event that was given up, with the reason.
///
/// ```no_run
/// use outbox::dead::{DeadEvents, DeadFilter};
///
/// # async fn example(dead: DeadEvents<sqlx::Postgres>) -> outbox::Result<()> {
/// for letter in dead.query(&DeadFilter::new().event_type("Paid"), 10).await? {
///     println!("{} after {} attempts: {:?}", letter.event_id, letter.attempts, letter.last_error);
///     match letter.event {
///         Ok(event) => println!("{}", event.payload().as_str()),
///         Err(undecodable) => println!("{undecodable}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadEvent {
    /// The number of the row. Dead letters are listed in its order, which is roughly that of their writing.
    pub sequence: i64,
    /// The event's unique id, for [`DeadEvents::replay`](crate::DeadEvents::replay) and
    /// [`DeadEvents::discard`](crate::DeadEvents::discard).
    pub event_id: String,
    /// The name of the event type.
    pub event_type: String,
    /// The name of the subscription whose delivery it is; empty for the unnamed listener.
    pub subscription: String,
    /// The number of failed attempts. Zero if the event was given up without one, for example because no listener
    /// handles it.
    pub attempts: u32,
    /// The reason why it was given up: the error of the last attempt with its causes, up to 4,000 characters.
    pub last_error: Option<String>,
    /// The last failures, at most ten, the first one first.
    pub history: Vec<Failure>,
    /// When it was given up, by the clock of the database.
    pub died_at: Option<SystemTime>,
    /// The event as it was written, or why its row cannot be decoded. Its `available_at` is the time at which it
    /// occurred.
    pub event: Result<EventEnvelope, Undecodable>,
}

/// A dead letter without its content.
#[derive(Debug, Clone)]
pub(crate) struct DeadKey {
    pub(crate) sequence: i64,
    pub(crate) event_id: String,
    pub(crate) event_type: String,
    pub(crate) last_error: Option<String>,
    pub(crate) died_at: Option<SystemTime>,
}

impl<DB: Backend> Store<DB> {
    /// Returns the dead letters after a sequence, oldest first.
    pub(crate) async fn dead(
        &self,
        filter: &EventFilter,
        after: i64,
        limit: u32,
    ) -> Result<Vec<DeadEvent>, Error> {
        let args = filter_args(filter, &[after, limit.into()]);
        let rows = self.rows("reading dead events", self.sql.dead_query.clone(), args).await?;
        Ok(rows.iter().map(dead_event::<DB>).collect())
    }

    /// Returns the dead letters with an id, of one subscription or of all.
    pub(crate) async fn dead_with_id(
        &self,
        event_id: &str,
        subscription: Option<&str>,
    ) -> Result<Vec<DeadEvent>, Error> {
        let args = vec![event_id.into(), subscription.into()];
        let rows = self.rows("reading dead events", self.sql.dead_one.clone(), args).await?;
        Ok(rows.iter().map(dead_event::<DB>).collect())
    }

    /// Counts the dead letters.
    pub(crate) async fn count_dead(&self, filter: &EventFilter) -> Result<u64, Error> {
        let doing = "counting dead events";
        let count =
            self.number(doing, self.sql.dead_count.clone(), filter_args(filter, &[])).await?;
        Ok(count.unwrap_or_default().unsigned_abs())
    }

    /// Returns the sequence and the status of each row of an event, of one subscription or of all.
    pub(crate) async fn statuses_of(
        &self,
        event_id: &str,
        subscription: Option<&str>,
    ) -> Result<Vec<(i64, Status)>, Error> {
        let (doing, args) = ("looking for an event", vec![event_id.into(), subscription.into()]);
        let rows = self.rows(doing, self.sql.status_of.clone(), args).await?;
        let status = |[sequence, status]: [Option<i64>; 2]| {
            // A row with an unknown status is not changed.
            let status = Status::from_code(i16::try_from(status?).ok()?)?;
            Some((sequence?, status))
        };
        Ok(rows.iter().map(ints::<DB, 2>).filter_map(status).collect())
    }

    /// Returns the dead letters after a sequence, oldest first, except those that died after `since`.
    pub(crate) async fn dead_keys(
        &self,
        filter: &EventFilter,
        after: i64,
        since: SystemTime,
        limit: u32,
    ) -> Result<Vec<DeadKey>, Error> {
        let args = filter_args(filter, &[after, micros(since), limit.into()]);
        let rows = self.rows("looking for dead events", self.sql.dead_keys.clone(), args).await?;
        Ok(rows.iter().map(dead_key::<DB>).collect())
    }

    /// Replays the rows among these that are dead, and returns their number.
    pub(crate) async fn replay_rows(&self, sequences: &[i64]) -> Result<u64, Error> {
        self.change("replaying dead events", &self.sql.replay, || keys(sequences)).await
    }

    /// Deletes the rows among these that are dead, and returns their number.
    pub(crate) async fn discard_rows(&self, sequences: &[i64]) -> Result<u64, Error> {
        self.change("discarding dead events", &self.sql.discard, || keys(sequences)).await
    }
}

/// Returns the arguments of a filter, followed by more.
pub(super) fn filter_args(filter: &EventFilter, more: &[i64]) -> Vec<Arg> {
    filter.args().into_iter().chain(more.iter().copied().map(Arg::from)).collect()
}

fn dead_event<DB: Backend>(row: &DB::Row) -> DeadEvent {
    let row = RowReader::<DB>::new(row, &columns::DEAD);
    let attempts = row.int(Column::Attempts).and_then(|attempts| attempts.try_into().ok());
    let subscription = row.text(Column::Subscription).unwrap_or_default();
    DeadEvent {
        sequence: row.int(Column::Sequence).unwrap_or_default(),
        event_id: row.text(Column::EventId).unwrap_or_default(),
        event_type: row.text(Column::EventType).unwrap_or_default(),
        subscription: Recipient::from_column(&subscription).name().to_owned(),
        attempts: attempts.unwrap_or_default(),
        history: history::read(row.text(Column::History).as_deref()),
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
