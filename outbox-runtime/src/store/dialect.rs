//! What differs between the databases, as data.
//!
//! Statements are templates. `{table}` and `{index:x}` are the quoted names, `{by:x}` makes a statement use
//! an index where the planner has to be told, `{now}` is the time of the statement, `{int:..}`, `{text:..}`,
//! `{micros:..}`, `{time:..}`, `{from:..}`, `{later:..}` and `{earlier:..}` wrap an expression, `{next:..}` is a token's successor, `{pending:0}` and `{settled:1}` ask for a status, `$1`, `$2`, … are arguments, each used once and in
//! order.

use super::migration_lock::MigrationLock;
use super::schema::Migrations;
use super::{FindingLevel, Table};

/// How a database is spoken to.
#[derive(Debug)]
pub struct Dialect {
    pub(super) quote: char,
    /// Whether there is a server at the other end of a connection.
    pub(super) remote: bool,
    /// Whether the driver loses its way if a statement is cut short while it is being prepared.
    pub(super) fragile_prepare: bool,
    /// `$1` as it stands, or `?`.
    pub(super) numbered: bool,
    /// A batch is one array for each column, or one JSON text.
    pub(super) arrays: bool,
    /// The time of the statement, not of the transaction.
    pub(super) now: &'static str,
    /// An integer column as 64 bits.
    pub(super) int: Wrap,
    /// A JSON column as text.
    pub(super) text: Wrap,
    /// A time as microseconds since 1970.
    pub(super) micros: Wrap,
    /// Microseconds since 1970 as a time.
    pub(super) time: Wrap,
    /// The same as a lower bound: `earliest` stands before every time that can be stored.
    pub(super) from: Wrap,
    /// Microseconds from now, and before now.
    pub(super) later: Wrap,
    pub(super) earlier: Wrap,

    /// Of a status that is pending, and of one that is not; so that the index of these is used.
    pub(super) pending: Wrap,
    pub(super) settled: Wrap,
    /// The part of a statement that goes by the order of claims, after a place and up to another, each a
    /// due time and a sequence. The arguments are the first of the statement, and each place is bound as
    /// [`Places`] says.
    pub(super) between: &'static str,
    pub(super) places: Places,
    /// What `from` puts before every time, in microseconds since 1970.
    pub(super) earliest: i64,
    /// The settings under which our statements run outside of the application's transactions.
    pub(super) settings: &'static [(&'static str, &'static str)],
    /// Gives 1 if a session has these settings. A connection pooler may take them and forget them.
    pub(super) has_settings: Option<&'static str>,
    /// And those of the relay alone.
    pub(super) relay_settings: &'static [(&'static str, &'static str)],
    /// Sets up a session of the relay's own, where the options of a connection cannot. `{seconds}`, `{whole}` (seconds) and
    /// `{millis}` are what a statement may take.
    pub(super) session: Option<&'static str>,
    /// Ends the session that runs it; `None` where a connection cannot hang.
    pub(super) end_session: Option<&'static str>,
    /// Begins a transaction of the user's.
    pub(super) begin: &'static str,
    /// Begins one in which a listener works; it ends with the mark of its event, so it must not see an
    /// old state of that row.
    pub(super) begin_acknowledging: &'static str,
    /// Begins one of ours.
    pub(super) begin_work: &'static str,
    /// Whether a single statement needs one around it as well, for what it would lock by itself.
    pub(super) work_for_changes: bool,
    /// Fails if the transaction that was begun is no longer there. PostgreSQL needs none: there every
    /// statement fails in an aborted transaction.
    pub(super) guard: Option<&'static str>,
    /// The same in the middle of a transaction. One by one: a driver may not recover from several at
    /// a time that were cut short.
    pub(super) probe: &'static [&'static str],
    /// Finds out whether a connection that is not ours has a transaction.
    pub(super) open: OpenTransaction,
    /// Whether a statement that changes the schema commits what came before it.
    pub(super) commits_implicitly: bool,

    pub(super) insert: Insert,
    pub(super) existing: &'static str,
    /// What makes `existing` see what others have just committed.
    pub(super) existing_lock: &'static str,
    pub(super) claim: Locking,
    pub(super) renew: Locking,
    pub(super) settle: &'static str,
    pub(super) settle_delete: &'static str,
    /// How `finish` and `delete_done` pass over rows that another session has locked.
    pub(super) skip_locked: SkipLocked,
    pub(super) states: &'static str,
    pub(super) purge: &'static [&'static str],
    pub(super) replay_all: &'static str,
    /// Deletes by key what passes `{only}`.
    pub(super) delete: &'static str,
    /// Restricts rows to (aggregate, event) pairs. `{each}` becomes `pair`, as often as there are
    /// pairs where they are bound one by one.
    pub(super) pairs: &'static str,
    pub(super) pair: &'static str,
    pub(super) pairs_one_by_one: bool,
    /// What makes a statement use an index, where the planner has to be told: `{by:claim}`.
    pub(super) by_index: Option<Wrap>,
    /// Gives 1 if the database is in memory, where each connection might have one of its own.
    pub(super) in_memory: Option<&'static str>,
    /// How many connections this user may have open to the server, in all processes; `None` where there is no
    /// server.
    pub(super) connection_limit: Option<&'static str>,
    /// Gives 1 if the session is encrypted; `None` where there is no network.
    pub(super) encrypted: Option<&'static str>,
    /// Calls those who listen to the table's channel.
    pub(super) notify: Option<&'static str>,
    /// How many rows there are, roughly.
    pub(super) estimate: &'static str,
    /// Whether `estimate` asks for the table's name and schema.
    pub(super) estimate_by_name: bool,
    /// How many rows ended on one `{side}` of a time, through the index of the purge; in all, what each
    /// of them says.
    pub(super) ended: &'static [&'static str],
    /// The names of the table's columns. Needs no privilege that a user of the table does not have.
    pub(super) columns: &'static str,
    /// The names of the table's indexes.
    pub(super) indexes: &'static str,
    pub(super) migrations: Migrations,
    /// The lock for migrations, in a database that has several writers.
    pub(super) migration_lock: Option<MigrationLock>,
    /// Whether `CREATE INDEX` takes the schema before the name of the index instead of before the table's.
    pub(super) index_in_schema: bool,
    /// How many transactions have been open for longer than a time, and for how many microseconds the
    /// oldest has; `None` where there is nobody to ask.
    pub(super) transactions: Option<&'static str>,
    /// Gives 1 if `transactions` may see those of others.
    pub(super) transactions_visible: &'static str,
    /// The checks of `start` and `doctor`.
    pub(super) checks: &'static [Check],
}

/// How to find out whether a connection has a transaction.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "postgres", any(feature = "mysql", feature = "sqlite"))),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum OpenTransaction {
    /// Outside of a transaction, the first of these statements fails with
    /// [`NoTransaction`](super::DatabaseErrorKind::NoTransaction).
    FailsOutside(&'static [&'static str]),
    /// Inside of a transaction, this statement fails with
    /// [`InTransaction`](super::DatabaseErrorKind::InTransaction); outside, it changes nothing. The query returns 1
    /// if the next statement begins a transaction.
    FailsInside(&'static str, Option<&'static str>),
}

/// How events are inserted.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "mysql", any(feature = "postgres", feature = "sqlite"))),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum Insert {
    /// Skips ids that exist, and returns (sequence, event id) of what it has inserted.
    Returning(&'static str),
    /// Fails if an id exists. `bulk` is for events whose ids were generated; where one may have to wait
    /// for another transaction to end, a `row` for each event comes after `head`.
    Failing { bulk: &'static str, head: &'static str, row: &'static str },
}

/// A check of the server or the table.
#[derive(Debug)]
pub(super) struct Check {
    /// The subject of the finding.
    pub(super) subject: &'static str,
    /// Returns 1 if there is a problem.
    pub(super) test: &'static str,
    /// The level of the problem.
    pub(super) level: FindingLevel,
    /// The text of the finding if there is no problem; empty if there is no such finding.
    pub(super) ok: &'static str,
    /// The text of the finding if there is one.
    pub(super) problem: &'static str,
    pub(super) remedy: &'static str,
    /// Whether the check runs at every start, and not only in `doctor`.
    pub(super) at_start: bool,
}

/// The check for a server, a file or a session that is read-only.
pub(super) const fn writable(test: &'static str) -> Check {
    Check {
        subject: "server",
        test,
        level: FindingLevel::Error,
        ok: "the server accepts writes",
        problem: "the server is read-only: nothing can be written or delivered",
        remedy: "connect to the primary",
        at_start: true,
    }
}

/// What comes before and after an expression; `{it}` is the expression once more.
pub(super) type Wrap = (&'static str, &'static str);

/// The next token. Nothing comes after the last one: a row that was given it by hand keeps it, instead of
/// failing every claim that meets it.
const NEXT: Wrap = ("", " + CASE WHEN {it} < 9223372036854775807 THEN 1 ELSE 0 END");

/// How rows are taken without waiting for those that others hold: in one statement, or by locking
/// them first.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "mysql", feature = "postgres")),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum Locking {
    AtOnce(&'static str),
    LockThenUpdate {
        lock: &'static str,
        update: &'static str,
    },
    /// Reads without a lock, so that a long search keeps no writer waiting. The update gives the rows that
    /// are as they were read.
    ReadThenUpdate {
        read: &'static str,
        update: &'static str,
    },
}

/// How a place in the order of claims is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "mysql", feature = "postgres")),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum Places {
    /// As a row of a time and a sequence.
    Row,
    /// The time twice, and then the sequence: for a planner that cannot seek to a row.
    TimeTwice,
}

/// How results are recorded beside rows that another session has locked.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum SkipLocked {
    /// There are no locks on rows.
    Alone,
    /// The statement itself: `{keys}` is the rows that it waits for, or those that are free.
    Statement { waiting: &'static str, skipping: &'static str },
    /// The rows that are free are locked first.
    LockFirst(&'static str),
}

impl Dialect {
    /// Fills in a template.
    pub(super) fn render(&self, template: &str, table: &Table) -> String {
        let mut sql =
            template.replace("{table}", &table.quoted(self.quote)).replace("{now}", self.now);
        while let Some(start) = sql.find("{by:") {
            let end = start + sql[start..].find('}').unwrap_or(sql.len() - start - 1);
            let index = &sql[start + "{by:".len()..end];
            let (before, after) = self.by_index.unwrap_or_default();
            let hint = match before {
                "" => String::new(),
                _ => format!("{before}{{index:{index}}}{after}"),
            };
            sql.replace_range(start..=end, &hint);
        }
        while let Some(start) = sql.find("{index:") {
            let end = start + sql[start..].find('}').unwrap_or(sql.len() - start - 1);
            let index = table.derived(&sql[start + "{index:".len()..end]);
            sql.replace_range(start..=end, &format!("{0}{index}{0}", self.quote));
        }
        let wraps = [
            ("{int:", self.int),
            ("{text:", self.text),
            ("{micros:", self.micros),
            ("{time:", self.time),
            ("{from:", self.from),
            ("{later:", self.later),
            ("{earlier:", self.earlier),
            ("{next:", NEXT),
            ("{pending:", self.pending),
            ("{settled:", self.settled),
        ];
        for (opening, (before, after)) in wraps {
            while let Some(start) = sql.find(opening) {
                let end = start + sql[start..].find('}').unwrap_or(sql.len() - start - 1);
                let inner = &sql[start + opening.len()..end];
                let wrapped = format!("{before}{inner}{}", after.replace("{it}", inner));
                sql.replace_range(start..=end, &wrapped);
            }
        }
        sql = sql.replace("{bare}", table.name());
        sql = sql.replace("{bare_schema}", table.schema().unwrap_or_default());
        if self.numbered { sql } else { with_question_marks(&sql) }
    }
}

/// `$1` becomes `?`.
fn with_question_marks(sql: &str) -> String {
    let mut result = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(dollar) = rest.find('$') {
        result.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        // `'$[0]'` is a JSON path.
        result.push_str(if digits == 0 { "$" } else { "?" });
        rest = &rest[digits..];
    }
    result.push_str(rest);
    result
}
