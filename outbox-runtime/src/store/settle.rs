use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::SqlStr;

use super::batch::{Arg, Batch, Cell};
use super::dialect::Settle;
use super::row::span;
use super::skip_locked::keys;
use super::statements::Settling;
use super::{Backend, Store, fault_point, retrying, with_connection};
use crate::Error;

/// The result of one delivery.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The row.
    pub sequence: i64,
    /// The token under which it was claimed.
    pub token: i64,
    /// What became of it.
    pub result: Verdict,
}

/// What became of a delivery.
#[derive(Debug, Clone)]
pub enum Verdict {
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
    /// Begun, and to be tried again later; no attempt is spent.
    Deferred {
        /// How long to wait.
        delay: Duration,
    },
    /// Not begun; due later.
    Postponed {
        /// How long to wait.
        delay: Duration,
    },
    /// Not begun; due at once.
    Released,
    /// Begun, and cut short in good order; due at once.
    Cancelled,
}

impl Verdict {
    /// What becomes of the number of times that an event was begun after its owner was lost. The
    /// statement `finish` of each dialect does the same.
    ///
    /// What ends the event, or counts as an attempt, clears it of the suspicion: attempts are limited
    /// themselves. Nothing else does, or an event that ends every second process that begins it would
    /// never be given up. A call that came back takes its own beginning off the number, since its owner
    /// was not lost, but one remains.
    pub fn takeovers_after(&self, takeovers: u32) -> u32 {
        match self {
            Self::Done | Self::Retry { .. } | Self::Dead { .. } => 0,
            Self::Deferred { .. } | Self::Cancelled if takeovers > 1 => takeovers - 1,
            Self::Deferred { .. } | Self::Cancelled => takeovers,
            Self::Postponed { .. } | Self::Released => takeovers,
        }
    }
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

/// Results that were not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unsettled {
    /// Rows that have moved on: their results are of no more use.
    pub stale: Vec<i64>,
    /// Rows that another session has locked: their results are to be recorded later.
    pub locked: Vec<i64>,
}

impl Unsettled {
    /// Whether every result is recorded.
    pub fn is_empty(&self) -> bool {
        self.stale.is_empty() && self.locked.is_empty()
    }
}

/// What to do about a row that another session has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    /// Wait for a moment, and then pass it over. The cheapest where no row is locked.
    Wait,
    /// Pass it over. Every row is locked before it is changed, which costs a little more.
    Skip,
}

impl<DB: Backend> Store<DB> {
    /// Records results, all in one statement. Each applies only if the row is still claimed under its
    /// token by this owner and not finished; what has moved on is left alone.
    ///
    /// Gives what was not recorded. A result that was recorded before, its acknowledgement lost, is
    /// there, so it is not among them.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn finish(
        &self,
        owner: &str,
        results: &[Settlement],
        completion: Completion,
    ) -> Result<Unsettled, Error> {
        self.settle(owner, results, completion, Locked::Wait).await
    }

    /// Records results like [`finish`](Self::finish), and says what to do about locked rows.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn settle(
        &self,
        owner: &str,
        results: &[Settlement],
        completion: Completion,
        locked: Locked,
    ) -> Result<Unsettled, Error> {
        let deleted = |finish: &&Settlement| {
            completion == Completion::Delete && matches!(finish.result, Verdict::Done)
        };
        let (gone, sticky): (Vec<&Settlement>, Vec<&Settlement>) =
            results.iter().partition(deleted);
        let mut unsettled = Unsettled::default();
        let parts: [(&Settling, Arguments, &[&Settlement], Absent); 2] = [
            (&self.sql.finish, updates, &sticky, Absent::Stale),
            (&self.sql.delete_done, deletions, &gone, Absent::Applied),
        ];
        for (sql, args, batch, absent) in parts {
            if batch.is_empty() {
                continue;
            }
            let applied = self.mark(sql, args, owner, batch, locked).await?;
            if applied < batch.len() as u64 {
                self.reread(owner, batch, absent, &mut unsettled).await?;
            }
        }
        Ok(unsettled)
    }

    async fn mark(
        &self,
        sql: &Settling,
        args: Arguments,
        owner: &str,
        batch: &[&Settlement],
        locked: Locked,
    ) -> Result<u64, Error> {
        let _guard = self.acquire_writer().await?;
        let waiting = || self.mark_once(&sql.waiting, args(batch, owner, DB::DIALECT.arrays));
        if matches!(DB::DIALECT.settle, Settle::Alone) {
            return retrying!(DB, DOING, waiting().await);
        }
        if locked == Locked::Wait {
            match waiting().await {
                Err(sqlx::Error::Database(error)) if DB::is_contention(&*error) => {}
                marked => return marked.map_err(Error::database(DOING)),
            }
        }
        let rows: Vec<i64> = batch.iter().map(|finish| finish.sequence).collect();
        let args = |free: Option<&HashSet<i64>>| {
            let is_free =
                |finish: &&&Settlement| free.is_none_or(|free| free.contains(&finish.sequence));
            let batch: Vec<&Settlement> = batch.iter().filter(is_free).copied().collect();
            args(&batch, owner, DB::DIALECT.arrays)
        };
        retrying!(DB, DOING, self.change_unlocked(sql, &rows, args).await)
    }

    async fn mark_once(&self, sql: &SqlStr, args: Vec<Arg>) -> sqlx::Result<u64> {
        let done = with_connection!(self, by_key connection => {
            fault_point!(self, Record => DB::execute(connection, sql.clone(), args).await)
        });
        done.map(|done| done.rows)
    }

    /// Records one result in a transaction that is not ours to end. `false` if the row has moved on.
    pub(crate) async fn finish_in(
        &self,
        connection: &mut DB::Connection,
        owner: &str,
        finish: &Settlement,
        completion: Completion,
    ) -> Result<bool, Error> {
        let (sql, args) = match (completion, &finish.result) {
            (Completion::Delete, Verdict::Done) => {
                (&self.sql.delete_done, deletions(&[finish], owner, DB::DIALECT.arrays))
            }
            _ => (&self.sql.finish, updates(&[finish], owner, DB::DIALECT.arrays)),
        };
        #[cfg(feature = "testing")]
        self.tell_time(connection).await.map_err(Error::database(DOING))?;
        let sql = sql.waiting.clone();
        let done = fault_point!(self, Record => DB::execute(connection, sql, args).await);
        Ok(done.map_err(Error::database(DOING))?.rows == 1)
    }

    /// Reads a batch again of which not every result applied. Under its own token and unlocked, a row
    /// bears our own mark. Under its own token and ours, it was passed over. Anything else has moved on.
    async fn reread(
        &self,
        owner: &str,
        results: &[&Settlement],
        absent: Absent,
        unsettled: &mut Unsettled,
    ) -> Result<(), Error> {
        let sequences: Vec<i64> = results.iter().map(|finish| finish.sequence).collect();
        let rows = self.rows(DOING, self.sql.states.clone(), keys(&sequences)).await?;
        let number = |row, column| DB::int(row, column).ok().flatten();
        let state = |row| {
            let key = (number(row, 0)?, number(row, 1)?);
            let owner = DB::text(row, 2).ok()?;
            let is_pending = matches!(number(row, 3), Some(0 | 2));
            Some((key.0, State { token: key.1, owner, is_pending }))
        };
        let states: HashMap<i64, State> = rows.iter().filter_map(state).collect();
        for finish in results {
            let own = states.get(&finish.sequence).filter(|state| state.token == finish.token);
            let is_applied = match absent {
                Absent::Applied => !states.contains_key(&finish.sequence),
                Absent::Stale => own.is_some_and(|state| state.owner.is_none()),
            };
            let is_ours = |state: &State| state.is_pending && state.owner.as_deref() == Some(owner);
            if own.is_some_and(is_ours) {
                unsettled.locked.push(finish.sequence);
            } else if !is_applied {
                unsettled.stale.push(finish.sequence);
            }
        }
        Ok(())
    }
}

/// What a row says of its delivery.
struct State {
    token: i64,
    owner: Option<String>,
    is_pending: bool,
}

/// What it means that a row is not there.
#[derive(Clone, Copy)]
enum Absent {
    Applied,
    Stale,
}

/// What is bound for a batch.
type Arguments = fn(&[&Settlement], &str, bool) -> Vec<Arg>;

pub(super) fn updates(results: &[&Settlement], owner: &str, arrays: bool) -> Vec<Arg> {
    let rows = results.iter().map(|finish| {
        let (mark, attempts, wait, error) = match &finish.result {
            Verdict::Done => (1, None, Duration::ZERO, None),
            Verdict::Retry { attempts, delay, error } => {
                (2, Some(*attempts), *delay, Some(error_text(error)))
            }
            Verdict::Dead { attempts, error } => {
                (3, Some(*attempts), Duration::ZERO, Some(error_text(error)))
            }
            Verdict::Deferred { delay } => (4, None, *delay, None),
            Verdict::Released => (5, None, Duration::ZERO, None),
            Verdict::Cancelled => (6, None, Duration::ZERO, None),
            Verdict::Postponed { delay } => (7, None, *delay, None),
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

pub(super) fn deletions(results: &[&Settlement], owner: &str, arrays: bool) -> Vec<Arg> {
    let rows = results
        .iter()
        .map(|finish| [Cell::Int(Some(finish.sequence)), Cell::Int(Some(finish.token))]);
    let mut args = Batch::new(rows).into_args(arrays);
    args.push(owner.into());
    args
}

/// An error's text as it can be stored anywhere: without control characters, and not too long. One that was
/// cut ends with `…`.
fn error_text(error: &str) -> String {
    let mut letters = error
        .chars()
        .map(|letter| if letter.is_whitespace() { ' ' } else { letter })
        .filter(|letter| !letter.is_control());
    let mut text: String = letters.by_ref().take(MAX_ERROR_CHARS).collect();
    if letters.next().is_some() {
        text.pop();
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_can_be_stored_anywhere() {
        assert_eq!(error_text("a\0b\nc\u{7f}\u{1b}[31md"), "ab c[31md");
        assert_eq!(error_text(""), "");
    }

    #[test]
    fn a_cut_error_text_says_so() {
        assert_eq!(error_text(&"ü".repeat(4_000)), "ü".repeat(4_000));
        assert_eq!(error_text(&"ü".repeat(4_001)), "ü".repeat(3_999) + "…");
        assert_eq!(error_text(&"🎉".repeat(1 << 20)), "🎉".repeat(3_999) + "…");
        // What is left out anyway is not missed.
        assert_eq!(error_text(&["x".repeat(4_000).as_str(), "\0"].concat()), "x".repeat(4_000));
    }
}
