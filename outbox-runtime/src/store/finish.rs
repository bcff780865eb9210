use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::SqlStr;

use super::batch::{Arg, Batch, Cell};
use super::row::span;
use super::{Backend, Store, injecting, lending, retrying};
use crate::Error;

/// The result of one delivery.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The row.
    pub sequence: i64,
    /// The token under which it was claimed.
    pub token: i64,
    /// What became of it.
    pub result: Finished,
}

/// What became of a delivery.
#[derive(Debug, Clone)]
pub enum Finished {
    /// Delivered.
    Done,
    /// Failed; to be tried again.
    Retry {
        /// How many attempts have failed, this one included.
        attempts: u32,
        /// How long to wait.
        delay: Duration,
        /// Why.
        error: String,
    },
    /// Failed for good.
    Dead {
        /// How many attempts have failed, this one included.
        attempts: u32,
        /// Why.
        error: String,
    },
    /// To be tried later; no attempt is spent.
    Deferred {
        /// How long to wait.
        delay: Duration,
    },
    /// Not tried; due at once.
    Released,
    /// Begun, and cut short in good order; due at once.
    Cancelled,
}

/// What happens to a row that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// It stays until it is purged.
    #[default]
    Keep,
    /// It is deleted at once.
    Delete,
}

const DOING: &str = "recording results";

/// The most attempts that a row can hold.
const MAX_ATTEMPTS: u32 = i32::MAX.cast_unsigned();

/// The longest error text, in characters.
const MAX_ERROR_CHARS: usize = 4_000;

impl<DB: Backend> Store<DB> {
    /// Records results, all in one statement. Each applies only if the row is still claimed under its
    /// token by this owner and not finished; what has moved on is left alone.
    ///
    /// Gives the sequences of stale results. A result that was recorded before, its acknowledgement
    /// lost, is not stale: it is there.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn finish(
        &self,
        owner: &str,
        results: &[Finish],
        completion: Completion,
    ) -> Result<Vec<i64>, Error> {
        let deleted = |finish: &&Finish| {
            completion == Completion::Delete && matches!(finish.result, Finished::Done)
        };
        let (gone, kept): (Vec<&Finish>, Vec<&Finish>) = results.iter().partition(deleted);
        let mut stale = Vec::new();
        if !kept.is_empty() {
            let args = || updates(&kept, owner, DB::DIALECT.arrays);
            let applied = self.mark(&self.sql.finish, args).await?;
            if applied < kept.len() as u64 {
                stale.extend(self.stale(&kept, Absent::Stale).await?);
            }
        }
        if !gone.is_empty() {
            let args = || deletions(&gone, owner, DB::DIALECT.arrays);
            let applied = self.mark(&self.sql.delete_done, args).await?;
            if applied < gone.len() as u64 {
                stale.extend(self.stale(&gone, Absent::Applied).await?);
            }
        }
        Ok(stale)
    }

    async fn mark(&self, sql: &SqlStr, args: impl Fn() -> Vec<Arg>) -> Result<u64, Error> {
        let _pass = self.pass().await?;
        retrying!(DB, DOING, self.mark_once(sql, args()).await)
    }

    async fn mark_once(&self, sql: &SqlStr, args: Vec<Arg>) -> sqlx::Result<u64> {
        let done = lending!(self, connection => {
            injecting!(self, Record => DB::execute(connection, sql.clone(), args).await)
        });
        done.map(|done| done.rows)
    }

    /// Records one result in a transaction that is not ours to end. `false` if the row has moved on.
    pub(crate) async fn finish_in(
        &self,
        connection: &mut DB::Connection,
        owner: &str,
        finish: &Finish,
        completion: Completion,
    ) -> Result<bool, Error> {
        let (sql, args) = match (completion, &finish.result) {
            (Completion::Delete, Finished::Done) => {
                (&self.sql.delete_done, deletions(&[finish], owner, DB::DIALECT.arrays))
            }
            _ => (&self.sql.finish, updates(&[finish], owner, DB::DIALECT.arrays)),
        };
        #[cfg(feature = "testing")]
        self.tell_time(connection).await.map_err(Error::database(DOING))?;
        let done = injecting!(self, Record => DB::execute(connection, sql.clone(), args).await);
        Ok(done.map_err(Error::database(DOING))?.rows == 1)
    }

    /// Looks again at a batch of which not every result applied: under its own token and unlocked,
    /// a row bears our own mark; anything else has moved on.
    async fn stale(&self, results: &[&Finish], absent: Absent) -> Result<Vec<i64>, Error> {
        let sequences = results.iter().map(|finish| Some(finish.sequence)).collect();
        let args = vec![Arg::Ints(sequences)];
        let rows = self.rows(DOING, self.sql.states.clone(), args).await?;
        let mut unlocked: HashMap<i64, i64> = HashMap::new();
        let mut present: HashSet<i64> = HashSet::new();
        for row in &rows {
            let (Ok(Some(sequence)), Ok(Some(token))) = (DB::int(row, 0), DB::int(row, 1)) else {
                continue;
            };
            present.insert(sequence);
            if matches!(DB::text(row, 2), Ok(None)) {
                unlocked.insert(sequence, token);
            }
        }
        let is_stale = |finish: &&&Finish| match absent {
            Absent::Applied => present.contains(&finish.sequence),
            Absent::Stale => unlocked.get(&finish.sequence) != Some(&finish.token),
        };
        Ok(results.iter().filter(is_stale).map(|finish| finish.sequence).collect())
    }
}

/// What it means that a row is not there.
#[derive(Clone, Copy)]
enum Absent {
    Applied,
    Stale,
}

pub(super) fn updates(results: &[&Finish], owner: &str, arrays: bool) -> Vec<Arg> {
    let rows = results.iter().map(|finish| {
        let (mark, attempts, wait, error) = match &finish.result {
            Finished::Done => (1, None, Duration::ZERO, None),
            Finished::Retry { attempts, delay, error } => {
                (2, Some(*attempts), *delay, Some(error_text(error)))
            }
            Finished::Dead { attempts, error } => {
                (3, Some(*attempts), Duration::ZERO, Some(error_text(error)))
            }
            Finished::Deferred { delay } => (4, None, *delay, None),
            Finished::Released => (5, None, Duration::ZERO, None),
            Finished::Cancelled => (6, None, Duration::ZERO, None),
        };
        [
            Cell::Int(Some(finish.sequence)),
            Cell::Int(Some(finish.token)),
            Cell::Int(Some(mark)),
            Cell::Int(attempts.map(|attempts| attempts.min(MAX_ATTEMPTS).into())),
            Cell::Int(Some(span(wait))),
            Cell::Text(error),
        ]
    });
    let mut args = Batch::new(rows).into_args(arrays);
    args.push(owner.into());
    args
}

pub(super) fn deletions(results: &[&Finish], owner: &str, arrays: bool) -> Vec<Arg> {
    let rows = results
        .iter()
        .map(|finish| [Cell::Int(Some(finish.sequence)), Cell::Int(Some(finish.token))]);
    let mut args = Batch::new(rows).into_args(arrays);
    args.push(owner.into());
    args
}

/// An error's text as it can be stored anywhere: without control characters, and not too long.
fn error_text(error: &str) -> String {
    error
        .chars()
        .map(|letter| if letter.is_whitespace() { ' ' } else { letter })
        .filter(|letter| !letter.is_control())
        .take(MAX_ERROR_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_can_be_stored_anywhere() {
        assert_eq!(error_text("a\0b\nc\u{7f}\u{1b}[31md"), "ab c[31md");
        assert_eq!(error_text(&"ü".repeat(1 << 20)).chars().count(), 4_000);
        assert_eq!(error_text(""), "");
    }
}
