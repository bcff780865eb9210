#[cfg(feature = "postgres")]
pub(super) mod postgres;

use std::collections::{HashMap, HashSet};

use sqlx::SqlStr;

use super::batch::{Arg, Batch, Cell};
use super::columns::{self, Column, RowReader};
use super::dialect::SkipLocked;
use super::history;
use super::row::span;
use super::skip_locked::keys;
use super::statements::Settling;
use super::{Backend, DatabaseErrorKind, Store, fault_point, retrying, with_connection};
use crate::Error;
use crate::event::{Status, Verdict, VerdictKind};

/// A verdict to be written to its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The row.
    pub sequence: i64,
    /// The token under which the row was claimed. A row with another token is not changed.
    pub token: i64,
    /// What to write.
    pub verdict: Verdict,
    /// The failures of the row before, as they were read. One that the verdict reports is added.
    pub history: Option<Box<str>>,
}

/// What happens to the row of an event when it is delivered; see [`Config::completion`](crate::Config::completion).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// The row stays, with the status DONE, until it is purged
    /// ([`PurgeConfig::retention`](crate::PurgeConfig::retention)).
    ///
    /// It is a history of what was delivered and when, and an event that is written again under the same id is
    /// recognised as a duplicate for as long.
    #[default]
    Keep,
    /// The row is deleted at once, so that the table contains only pending and dead events.
    ///
    /// It saves space and the purge. There is no history, and an event that is written again under the same id is
    /// delivered again.
    Delete,
}

const DOING: &str = "settling events";

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
pub(crate) enum LockedRows {
    /// Wait for a short time, and then skip it. The cheapest where no row is locked.
    Wait,
    /// Skip it. Every row is locked before it is changed, which costs a little more.
    Skip,
}

impl<DB: Backend> Store<DB> {
    /// Writes verdicts to their rows, all in one statement. Each applies only if the row is still claimed
    /// under its token by this owner and is pending; a row that has moved on is not changed.
    ///
    /// Returns the settlements that were not applied. One that was applied before, its answer lost,
    /// is recognised and is not among them.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn settle(
        &self,
        owner: &str,
        settlements: &[Settlement],
        completion: Completion,
    ) -> Result<Unsettled, Error> {
        self.settle_with(owner, settlements, completion, LockedRows::Wait).await
    }

    /// Like [`settle`](Self::settle), with a choice of what to do about locked rows.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn settle_with(
        &self,
        owner: &str,
        settlements: &[Settlement],
        completion: Completion,
        locked: LockedRows,
    ) -> Result<Unsettled, Error> {
        // Nearly all are done, and under their first token.
        let is_done = |settlement: &&Settlement| settlement.verdict == Verdict::Done;
        let token = settlements.iter().find(is_done).map(|settlement| settlement.token);
        let (mut alike, mut deleted, mut updated) = (Vec::new(), Vec::new(), Vec::new());
        for settlement in settlements {
            let is_first = Some(settlement.token) == token && self.sql.settle_alike.is_some();
            match (is_done(&settlement), completion) {
                (true, _) if is_first => alike.push(settlement),
                (true, Completion::Delete) => deleted.push(settlement),
                (true, Completion::Keep) | (false, _) => updated.push(settlement),
            }
        }
        let (settle, delete) = (&self.sql.settle, &self.sql.settle_delete);
        let [keep_alike, delete_alike] =
            self.sql.settle_alike.as_ref().map_or([settle, delete], <[_; 2]>::each_ref);
        let (settle_alike, absent) = match completion {
            Completion::Keep => (keep_alike, Absent::Stale),
            Completion::Delete => (delete_alike, Absent::Applied),
        };
        let mut unsettled = Unsettled::default();
        let parts: [(&Settling, Arguments, &[&Settlement], Absent); 3] = [
            (settle_alike, all_done, &alike, absent),
            (delete, deletions, &deleted, Absent::Applied),
            (settle, updates, &updated, Absent::Stale),
        ];
        for (sql, args, batch, absent) in parts {
            if batch.is_empty() {
                continue;
            }
            let applied = self.settle_batch(sql, args, owner, batch, locked).await?;
            if applied < batch.len() as u64 {
                self.reread(owner, batch, absent, &mut unsettled).await?;
            }
        }
        Ok(unsettled)
    }

    async fn settle_batch(
        &self,
        sql: &Settling,
        args: Arguments,
        owner: &str,
        batch: &[&Settlement],
        locked: LockedRows,
    ) -> Result<u64, Error> {
        let _guard = self.acquire_writer().await?;
        let waiting = || self.settle_once(&sql.waiting, args(batch, owner, DB::DIALECT.arrays));
        if matches!(DB::DIALECT.skip_locked, SkipLocked::Alone) {
            return retrying!(DOING, waiting().await);
        }
        if locked == LockedRows::Wait {
            match waiting().await {
                Err(error) if DatabaseErrorKind::from_error(&error).is_contention() => {}
                settled => return settled.map_err(Error::database(DOING)),
            }
        }
        let rows: Vec<i64> = batch.iter().map(|settlement| settlement.sequence).collect();
        let args = |free: Option<&HashSet<i64>>| {
            let is_free = |settlement: &&&Settlement| {
                free.is_none_or(|free| free.contains(&settlement.sequence))
            };
            let batch: Vec<&Settlement> = batch.iter().filter(is_free).copied().collect();
            args(&batch, owner, DB::DIALECT.arrays)
        };
        retrying!(DOING, fault_point!(self, Record => self.change_unlocked(sql, &rows, args).await))
    }

    async fn settle_once(&self, sql: &SqlStr, args: Vec<Arg>) -> sqlx::Result<u64> {
        fault_point!(self, Record => with_connection!(self, by_key connection => {
            match self.relay {
                Some(_) => DB::execute(connection, sql.clone(), args).await.map(|done| done.rows),
                None => self.change_on(connection, sql, args).await,
            }
        }))
    }

    /// Settles one row in a transaction that the caller ends. Returns `false` if the row has moved on.
    pub(crate) async fn settle_in(
        &self,
        connection: &mut DB::Connection,
        owner: &str,
        settlement: &Settlement,
        completion: Completion,
    ) -> Result<bool, Error> {
        let (sql, args) = match (completion, &settlement.verdict) {
            (Completion::Delete, Verdict::Done) => {
                (&self.sql.settle_delete, deletions(&[settlement], owner, DB::DIALECT.arrays))
            }
            _ => (&self.sql.settle, updates(&[settlement], owner, DB::DIALECT.arrays)),
        };
        self.set_clock(connection).await.map_err(Error::database(DOING))?;
        let sql = sql.waiting.clone();
        let done = fault_point!(self, Record => DB::execute(connection, sql, args).await);
        Ok(done.map_err(Error::database(DOING))?.rows == 1)
    }

    /// Reads a batch again of which not every settlement applied. A row under its own token and unlocked
    /// bears our own verdict. A row under its own token and locked by us was skipped. Any other has moved on.
    async fn reread(
        &self,
        owner: &str,
        settlements: &[&Settlement],
        absent: Absent,
        unsettled: &mut Unsettled,
    ) -> Result<(), Error> {
        let sequences: Vec<i64> =
            settlements.iter().map(|settlement| settlement.sequence).collect();
        let rows = self.rows(DOING, self.sql.states.clone(), keys(&sequences)).await?;
        let state = |row| {
            let row = RowReader::<DB>::new(row, &columns::STATES);
            let (sequence, token) = (row.int(Column::Sequence)?, row.int(Column::ClaimToken)?);
            let owner = row.try_text(Column::LockedBy).ok()?;
            let code = row.int(Column::Status).and_then(|code| code.try_into().ok());
            let status = code.and_then(Status::from_code);
            let is_pending = status.is_some_and(|status| !status.is_terminal());
            Some((sequence, State { token, owner, is_pending }))
        };
        let states: HashMap<i64, State> = rows.iter().filter_map(state).collect();
        for settlement in settlements {
            let state = states.get(&settlement.sequence);
            let own = state.filter(|state| state.token == settlement.token);
            let is_applied = match absent {
                Absent::Applied => state.is_none(),
                Absent::Stale => own.is_some_and(|state| state.owner.is_none()),
            };
            let is_ours = |state: &State| state.is_pending && state.owner.as_deref() == Some(owner);
            if own.is_some_and(is_ours) {
                unsettled.locked.push(settlement.sequence);
            } else if !is_applied {
                unsettled.stale.push(settlement.sequence);
            }
        }
        Ok(())
    }
}

/// The state of a row that a settlement did not apply to.
struct State {
    token: i64,
    owner: Option<String>,
    is_pending: bool,
}

/// What it means that a row does not exist.
#[derive(Clone, Copy)]
enum Absent {
    Applied,
    Stale,
}

/// Builds the arguments for a batch.
type Arguments = fn(&[&Settlement], &str, bool) -> Vec<Arg>;

pub(super) fn updates(settlements: &[&Settlement], owner: &str, arrays: bool) -> Vec<Arg> {
    let rows = settlements.iter().map(|settlement| {
        let Settlement { sequence, token, verdict, history } = settlement;
        let history = verdict.error().map(|error| {
            history::append(
                history.as_deref(),
                verdict.attempts().unwrap_or_default(),
                owner,
                error,
            )
        });
        let attempts = verdict.attempts().map(|attempts| attempts.min(MAX_ATTEMPTS).into());
        [
            Cell::Int(Some(*sequence)),
            Cell::Int(Some(*token)),
            Cell::Int(Some(verdict.kind().code())),
            Cell::Int(attempts),
            Cell::Int(Some(span(verdict.delay().unwrap_or_default()))),
            Cell::Text(verdict.error().map(error_text)),
            Cell::Text(history),
        ]
    });
    let mut args = Batch::new(rows).into_args(arrays);
    args.push(owner.into());
    args
}

pub(super) fn deletions(settlements: &[&Settlement], owner: &str, arrays: bool) -> Vec<Arg> {
    let rows = settlements.iter().map(|settlement| {
        [Cell::Int(Some(settlement.sequence)), Cell::Int(Some(settlement.token))]
    });
    let mut args = Batch::new(rows).into_args(arrays);
    args.push(owner.into());
    args
}

/// The arguments for settlements that are done under one token.
pub(super) fn all_done(settlements: &[&Settlement], owner: &str, _: bool) -> Vec<Arg> {
    let sequences: Vec<i64> = settlements.iter().map(|settlement| settlement.sequence).collect();
    let token = settlements.first().map_or(0, |settlement| settlement.token);
    let mut args = keys(&sequences);
    args.extend([token.into(), owner.into()]);
    args
}

/// Fills the parts of a settling statement that follow from the state machine, so that no statement repeats
/// it: `{status_after}`, `{done}`, and the codes of the verdicts that end an event (`{final_verdicts}`), that reset its
/// `takeovers` (`{clearing_verdicts}`), and that lower them by one (`{decrementing_verdicts}`).
pub(super) fn render_verdicts(template: &str) -> String {
    let codes = |which: fn(VerdictKind) -> bool| {
        let codes = VerdictKind::ALL.into_iter().filter(|kind| which(*kind));
        codes.map(|kind| kind.code().to_string()).collect::<Vec<_>>().join(", ")
    };
    // 2 is the smallest number at which a reset, a decrement and no change differ.
    let is_final = |kind| Status::New.after(kind).is_some_and(Status::is_terminal);
    template
        .replace("{status_after}", &status_after())
        .replace("{done}", &Status::Done.code().to_string())
        .replace("{final_verdicts}", &codes(is_final))
        .replace("{clearing_verdicts}", &codes(|kind| kind.takeovers_after(2) == 0))
        .replace("{decrementing_verdicts}", &codes(|kind| kind.takeovers_after(2) == 1))
}

/// [`Status::after`] as SQL, for the statuses that a verdict applies to.
fn status_after() -> String {
    let mut sql = "CASE settlement.verdict".to_owned();
    for kind in VerdictKind::ALL {
        let (new, retry) = (Status::New.after(kind), Status::Retry.after(kind));
        // A verdict that keeps the status is the ELSE.
        if let Some(status) = new.filter(|_| new == retry) {
            sql += &format!(" WHEN {} THEN {}", kind.code(), status.code());
        }
    }
    sql + " ELSE entry.status END"
}

/// An error's text as it can be stored anywhere: without control characters, and not too long. One that was
/// cut ends with `…`.
pub(super) fn error_text(error: &str) -> String {
    short_text(error, MAX_ERROR_CHARS)
}

pub(super) fn short_text(error: &str, most: usize) -> String {
    let mut letters = error
        .chars()
        .map(|letter| if letter.is_whitespace() { ' ' } else { letter })
        .filter(|letter| !letter.is_control());
    let mut text: String = letters.by_ref().take(most).collect();
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
