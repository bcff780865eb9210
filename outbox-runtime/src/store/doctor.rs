//! Checks of a table, its server and its pending events.

mod order;
mod subscriptions;

use std::fmt;
use std::time::Duration;

use sqlx::SqlStr;

use super::dialect::{Check, Dialect};
use super::pending::{MOST, PendingType};
use super::row::span;
use super::{Backend, DatabaseErrorKind, SchemaState, Store};
use crate::Error;

const DOING: &str = "examining the database";

/// The suffixes of the table's indexes; the primary key cannot be missing.
const INDEXES: [&str; 4] = ["subscription", "claim", "purge", "dead"];

/// The suffix of the index that only ordered outboxes have.
const ORDER_INDEX: &str = "ordered";

/// The severity of a finding, in increasing order: the maximum of all findings is the state of the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingLevel {
    /// The check found no problem.
    Ok,
    /// The check was not possible, usually because the database user lacks a privilege.
    Unknown,
    /// A problem that becomes worse, or shows under load.
    Warning,
    /// A problem that prevents or delays deliveries now.
    Error,
}

/// The result of one check of [`Admin::doctor`](crate::Admin::doctor).
///
/// `Display` writes what was found and the remedy, in one line. The subjects are:
///
/// | subject | what is checked |
/// |---|---|
/// | `schema` | the version of the table |
/// | `indexes` | that all indexes exist: without them, claims read the whole table |
/// | `server`, `autovacuum`, `bloat`, `journal` | settings of the server, depending on the database |
/// | `transactions` | that no transaction has been open for too long (not on SQLite) |
/// | `leases` | that no lease has expired without a take-over |
/// | `event types` | that pending types are known, and that those that are due are claimed |
/// | `order` | where events are ordered: that no aggregate is blocked by a dead letter or by an event that is not claimed |
/// | `subscriptions` | where there are named ones: that those with pending events are not paused, and that a running node has them |
/// | `pending` | only if pending events cannot be counted |
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Finding {
    /// The subject of the check, in one or two words: `schema`, `indexes`, `leases`, `event types` and others.
    pub subject: &'static str,
    /// How serious it is; [`FindingLevel::Ok`] for a check that found nothing.
    pub level: FindingLevel,
    /// What the check found, as a sentence without a full stop.
    pub what: String,
    /// What to do about it; empty if there is nothing to do.
    pub remedy: String,
}

/// Writes the finding, and its remedy after a semicolon.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// Options of [`Admin::doctor`](crate::Admin::doctor): which event types are known, and from when on something is late.
///
/// ```
/// use outbox::admin::DoctorOptions;
/// use std::time::Duration;
///
/// let options = DoctorOptions::new().types(["Placed", "Paid"]).overdue(Duration::from_secs(300));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DoctorOptions {
    /// The known event types; pending events of any other type are reported. `None`, the default, if they are not
    /// known.
    pub types: Option<Vec<String>>,
    /// How long an event may be due, or a lease be expired, before it is reported. The default is a minute.
    pub overdue: Duration,
    /// How long a transaction may be open before it is reported. The default is 5 minutes.
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

impl DoctorOptions {
    /// Makes the default options: all event types, late after a minute, and long after 5 minutes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the known event types. Pending events of any other type are reported as an error.
    ///
    /// Before a deploy, pass the types that the new program has listeners for: it shows whether events are pending that
    /// would be left behind when the old program stops.
    #[must_use]
    pub fn types(mut self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.types = Some(types.into_iter().map(Into::into).collect());
        self
    }

    /// Sets how long an event may be due, or a lease be expired, before it is reported. The default is a minute. Raise
    /// it if a backlog is normal.
    #[must_use]
    pub fn overdue(mut self, overdue: Duration) -> Self {
        self.overdue = overdue;
        self
    }

    /// Sets how long a transaction may be open before it is reported, because it keeps the database from removing
    /// deleted rows. The default is 5 minutes.
    #[must_use]
    pub fn long_transaction(mut self, age: Duration) -> Self {
        self.long_transaction = age;
        self
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

/// Which checks to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checks {
    /// Those that are marked for the start.
    AtStart,
    All,
}

impl Finding {
    fn ok(subject: &'static str, what: impl Into<String>) -> Self {
        Self { subject, level: FindingLevel::Ok, what: what.into(), remedy: String::new() }
    }

    pub(crate) fn warning(
        subject: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::bad(subject, FindingLevel::Warning, what, remedy)
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
    /// Checks the schema, the server and the pending events, and changes nothing. If the table is missing, that is
    /// the only finding.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn doctor(&self, options: &DoctorOptions) -> Result<Vec<Finding>, Error> {
        let state = self.schema_state().await?;
        let mut findings = vec![of_schema(&state)];
        if !matches!(state, SchemaState::Missing { .. } | SchemaState::Forbidden { .. }) {
            let order = self.recorded_order().await?;
            let mut missing = self.missing_indexes(&INDEXES).await?;
            if order.is_some() {
                missing.extend(self.missing_indexes(&[ORDER_INDEX]).await?);
            }
            findings.push(self.of_indexes(&missing));
            findings.extend(self.run_checks(Checks::All).await?);
            findings.extend(self.transactions(options.long_transaction).await?);
            if missing.contains(&self.table.derived("claim")) {
                let what = "pending events cannot be counted without their index";
                let (level, remedy) = (FindingLevel::Unknown, "");
                findings.push(Finding::bad("pending", level, what, remedy));
                return Ok(findings);
            }
            let pending = self.pending_by_type(options.overdue).await?;
            findings.push(leases(&pending, options.overdue));
            findings.extend(unknown(&pending, options));
            findings.push(waiting(&pending, options));
            findings.extend(self.check_subscriptions().await?);
            if let Some(on_dead) = order {
                findings.push(self.order(on_dead, &missing, options).await?);
            }
        }
        Ok(findings)
    }

    async fn missing_indexes(&self, indexes: &[&str]) -> Result<Vec<String>, Error> {
        let rows = self.rows(DOING, self.sql.doctor.indexes.clone(), vec![]).await?;
        let there: Vec<String> =
            rows.iter().filter_map(|row| DB::text(row, 0).ok().flatten()).collect();
        let names = indexes.iter().map(|index| self.table.derived(index));
        Ok(names.filter(|name| !there.contains(name)).collect())
    }

    fn of_indexes(&self, missing: &[String]) -> Finding {
        if missing.is_empty() {
            return Finding::ok("indexes", "every index is there");
        }
        let remedy = match missing {
            [index] if *index == self.table.derived(ORDER_INDEX) => {
                "run `outbox migrate --ordered`: without it events cannot be claimed in order"
            }
            _ => {
                "run the `CREATE INDEX` statements of these names from the migration's SQL (`outbox migrate \
                 --sql`): without them claims fail or read the whole table"
            }
        };
        let what = format!("missing: {}", missing.join(", "));
        Finding::bad("indexes", FindingLevel::Error, what, remedy)
    }

    /// Returns the problems that the checks for the start find.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn check_at_start(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = vec![self.of_indexes(&self.missing_indexes(&INDEXES).await?)];
        findings.extend(self.run_checks(Checks::AtStart).await?);
        findings.retain(|finding| finding.level > FindingLevel::Ok);
        Ok(findings)
    }

    /// Runs the checks of the dialect.
    async fn run_checks(&self, which: Checks) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for (test, check) in &self.sql.doctor.checks {
            if which == Checks::AtStart && !check.at_start {
                continue;
            }
            if self.number(DOING, test.clone(), vec![]).await? == Some(1) {
                let Check { subject, level, problem, remedy, .. } = **check;
                findings.push(Finding::bad(subject, level, problem, remedy));
            } else if !check.ok.is_empty() {
                findings.push(Finding::ok(check.subject, check.ok));
            }
        }
        Ok(findings)
    }

    async fn transactions(&self, long: Duration) -> Result<Option<Finding>, Error> {
        const SUBJECT: &str = "transactions";
        let sql = &self.sql.doctor;
        let Some(transactions) = &sql.transactions else { return Ok(None) };
        let hidden = || {
            let what = "the transactions of other users are not visible to this user";
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
                    "{count} open for longer than {long:?}, the oldest for {} s: rows that were deleted \
                     since cannot be cleaned up, and claims become slow",
                    oldest.as_secs()
                ),
                "find their sessions (`pg_stat_activity`, `innodb_trx`) and end them",
            ),
        }))
    }
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
            "the table has every column and no version: it was created manually",
            "add its version to the table `outbox_schema`, as the SQL of the migration does",
        ),
        SchemaState::Hidden { .. } => Finding::bad(
            SUBJECT,
            FindingLevel::Unknown,
            "the table has every column, and this user may not read its version",
            "grant `SELECT` on the table `outbox_schema`",
        ),
        SchemaState::Older { found: 0, .. } => Finding::bad(
            SUBJECT,
            FindingLevel::Error,
            "the table is one of the original Java framework",
            "switch the relay of that framework off and run `outbox migrate`, which adopts the table",
        ),
        SchemaState::Older { found, known, .. } => Finding::bad(
            SUBJECT,
            FindingLevel::Error,
            format!("the table has version {found}, and this program needs {known}"),
            "run `outbox migrate`",
        ),
        SchemaState::Compatible { found, known, .. } => Finding::ok(
            SUBJECT,
            format!(
                "the table has version {found}, which permits programs like this one that know up to {known}"
            ),
        ),
        SchemaState::Newer { found, known, .. } => Finding::bad(
            SUBJECT,
            FindingLevel::Error,
            format!("the table has version {found}, and this program knows up to {known}"),
            "deploy the newer program",
        ),
        SchemaState::Forbidden { .. } => Finding::bad(
            SUBJECT,
            FindingLevel::Error,
            "this user may not read the table",
            "grant `SELECT`, `INSERT`, `UPDATE` and `DELETE` on it",
        ),
        SchemaState::Missing { source }
            if DatabaseErrorKind::from_error(source) == DatabaseErrorKind::NoColumn =>
        {
            Finding::bad(
                SUBJECT,
                FindingLevel::Error,
                "the table lacks a column: it is not an outbox table, or it was changed manually",
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

/// Checks for expired leases: their owner is gone, and no other node has taken over.
fn leases(pending: &[PendingType], overdue: Duration) -> Finding {
    let stuck: u64 = pending.iter().map(|of_type| of_type.stuck).sum();
    if stuck == 0 {
        return Finding::ok("leases", "no expired lease waits for a take-over");
    }
    Finding::bad(
        "leases",
        FindingLevel::Error,
        format!("{stuck} ended more than {overdue:?} ago without a take-over"),
        "make sure that a process with listeners for these events runs: its poller claims them",
    )
}

const TYPES: &str = "event types";

fn names(of_types: &[&PendingType]) -> String {
    let named = |of_type: &&PendingType| format!("{} ({})", of_type.event_type, of_type.pending);
    of_types.iter().map(named).collect::<Vec<_>>().join(", ")
}

/// Checks for pending events of types that the deployment does not know.
fn unknown(pending: &[PendingType], options: &DoctorOptions) -> Option<Finding> {
    let known = options.types.as_ref()?;
    let unknown: Vec<&PendingType> =
        pending.iter().filter(|of_type| !known.contains(&of_type.event_type)).collect();
    if unknown.is_empty() && pending.iter().map(|of_type| of_type.pending).sum::<u64>() >= MOST {
        let what = "every type is known of the 100,000 events that have been due for longest; there are \
             more";
        let remedy = "make sure that pending events are delivered, then check again";
        return Some(Finding::bad(TYPES, FindingLevel::Warning, what, remedy));
    }
    if unknown.is_empty() {
        return Some(Finding::ok(TYPES, "every pending type is known"));
    }
    let what = format!("pending and unknown: {}", names(&unknown));
    let remedy = "deploy a program that listens to them, or keep the old one beside this one";
    Some(Finding::bad(TYPES, FindingLevel::Error, what, remedy))
}

/// Checks for types whose events are due and not claimed.
fn waiting(pending: &[PendingType], options: &DoctorOptions) -> Finding {
    let waiting: Vec<&PendingType> = pending
        .iter()
        .filter(|of_type| of_type.overdue > of_type.stuck && of_type.locked == 0)
        .collect();
    if waiting.is_empty() {
        return Finding::ok(TYPES, "every type that is due is being delivered");
    }
    let overdue = options.overdue;
    Finding::bad(
        TYPES,
        FindingLevel::Warning,
        format!("due for more than {overdue:?} and not claimed: {}", names(&waiting)),
        "make sure that a process with a listener for them runs, and that the listener is not paused",
    )
}
