//! The order of claims, and windows in it.

use std::time::SystemTime;

use super::batch::Arg;
use super::columns::ints;
use super::dialect::Places;
use super::row::{micros, time};
use super::{Backend, Store};
use crate::Error;
use crate::event::Status;

/// Selects the position of the last row of a window between two positions. The last argument is the number of rows
/// before it; no row is returned if the window has fewer.
pub(super) const WINDOW_END: &str = "\
    SELECT {micros:available_at}, {int:sequence} FROM {table} {by:claim} \
    WHERE {pending:{status}} AND {between} ORDER BY available_at, sequence LIMIT 1 OFFSET $5";

/// A position in the order of claims: by due time, then by sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// When the row is due.
    pub due: SystemTime,
    /// The sequence of the row.
    pub sequence: i64,
}

impl Position {
    /// Returns the position before every row that is due at this time.
    pub fn before(due: SystemTime) -> Self {
        Self { due, sequence: i64::MIN }
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns the position of the last row of a window of `rows` rows of one status that begins after `after`, or
    /// `None` if there are fewer rows up to `until`.
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

    /// Returns the arguments of `Dialect::between`: the rows after a position and up to another.
    pub(super) fn between(&self, after: Option<Position>, until: Option<Position>) -> Vec<Arg> {
        /// The year 9999, the last one that every database can store. Claims end at the current time anyway.
        const LATEST: i64 = 253_370_764_800_000_000;
        let dialect = self.dialect();
        let after = after.map_or((dialect.earliest, i64::MIN), |position| {
            (micros(position.due).max(dialect.earliest), position.sequence)
        });
        let until =
            until.map_or((LATEST, i64::MAX), |position| (micros(position.due), position.sequence));
        let bind = |(due, sequence): (i64, i64)| match dialect.places {
            Places::Row => vec![due, sequence],
            Places::TimeTwice => vec![due, due, sequence],
        };
        [after, until].into_iter().flat_map(bind).map(Arg::from).collect()
    }
}
