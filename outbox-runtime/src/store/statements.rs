//! Every statement, rendered once for a table. This is the only place where text becomes SQL.

use std::time::Duration;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::dialect::{self, Dialect, Locking, SkipLocked};
use super::{Table, doctor, inspect, pending, schema, settle};

/// The columns of a row in hand, in the order in which [`row`](super::row) reads them.
const COLUMNS: &str = "{int:entry.sequence}, entry.event_id, entry.event_type, entry.aggregate_type, \
    entry.aggregate_id, entry.tenant_id, {text:entry.payload}, {text:entry.headers}, {int:entry.status}, \
    {int:entry.attempts}, {micros:entry.created_at}, {int:entry.claim_token}, {int:entry.takeovers}";

const CLAIM_ONE: &str = "\
    UPDATE {table} SET available_at = {later:$1}, locked_by = $2, locked_at = {now}, claim_token = 1 \
    WHERE sequence = $3 AND event_id = $4 AND claim_token = 0 AND status = 0 AND locked_by IS NULL";

/// Filters are optional: an argument that is NULL lets every row pass.
const DEAD_FILTER: &str = "\
    status = 3 \
    AND (event_type = COALESCE($1, event_type)) \
    AND (COALESCE(aggregate_type, '__GLOBAL__') = COALESCE($2, aggregate_type, '__GLOBAL__')) \
    AND (COALESCE(aggregate_id, '') = COALESCE($3, aggregate_id, '')) \
    AND (COALESCE(tenant_id, '') = COALESCE($4, tenant_id, '')) \
    AND COALESCE(created_at >= {time:$5}, true) AND COALESCE(created_at < {time:$6}, true)";

const DEAD_QUERY: &str = "\
    SELECT {columns}, entry.last_error, {micros:entry.done_at} FROM {table} AS entry {by:dead} \
    WHERE {filter} AND entry.sequence > $7 ORDER BY entry.sequence LIMIT $8";

const DEAD_ONE: &str = "\
    SELECT {columns}, entry.last_error, {micros:entry.done_at} FROM {table} AS entry \
    WHERE event_id = $1 AND status = 3";

const DEAD_COUNT: &str = "SELECT {int:COUNT(*)} FROM {table} {by:dead} WHERE {filter}";

/// As a gauge, it must not cost more the more there are.
const DEAD_COUNT_CAPPED: &str = "\
    SELECT {int:COUNT(*)} FROM (SELECT 1 AS one FROM {table} {by:dead} \
        WHERE status = 3 LIMIT 100000) AS capped";

/// Without those that have died between a time and now.
const DEAD_KEYS: &str = "\
    SELECT {int:sequence}, event_id, event_type, last_error, {micros:done_at} FROM {table} {by:dead} \
    WHERE {filter} AND sequence > $7 AND COALESCE(done_at <= {time:$8} OR done_at > {now}, true) \
    ORDER BY sequence LIMIT $9";

const STATUS_OF: &str = "SELECT {int:sequence}, {int:status} FROM {table} WHERE event_id = $1";

/// The next rows, and which of them are old.
const AGED: &str = "\
    SELECT {int:sequence}, {int:is_old} FROM (SELECT sequence, \
            CASE WHEN created_at < {earlier:$1} THEN 1 ELSE 0 END AS is_old \
        FROM {table} WHERE sequence > $2 ORDER BY sequence LIMIT $3) AS aged ORDER BY sequence";

/// What is in hand is due later than all that waits, so it is counted from there on.
const PENDING: &str = "\
    SELECT {int:COUNT(*)}, \
        (SELECT {int:COUNT(locked_by)} FROM (SELECT locked_by FROM {table} {by:claim} \
            WHERE {pending:{status}} AND available_at > {now} \
            ORDER BY available_at LIMIT 100000) AS held), \
        {micros:{now}} - {micros:MIN(COALESCE(locked_at, available_at))} \
    FROM (SELECT locked_by, locked_at, available_at FROM {table} {by:claim} \
        WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped";

/// Those of no pair that is asked for. Counted by themselves: between two counts others come and go.
const UNKNOWN: &str = "\
    SELECT {int:COUNT(*)} FROM (SELECT aggregate_type, event_type FROM {table} {by:claim} \
        WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped \
    WHERE NOT (1 = 1 {pairs})";

const NOW: &str = "SELECT {micros:{now}}";

/// When the first pending rows are due, from a watermark on and from now on. Each part reads one row in the
/// order of the index; a minimum might be taken over all of them.
const PEEK: &str = "\
    SELECT {micros:{now}}, {int:CASE WHEN fresh.due <= {now} THEN 1 ELSE 0 END}, \
        {int:CASE WHEN retried.due <= {now} THEN 1 ELSE 0 END}, \
        {micros:later_fresh.due}, {micros:later_retried.due} FROM (SELECT 1 AS one) AS base \
    LEFT JOIN (SELECT available_at AS due FROM {table} {by:claim} \
        WHERE {pending:0} AND available_at >= {from:$1} \
        ORDER BY available_at LIMIT 1) AS fresh ON 1 = 1 \
    LEFT JOIN (SELECT available_at AS due FROM {table} {by:claim} \
        WHERE {pending:2} AND available_at >= {from:$2} \
        ORDER BY available_at LIMIT 1) AS retried ON 1 = 1 \
    LEFT JOIN (SELECT available_at AS due FROM {table} {by:claim} \
        WHERE {pending:0} AND available_at > {now} \
        ORDER BY available_at LIMIT 1) AS later_fresh ON 1 = 1 \
    LEFT JOIN (SELECT available_at AS due FROM {table} {by:claim} \
        WHERE {pending:2} AND available_at > {now} \
        ORDER BY available_at LIMIT 1) AS later_retried ON 1 = 1";

/// Where a window ends that begins after a place and has so many rows, if there are as many up to another.
const WINDOW_END: &str = "\
    SELECT {micros:available_at}, {int:sequence} FROM {table} {by:claim} \
    WHERE {pending:{status}} AND {between} ORDER BY available_at, sequence LIMIT 1 OFFSET $5";

/// The statements of one table.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) begin: SqlStr,
    pub(super) begin_acknowledging: SqlStr,
    pub(super) begin_work: SqlStr,
    pub(super) guard: Option<SqlStr>,
    pub(super) insert: Insert,
    pub(super) inserted: SqlStr,
    pub(super) existing: SqlStr,
    pub(super) claim_all: Claims,
    pub(super) claim_update: Option<SqlStr>,
    pub(super) claim_one: SqlStr,
    pub(super) renew: SqlStr,
    pub(super) renew_update: Option<SqlStr>,
    pub(super) settle: Settling,
    pub(super) settle_delete: Settling,
    /// Locks the rows that no other session has locked, for a transaction that then records results.
    pub(super) lock_free: Option<SqlStr>,
    pub(super) states: SqlStr,
    pub(super) dead_query: SqlStr,
    pub(super) dead_one: SqlStr,
    pub(super) dead_count: SqlStr,
    pub(super) dead_count_capped: SqlStr,
    pub(super) dead_keys: SqlStr,
    pub(super) status_of: SqlStr,
    pub(super) replay: SqlStr,
    pub(super) discard: SqlStr,
    pub(super) purge_done: Vec<SqlStr>,
    pub(super) purge_dead: Vec<SqlStr>,
    pub(super) aged: SqlStr,
    pub(super) delete: Settling,
    /// What is done, and what is dead.
    pub(super) delete_settled: [Settling; 2],
    pub(super) pending: [SqlStr; 2],
    pub(super) estimate: SqlStr,
    pub(super) in_memory: Option<SqlStr>,
    pub(super) connection_limit: Option<SqlStr>,
    pub(super) encrypted: Option<SqlStr>,
    pub(super) notify: Option<SqlStr>,
    pub(super) peek: SqlStr,
    /// For what is new and what is retried.
    pub(super) window_end: [SqlStr; 2],
    pub(super) now: SqlStr,
    pub(super) inspect: inspect::Sql,
    pub(super) pending_by_type: [[SqlStr; 2]; 2],
    pub(super) doctor: doctor::Sql,
}

/// A statement that records results.
#[derive(Debug)]
pub(super) struct Settling {
    /// Waits for rows that another session has locked.
    pub(super) waiting: SqlStr,
    /// Passes over them; `None` if they are to be locked first, or never are.
    pub(super) skipping: Option<SqlStr>,
}

/// The statements that insert events.
#[derive(Debug)]
pub(super) enum Insert {
    /// For any number of rows.
    Returning(SqlStr),
    /// For any number of rows, and for so many rows each, from the most to one.
    Failing { bulk: SqlStr, sizes: [(usize, SqlStr); 3] },
}

/// The statements that depend on which events are asked for.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) fresh: SqlStr,
    pub(super) retried: SqlStr,
    pub(super) unknown: [SqlStr; 2],
}

impl Statements {
    pub(super) fn new(dialect: &Dialect, table: &Table) -> Self {
        let sql = |template: &str| render(dialect, table, template);
        let purge = |status: &str| {
            let template = |template: &&str| sql(&template.replace("{status}", status));
            dialect.purge.iter().map(template).collect()
        };
        let (renew, renew_update) = match &dialect.renew {
            Locking::AtOnce(renew) => (sql(renew), None),
            Locking::LockThenUpdate { lock, update }
            | Locking::ReadThenUpdate { read: lock, update } => (sql(lock), Some(sql(update))),
        };
        let settling = |template: &str| match dialect.skip_locked {
            SkipLocked::Statement { waiting, skipping } => Settling {
                waiting: sql(&template.replace("{keys}", waiting)),
                skipping: Some(sql(&template.replace("{keys}", skipping))),
            },
            SkipLocked::LockFirst(_) | SkipLocked::Alone => {
                Settling { waiting: sql(template), skipping: None }
            }
        };
        let delete = |only: &str| settling(&dialect.delete.replace("{only}", only));
        let lock_free = match dialect.skip_locked {
            SkipLocked::LockFirst(lock) => Some(sql(lock)),
            SkipLocked::Statement { .. } | SkipLocked::Alone => None,
        };
        let claim_update = match &dialect.claim {
            Locking::AtOnce(_) => None,
            Locking::LockThenUpdate { update, .. } | Locking::ReadThenUpdate { update, .. } => {
                Some(sql(update))
            }
        };
        Self {
            begin: dialect.begin.into_sql_str(),
            begin_acknowledging: dialect.begin_acknowledging.into_sql_str(),
            begin_work: dialect.begin_work.into_sql_str(),
            guard: dialect.guard.map(SqlSafeStr::into_sql_str),
            insert: Insert::new(&dialect.insert, sql),
            inserted: sql(dialect.existing),
            existing: sql(&[dialect.existing, dialect.existing_lock].concat()),
            claim_all: Claims::new(dialect, table, Pairs::All),
            claim_update,
            claim_one: sql(CLAIM_ONE),
            renew,
            renew_update,
            settle: settling(&settle::render_verdicts(dialect.settle)),
            settle_delete: settling(dialect.settle_delete),
            lock_free,
            states: sql(dialect.states),
            dead_query: sql(DEAD_QUERY),
            dead_one: sql(DEAD_ONE),
            dead_count: sql(DEAD_COUNT),
            dead_count_capped: sql(DEAD_COUNT_CAPPED),
            dead_keys: sql(DEAD_KEYS),
            status_of: sql(STATUS_OF),
            replay: sql(dialect.replay_all),
            // By its key, and not by the index of its status.
            discard: delete("AND status + 0 = 3").waiting,
            purge_done: purge("1"),
            purge_dead: purge("3"),
            aged: sql(AGED),
            delete: delete(""),
            // By its key, and not by the index of its status.
            delete_settled: [delete("AND status + 0 = 1"), delete("AND status + 0 = 3")],
            pending: ["0", "2"].map(|status| sql(&PENDING.replace("{status}", status))),
            estimate: sql(dialect.estimate),
            in_memory: dialect.in_memory.map(SqlSafeStr::into_sql_str),
            connection_limit: dialect.connection_limit.map(SqlSafeStr::into_sql_str),
            encrypted: dialect.encrypted.map(SqlSafeStr::into_sql_str),
            notify: dialect.notify.map(SqlSafeStr::into_sql_str),
            peek: sql(PEEK),
            window_end: ["0", "2"].map(|status| {
                let template = WINDOW_END.replace("{status}", status);
                sql(&template.replace("{between}", dialect.between))
            }),
            now: sql(NOW),
            inspect: inspect::Sql::new(dialect, sql),
            pending_by_type: pending::sql(sql),
            doctor: doctor::Sql::new(dialect, sql),
        }
    }
}

impl Insert {
    fn new(insert: &dialect::Insert, sql: impl Fn(&str) -> SqlStr) -> Self {
        match insert {
            dialect::Insert::Returning(template) => Self::Returning(sql(template)),
            dialect::Insert::Failing { bulk, head, row } => {
                let sized = |size| {
                    let rows = vec![*row; size].join(", ");
                    (size, sql(&[*head, &rows].concat()))
                };
                Self::Failing { bulk: sql(bulk), sizes: [64, 8, 1].map(sized) }
            }
        }
    }

    /// Every one of them.
    pub(super) fn each(&self) -> Vec<&SqlStr> {
        match self {
            Self::Returning(sql) => vec![sql],
            Self::Failing { bulk, sizes } => {
                sizes.iter().map(|(_, sql)| sql).chain([bulk]).collect()
            }
        }
    }
}

/// Which events a claim takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pairs {
    All,
    /// Those of so many (aggregate, event) pairs.
    Only(usize),
    /// All but those of so many.
    Except(usize),
}

impl Claims {
    pub(super) fn new(dialect: &Dialect, table: &Table, pairs: Pairs) -> Self {
        let restriction = |count: usize| {
            let times = if dialect.pairs_one_by_one { count } else { 1 };
            dialect.pairs.replace("{each}", &vec![dialect.pair; times].join(", "))
        };
        let restriction = match pairs {
            Pairs::All => String::new(),
            Pairs::Only(count) => restriction(count),
            Pairs::Except(count) => format!("AND NOT (1 = 1 {})", restriction(count)),
        };
        let (Locking::AtOnce(claim)
        | Locking::LockThenUpdate { lock: claim, .. }
        | Locking::ReadThenUpdate { read: claim, .. }) = &dialect.claim;
        let sql = |template: &str, status: &str| {
            let template = template
                .replace("{status}", status)
                .replace("{between}", dialect.between)
                .replace("{pairs}", &restriction);
            render(dialect, table, &template)
        };
        // The pairs are the last arguments of the claim, and the only ones of the count.
        let unknown = |status| safe(sql(UNKNOWN, status).as_str().replace("$10", "$1"));
        let unknown = [unknown("0"), unknown("2")];
        Self { fresh: sql(claim, "0"), retried: sql(claim, "2"), unknown }
    }
}

/// Begins a transaction with the settings for a piece of work; of the relay, if there is a time-out.
pub(super) fn settings(dialect: &Dialect, statement_timeout: Option<Duration>) -> Option<SqlStr> {
    if dialect.settings.is_empty() {
        return None;
    }
    let timeout = statement_timeout.map(|limit| limit.as_millis().to_string());
    let relay = timeout.iter().flat_map(|limit| {
        dialect.relay_settings.iter().copied().chain([("statement_timeout", limit.as_str())])
    });
    let settings = dialect.settings.iter().copied().chain(relay);
    let settings = settings.map(|(name, value)| format!("; SET LOCAL {name} = {value}"));
    Some(safe(dialect.begin_work.to_owned() + &settings.collect::<String>()))
}

/// Sets up a session of the relay's own.
pub(super) fn session(dialect: &Dialect, statement_timeout: Duration) -> Option<SqlStr> {
    let seconds = format!("{:.3}", statement_timeout.as_secs_f64());
    let millis = statement_timeout.as_millis().to_string();
    let whole = statement_timeout.as_secs_f64().ceil().to_string();
    let session = dialect.session?.replace("{seconds}", &seconds).replace("{millis}", &millis);
    let mut session = session.replace("{whole}", &whole);
    // The session was started with these, but what the application runs on a new connection comes later.
    for (name, value) in dialect.settings.iter().chain(dialect.relay_settings) {
        session.push_str(&format!("; SET {name} = {value}"));
    }
    Some(safe(session))
}

/// A statement of the migrations.
pub(super) fn of_schema(dialect: &Dialect, table: &Table, template: &str) -> SqlStr {
    safe(schema::render(dialect, table, template))
}

/// The name that sqlx gives to its savepoints.
pub(super) fn savepoint_of_sqlx(depth: usize) -> SqlStr {
    safe(format!("SAVEPOINT _sqlx_savepoint_{depth}"))
}

/// Renders a statement of a table.
pub(super) fn render(dialect: &Dialect, table: &Table, template: &str) -> SqlStr {
    safe(dialect.render(&expand(template), table))
}

fn expand(template: &str) -> String {
    template.replace("{columns}", COLUMNS).replace("{filter}", DEAD_FILTER)
}

/// The text consists of our own constants, of numbers, and of a [`Table`], which is checked and quoted.
fn safe(sql: String) -> SqlStr {
    AssertSqlSafe(sql).into_sql_str()
}
