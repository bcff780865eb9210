//! The differences between the databases, as data.
//!
//! Statements are templates. `{table}` and `{index:x}` are the quoted names, `{by:x}` makes a statement use an
//! index where the planner needs a hint, `{now}` is the time of the statement, `{int:..}`, `{text:..}`,
//! `{micros:..}`, `{time:..}`, `{from:..}`, `{later:..}` and `{earlier:..}` wrap an expression, `{next:..}` is the
//! successor of a token, `{pending:0}` and `{settled:1}` compare the status, `$1`, `$2`, … are arguments, each used
//! once and in order.
//!
//! Some parts are put in before that: the lists of `columns.rs` (`{columns}`, `{dead_columns}`, …), the verdicts of
//! `settle.rs` (`{status_after}`, `{final_verdicts}`, …), and in `statements.rs` what a statement has variants of
//! (`{status}`, `{pairs}`, `{between}`, `{keys}`, `{only}`); `order.rs` has those of ordered outboxes (`{order_key}`, …).

use super::fan_out::FanOut;
use super::migration_lock::MigrationLock;
use super::order::Order;
use super::relay_lock::RelayLock;
use super::rights::Rights;
use super::schema::Migrations;
use super::{FindingLevel, Table};

/// The SQL of a database, and the properties of its driver.
#[derive(Debug)]
pub struct Dialect {
    pub(super) quote: char,
    /// Whether a connection leads to a server.
    pub(super) remote: bool,
    /// Whether a connection becomes unusable if a statement is cancelled while the driver prepares it.
    pub(super) fragile_prepare: bool,
    /// Whether arguments are written `$1`, and not `?`.
    pub(super) numbered: bool,
    /// Whether a batch is bound as one array for each column, and not as one JSON text.
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
    /// The same as a lower bound: `earliest` becomes a time before every time that can be stored.
    pub(super) from: Wrap,
    /// Microseconds from now, and before now.
    pub(super) later: Wrap,
    pub(super) earlier: Wrap,

    /// Compares the status with a pending one, and with a settled one, so that the partial index is used.
    pub(super) pending: Wrap,
    pub(super) settled: Wrap,
    /// The condition that a row comes after one position in the order of claims and up to another, each a due time
    /// and a sequence. Its arguments are the first of the statement; [`Places`] is how each position is bound.
    pub(super) between: &'static str,
    pub(super) places: Places,
    /// The argument of `from` that comes before every time, in microseconds since 1970.
    pub(super) earliest: i64,
    /// The settings for the store's statements outside of the application's transactions.
    pub(super) settings: &'static [(&'static str, &'static str)],
    /// Returns 1 if a session has these settings. A connection pooler may accept and not apply them.
    pub(super) has_settings: Option<&'static str>,
    /// The additional settings of the relay.
    pub(super) relay_settings: &'static [(&'static str, &'static str)],
    /// Sets up a session of the relay, where the connect options cannot. `{seconds}`, `{whole}` (seconds) and
    /// `{millis}` are the time limit of a statement.
    pub(super) session: Option<&'static str>,
    /// Ends the session that runs it; `None` where a connection cannot hang.
    pub(super) end_session: Option<&'static str>,
    /// Begins a transaction of the application.
    pub(super) begin: &'static str,
    /// Begins the transaction of a listener. It settles the row of its event at the end, so it must not see an old
    /// state of that row.
    pub(super) begin_settling: &'static str,
    /// Begins a transaction of the store.
    pub(super) begin_work: &'static str,
    /// Whether a single statement runs in such a transaction as well, because it would lock more by itself.
    pub(super) work_for_changes: bool,
    /// Fails if the transaction has ended. PostgreSQL needs none: there every statement fails in an aborted
    /// transaction.
    pub(super) guard: Option<&'static str>,
    /// The same in the middle of a transaction. The statements are run one by one: a driver may not recover if
    /// several at a time are cancelled.
    pub(super) probe: &'static [&'static str],
    /// Finds out whether a connection of the application has a transaction.
    pub(super) open: OpenTransaction,
    /// Whether a statement that changes the schema commits the transaction.
    pub(super) commits_implicitly: bool,

    pub(super) insert: Insert,
    pub(super) existing: &'static str,
    /// The suffix that makes `existing` see rows that other transactions have just committed.
    pub(super) existing_lock: &'static str,
    pub(super) claim: Locking,
    pub(super) order: Order,
    pub(super) renew: Locking,
    pub(super) settle: &'static str,
    pub(super) settle_delete: &'static str,
    /// Cheaper forms for events that are done, where there are any.
    pub(super) settle_alike: Option<Alike>,
    /// How `settle` and `settle_delete` skip rows that another session has locked.
    pub(super) skip_locked: SkipLocked,
    pub(super) states: &'static str,
    /// Each selects settled rows that are old, if `{only}` holds.
    pub(super) purge: &'static [&'static str],
    pub(super) replay_all: &'static str,
    /// Deletes by key the rows for which `{only}` holds.
    pub(super) delete: &'static str,
    /// The statements for subscriptions and nodes.
    pub(super) fan_out: FanOut,
    /// Compares rows with the keys that a claim is restricted to.
    pub(super) keys: KeySql,
    /// The hint that makes a statement use an index, where the planner needs one: `{by:claim}`.
    pub(super) by_index: Option<Wrap>,
    /// Returns 1 if the database is in memory, where each connection might have one of its own.
    pub(super) in_memory: Option<&'static str>,
    /// Returns the number of the table, where its name alone does not say which one is meant.
    pub(super) table_id: Option<&'static str>,
    /// Returns how many connections this user may have open to the server, in all processes; `None` if there is no
    /// server.
    pub(super) connection_limit: Option<&'static str>,
    /// Returns 1 if the session is encrypted; `None` if there is no network.
    pub(super) encrypted: Option<&'static str>,
    /// Notifies the nodes that listen on the table's channel.
    pub(super) notify: Option<&'static str>,
    /// Returns an estimate of the number of rows.
    pub(super) estimate: &'static str,
    /// Whether the table's name and schema are arguments of `estimate`.
    pub(super) estimate_by_name: bool,
    /// Each returns the number of rows that were settled on one `{side}` of a time and for which `{only}` holds, by the
    /// purge index; the result is their sum.
    pub(super) ended: &'static [&'static str],
    /// How privileges are managed; `None` if there are none.
    pub(super) rights: Option<Rights>,
    /// The names of the table's columns. Needs no privilege that a user of the table does not have.
    pub(super) columns: &'static str,
    /// The names of the table's indexes.
    pub(super) indexes: &'static str,
    pub(super) migrations: Migrations,
    /// The lock for migrations, in a database that has several writers.
    pub(super) migration_lock: Option<MigrationLock>,
    /// The lock that lets one node at a time deliver.
    pub(super) relay_lock: RelayLock,
    /// Whether `CREATE INDEX` takes the schema before the name of the index instead of before the table's.
    pub(super) index_in_schema: bool,
    /// Returns how many transactions have been open for longer than a time, and for how many microseconds the
    /// oldest has; `None` if the database does not list them.
    pub(super) transactions: Option<&'static str>,
    /// Returns 1 if `transactions` sees those of other users.
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
    /// `one` is for one event whose id was generated, and returns its sequence; it fails if the id exists. `many`
    /// leaves out rows that exist where it has something for `{skip}`, and returns `{returned}`. `fan_out` is the same for events with several rows: their values are sent once.
    Returning { one: &'static str, many: &'static str, fan_out: Option<&'static str> },
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
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
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

/// The text before and after an expression; `{it}` repeats the expression.
pub(super) type Wrap = (&'static str, &'static str);

/// The next token. The largest token has no successor: a row in which it was set manually keeps it, instead of
/// failing every claim that includes the row.
const NEXT: Wrap = ("", " + CASE WHEN {it} < 9223372036854775807 THEN 1 ELSE 0 END");

/// How rows are claimed or renewed without waiting for rows that other sessions have locked.
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
    /// Reads without a lock, so that a long search blocks no writer. The update returns the rows that have not
    /// changed since they were read.
    ReadThenUpdate {
        read: &'static str,
        update: &'static str,
    },
}

/// How a position in the order of claims is bound.
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

/// How rows are compared with the keys of a [`TypeFilter`](super::TypeFilter).
#[derive(Debug)]
pub(super) struct KeySql {
    /// Aggregate type, event type and recipient of a row.
    pub(super) event: &'static str,
    /// Aggregate type and recipient of a row.
    pub(super) aggregate: &'static str,
    /// Around the condition.
    pub(super) condition: (&'static str, &'static str),
    pub(super) among: Among,
}

/// How the keys are bound.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "mysql", any(feature = "postgres", feature = "sqlite"))),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum Among {
    /// As one argument: `{arg}`.
    Array(&'static str),
    /// One by one.
    Each,
}

/// Settles rows that are all done, and all claimed under the same token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alike {
    /// Marks them with the status `{done}`.
    pub(super) done: &'static str,
    /// Deletes them.
    pub(super) delete: &'static str,
}

/// How settlements skip rows that another session has locked.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum SkipLocked {
    /// There are no locks on rows.
    Alone,
    /// The statement itself skips them: `{keys}` is the rows that it waits for, or those that are not locked.
    Statement { waiting: &'static str, skipping: &'static str },
    /// The rows that are not locked are locked first.
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
