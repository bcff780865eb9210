//! What is wrong with a table and its surroundings, before it hurts.

use std::time::Duration;

use sqlx::SqlStr;

use super::dialect::{Check, Dialect, MISSING_INDEX, READ_ONLY, STATEMENT_LOG};
use super::pending::{MOST, PendingType};
use super::row::span;
use super::{Backend, DatabaseErrorKind, SchemaState, Store};
use crate::Error;

const DOING: &str = "examining the database";

/// What makes each index of a table's own; the primary key cannot be missing.
const INDEXES: [&str; 4] = ["event_id", "claim", "purge", "dead"];

/// How much somebody should care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingLevel {
    /// All is well.
    Ok,
    /// It could not be found out.
    Unknown,
    /// It will hurt sooner or later.
    Warning,
    /// It hurts now.
    Error,
}

/// What was found about one subject.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub subject: &'static str,
    /// How bad it is.
    pub level: FindingLevel,
    /// What was found.
    pub what: String,
    /// What to do; empty if nothing.
    pub remedy: String,
}

/// What to look for.
#[derive(Debug, Clone)]
pub struct DoctorOptions {
    /// The event types that are known; any other that is pending is reported. `None` where that is
    /// not known.
    pub types: Option<Vec<String>>,
    /// For how long an event may be due, or a lease be over, before somebody should have come.
    pub overdue: Duration,
    /// For how long a transaction may be open.
    pub long_transaction: Duration,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        Self {
            types: None,
            overdue: Duration::from_secs(60),
            long_transaction: Duration::from_secs(300),
        }
    }
}

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Sql {
    indexes: SqlStr,
    transactions: Option<SqlStr>,
    transactions_visible: SqlStr,
    checks: Vec<(SqlStr, &'static Check)>,
}

impl Sql {
    pub(super) fn new(dialect: &Dialect, sql: impl Fn(&str) -> SqlStr) -> Self {
        Self {
            indexes: sql(dialect.indexes),
            transactions: dialect.transactions.map(&sql),
            transactions_visible: sql(dialect.transactions_visible),
            checks: dialect.checks.iter().map(|check| (sql(check.test), check)).collect(),
        }
    }
}

impl Finding {
    fn ok(subject: &'static str, what: impl Into<String>) -> Self {
        Self { subject, level: FindingLevel::Ok, what: what.into(), remedy: String::new() }
    }

    fn bad(
        subject: &'static str,
        level: FindingLevel,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { subject, level, what: what.into(), remedy: remedy.into() }
    }
}

impl<DB: Backend> Store<DB> {
    /// Looks at the schema, the server and what is pending, and changes nothing. If the table is
    /// missing, that is all there is to say.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn doctor(&self, examination: &DoctorOptions) -> Result<Vec<Finding>, Error> {
        let state = self.schema_state().await?;
        let mut findings = vec![of_schema(&state)];
        if !matches!(state, SchemaState::Missing { .. }) {
            let missing = self.missing_indexes().await?;
            findings.push(of_indexes(&missing));
            self.surroundings(&mut findings).await?;
            findings.extend(self.transactions(examination.long_transaction).await?);
            if missing.contains(&self.table.derived("claim")) {
                let what = "what is pending cannot be counted without its index";
                let (level, remedy) = (FindingLevel::Unknown, "");
                findings.push(Finding::bad("pending", level, what, remedy));
                return Ok(findings);
            }
            let pending = self.pending_by_type(examination.overdue).await?;
            findings.push(leases(&pending, examination.overdue));
            findings.extend(unknown(&pending, examination));
            findings.push(waiting(&pending, examination));
        }
        Ok(findings)
    }

    async fn missing_indexes(&self) -> Result<Vec<String>, Error> {
        let rows = self.rows(DOING, self.sql.doctor.indexes.clone(), vec![]).await?;
        let there: Vec<String> =
            rows.iter().filter_map(|row| DB::text(row, 0).ok().flatten()).collect();
        let names = INDEXES.map(|index| self.table.derived(index));
        Ok(names.into_iter().filter(|name| !there.contains(name)).collect())
    }

    /// Whether the server is read-only, its encoding, and what hurts this database alone.
    async fn surroundings(&self, findings: &mut Vec<Finding>) -> Result<(), Error> {
        let mut writable = true;
        for text in self.warnings().await? {
            // Missing indexes have been named.
            let (level, subject) = match text {
                MISSING_INDEX => continue,
                READ_ONLY | STATEMENT_LOG => (FindingLevel::Error, "server"),
                _ => (FindingLevel::Warning, "server"),
            };
            writable = false;
            let (what, remedy) = text.split_once("; ").unwrap_or((text, ""));
            findings.push(Finding::bad(subject, level, what, remedy));
        }
        if writable {
            findings.push(Finding::ok("server", "it can be written to"));
        }
        for (test, check) in &self.sql.doctor.checks {
            let answer = self.number(DOING, test.clone(), vec![]).await?;
            findings.push(match answer {
                Some(1) => {
                    Finding::bad(check.subject, FindingLevel::Warning, check.wrong, check.remedy)
                }
                _ => Finding::ok(check.subject, check.well),
            });
        }
        Ok(())
    }

    async fn transactions(&self, long: Duration) -> Result<Option<Finding>, Error> {
        const SUBJECT: &str = "transactions";
        let sql = &self.sql.doctor;
        let Some(transactions) = &sql.transactions else { return Ok(None) };
        let hidden = || {
            let what = "the transactions of others are not visible to this user";
            let remedy = "grant `pg_read_all_stats` (PostgreSQL) or `PROCESS` (MySQL)";
            Ok(Some(Finding::bad(SUBJECT, FindingLevel::Unknown, what, remedy)))
        };
        let rows = match self.rows(DOING, transactions.clone(), vec![span(long).into()]).await {
            Err(error) if error.database_error_kind() == DatabaseErrorKind::Rights => {
                return hidden();
            }
            rows => rows?,
        };
        let number = |column| {
            let row = rows.first();
            row.and_then(|row| DB::int(row, column).ok().flatten()).unwrap_or_default()
        };
        let oldest = Duration::from_micros(u64::try_from(number(1)).unwrap_or_default());
        Ok(Some(match number(0) {
            0 if self.number(DOING, sql.transactions_visible.clone(), vec![]).await? != Some(1) => {
                return hidden();
            }
            0 => Finding::ok(SUBJECT, format!("none is open for longer than {long:?}")),
            count => Finding::bad(
                SUBJECT,
                FindingLevel::Warning,
                format!(
                    "{count} open for longer than {long:?}, the oldest for {} s: what was deleted \
                     since cannot be tidied up, and claims become slow",
                    oldest.as_secs()
                ),
                "find out who holds them (`pg_stat_activity`, `innodb_trx`) and end them",
            ),
        }))
    }
}

fn of_indexes(missing: &[String]) -> Finding {
    if missing.is_empty() {
        return Finding::ok("indexes", "every index is there");
    }
    Finding::bad(
        "indexes",
        FindingLevel::Error,
        format!("missing: {}", missing.join(", ")),
        "run the `CREATE INDEX` statements of these names from the migration's SQL (`outbox migrate \
         --sql`): without them claims fail or read the whole table",
    )
}

fn of_schema(state: &SchemaState) -> Finding {
    const SUBJECT: &str = "schema";
    match state {
        SchemaState::Current { version } => {
            Finding::ok(SUBJECT, format!("the table has version {version}, the latest"))
        }
        SchemaState::Unversioned => Finding::bad(
            SUBJECT,
            FindingLevel::Warning,
            "the table has every column and no version: it was made by hand",
            "add its version to the table `outbox_schema`, as the SQL of the migration does",
        ),
        SchemaState::Hidden { .. } => Finding::bad(
            SUBJECT,
            FindingLevel::Unknown,
            "the table has every column, and this user may not read its version",
            "grant `SELECT` on the table `outbox_schema`",
        ),
        SchemaState::Older { found, known } => Finding::bad(
            SUBJECT,
            FindingLevel::Error,
            format!("the table has version {found}, and this program needs {known}"),
            "run `outbox migrate`",
        ),
        SchemaState::Newer { found, known } => Finding::bad(
            SUBJECT,
            FindingLevel::Error,
            format!("the table has version {found}, and this program knows up to {known}"),
            "deploy the newer program",
        ),
        SchemaState::Missing { source }
            if DatabaseErrorKind::from_error(source) == DatabaseErrorKind::Rights =>
        {
            Finding::bad(
                SUBJECT,
                FindingLevel::Error,
                "this user may not read the table",
                "grant `SELECT`, `INSERT`, `UPDATE` and `DELETE` on it",
            )
        }
        SchemaState::Missing { source }
            if DatabaseErrorKind::from_error(source) == DatabaseErrorKind::NoColumn =>
        {
            Finding::bad(
                SUBJECT,
                FindingLevel::Error,
                "the table lacks a column: it is not an outbox table, or somebody has changed it",
                "name the right table with `--table`, or compare it with `outbox migrate --sql`",
            )
        }
        SchemaState::Missing { .. } => Finding::bad(
            SUBJECT,
            FindingLevel::Error,
            "the table is missing",
            "run `outbox migrate`, or name the right table with `--table`",
        ),
    }
}

/// An owner is gone, and nobody has come for what it had in hand.
fn leases(pending: &[PendingType], overdue: Duration) -> Finding {
    let stuck: u64 = pending.iter().map(|of_type| of_type.stuck).sum();
    if stuck == 0 {
        return Finding::ok("leases", "none has ended without somebody taking over");
    }
    Finding::bad(
        "leases",
        FindingLevel::Error,
        format!("{stuck} ended more than {overdue:?} ago, and nobody has taken over"),
        "see that a process with listeners for these events runs: its poller takes them",
    )
}

const TYPES: &str = "event types";

fn names(of_types: &[&PendingType]) -> String {
    let named = |of_type: &&PendingType| format!("{} ({})", of_type.event_type, of_type.pending);
    of_types.iter().map(named).collect::<Vec<_>>().join(", ")
}

/// Types that are pending and that the deploy does not know.
fn unknown(pending: &[PendingType], examination: &DoctorOptions) -> Option<Finding> {
    let known = examination.types.as_ref()?;
    let unknown: Vec<&PendingType> =
        pending.iter().filter(|of_type| !known.contains(&of_type.event_type)).collect();
    if unknown.is_empty() && pending.iter().map(|of_type| of_type.pending).sum::<u64>() >= MOST {
        let what = "every type is known of the 100,000 events that have been due for longest; there are \
             more";
        let remedy = "see that what is pending is delivered, then look again";
        return Some(Finding::bad(TYPES, FindingLevel::Warning, what, remedy));
    }
    if unknown.is_empty() {
        return Some(Finding::ok(TYPES, "every pending type is known"));
    }
    let what = format!("pending and unknown: {}", names(&unknown));
    let remedy = "deploy a program that listens to them, or keep the old one beside this one";
    Some(Finding::bad(TYPES, FindingLevel::Error, what, remedy))
}

/// Types that wait and that nobody seems to handle.
fn waiting(pending: &[PendingType], examination: &DoctorOptions) -> Finding {
    let waiting: Vec<&PendingType> = pending
        .iter()
        .filter(|of_type| of_type.overdue > of_type.stuck && of_type.locked == 0)
        .collect();
    if waiting.is_empty() {
        return Finding::ok(TYPES, "every type that is due is being delivered");
    }
    let overdue = examination.overdue;
    Finding::bad(
        TYPES,
        FindingLevel::Warning,
        format!("due for more than {overdue:?} and in nobody's hand: {}", names(&waiting)),
        "see that a process with a listener for them runs, and that the listener is not paused",
    )
}
