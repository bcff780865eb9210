use std::time::SystemTime;

use super::batch::Arg;
use super::columns::ints;
use super::dialect::Places;
use super::row::{micros, time};
use super::{Backend, Store};
use crate::Error;
use crate::event::Status;

/// Where a window ends that begins after a place and has so many rows, if there are as many up to another.
pub(super) const WINDOW_END: &str = "\
    SELECT {micros:available_at}, {int:sequence} FROM {table} {by:claim} \
    WHERE {pending:{status}} AND {between} ORDER BY available_at, sequence LIMIT 1 OFFSET $5";

/// A place in the order of claims: by due time, and by sequence among rows that are due at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// When a row is due.
    pub due: SystemTime,
    /// Its sequence.
    pub sequence: i64,
}

impl Position {
    /// Before every row that is due at a time.
    pub fn before(due: SystemTime) -> Self {
        Self { due, sequence: i64::MIN }
    }
}

impl<DB: Backend> Store<DB> {
    /// The end of a window of so many rows of a status that begins after a place; `None` if there are
    /// fewer up to another place.
    pub(crate) async fn window_end(
        &self,
        status: Status,
        after: Option<Position>,
        until: Position,
        rows: u32,
    ) -> Result<Option<Position>, Error> {
        let sql = &self.sql.window_end[usize::from(status != Status::New)];
        let mut args = self.between(after, Some(until));
        args.push(i64::from(rows.saturating_sub(1)).into());
        let found = self.rows("looking for due events", sql.clone(), args).await?;
        Ok(found.first().map(ints::<DB, 2>).and_then(|[due, sequence]| {
            let due = time(due.unwrap_or(self.dialect().earliest))?;
            Some(Position { due, sequence: sequence? })
        }))
    }

    /// What is bound for the part of the order of claims after a place and up to another.
    pub(super) fn between(&self, after: Option<Position>, until: Option<Position>) -> Vec<Arg> {
        /// Beyond the end of every calendar but SQLite's, which has none.
        const LATEST: i64 = 253_370_764_800_000_000;
        let dialect = self.dialect();
        let after = after.map_or((dialect.earliest, i64::MIN), |place| {
            (micros(place.due).max(dialect.earliest), place.sequence)
        });
        let until = until.map_or((LATEST, i64::MAX), |place| (micros(place.due), place.sequence));
        let bind = |(due, sequence): (i64, i64)| match dialect.places {
            Places::Row => vec![due, sequence],
            Places::TimeTwice => vec![due, due, sequence],
        };
        [after, until].into_iter().flat_map(bind).map(Arg::from).collect()
    }
}
