//! SQLite: one writer at a time. Batches are sent as one JSON text, times are integers in microseconds.
//!
//! A plan can be made while the table is empty, so statements name their index.
//!
//! `+status`: without the sign the planner would look up the status instead of the rows of the batch, and read
//! everything that is pending.
//!
//! A column can hold values of any type. A row whose token is not a number could never be settled, so it is not
//! claimed.

use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteError;

use super::backend::backend;
use super::dialect::{
    Among, Check, Dialect, Insert, KeySql, Locking, OpenTransaction, Places, SkipLocked, writable,
};
use super::fan_out::sqlite::FAN_OUT;
use super::identity::Address;
use super::order::sqlite::ORDER;
use super::schema::plan::{Migrations, Step};
use super::{DatabaseErrorKind, FindingLevel, harness, relay_lock};

backend! {
    Sqlite, DIALECT, harness::SQLITE,
    arrays: |values| serde_json::to_string(&values).unwrap_or_default(),
    done: |_result| None,
    file: |pool| Some(pool.connect_options().get_filename().to_owned()),
    address: |options| {
        let file = options.get_filename();
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        Address { server: format!("sqlite:{}", file.display()), schema: "main".to_owned() }
    },
    relay: |options, _timeout| options,
    listen: |_pool, _channel, _heard| std::future::pending().await,
}

/// Classifies an error of SQLite by its extended code, and by its text where the code is the general one.
pub(super) fn classify(error: &dyn DatabaseError) -> Option<DatabaseErrorKind> {
    let error = error.try_downcast_ref::<SqliteError>()?;
    Some(kind(&error.code().unwrap_or_default(), error.message()))
}

fn kind(code: &str, message: &str) -> DatabaseErrorKind {
    match code {
        "517" => DatabaseErrorKind::Contention,
        "5" | "6" | "261" | "262" => DatabaseErrorKind::LockTimeout,
        "8" => DatabaseErrorKind::ReadOnly,
        "13" => DatabaseErrorKind::Exhausted,
        "14" => DatabaseErrorKind::NoDatabase,
        "23" => DatabaseErrorKind::Rights,
        "1" if message.contains("no such table") => DatabaseErrorKind::NoTable,
        "1" if message.contains("no such column") => DatabaseErrorKind::NoColumn,
        "1" if message.contains("inside a transaction") => DatabaseErrorKind::InTransaction,
        _ => DatabaseErrorKind::Other,
    }
}

pub(super) const DIALECT: Dialect = Dialect {
    quote: '"',
    remote: false,
    fragile_prepare: false,
    numbered: false,
    arrays: false,
    now: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
    int: ("", ""),
    text: ("", ""),
    micros: ("", ""),
    time: ("", ""),
    from: ("", ""),
    later: ("(CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ", ")"),
    earlier: ("(CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ", ")"),

    between: "(available_at, sequence) > ($1, $1) AND (available_at, sequence) <= ($1, $1)",
    places: Places::Row,
    earliest: i64::MIN,
    settings: &[],
    has_settings: None,
    relay_settings: &[],
    // The condition of the partial index is repeated, or else the index is not considered. It is not `IN`: on an
    // index that was analysed when it was empty, the planner would look that up instead of the status, and sort the
    // rest.
    pending: ("status = ", " AND status <> 1 AND status <> 3"),
    settled: ("status = ", " AND status <> 0 AND status <> 2"),
    session: None,
    end_session: None,
    begin: "BEGIN IMMEDIATE; SAVEPOINT outbox_tx",
    begin_settling: "BEGIN IMMEDIATE; SAVEPOINT outbox_tx",
    begin_work: "BEGIN IMMEDIATE",
    work_for_changes: false,
    guard: Some("RELEASE SAVEPOINT outbox_tx"),
    probe: &["RELEASE SAVEPOINT outbox_tx", "SAVEPOINT outbox_tx"],
    // Temporary tables have no such setting, so there is nothing to change.
    open: OpenTransaction::FailsInside("PRAGMA temp.synchronous = 1", None),
    commits_implicitly: false,

    insert: Insert::Returning {
        one: "\
            INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
                headers, created_at, available_at, locked_by, locked_at, claim_token, status, done_at, \
                attempts, subscription) \
            SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, created, \
                COALESCE(until, {now} + wait), owner, CASE WHEN owner IS NULL THEN NULL ELSE {now} END, token, \
                status, CASE WHEN status = 1 THEN {now} END, 0, subscription \
            FROM (SELECT $1 AS event_id, $2 AS event_type, $3 AS aggregate_type, $4 AS aggregate_id, \
                $5 AS tenant_id, $6 AS payload, $7 AS headers, $8 AS created, $9 AS until, $10 AS wait, \
                $11 AS owner, $12 AS token, $13 AS status, $14 AS subscription) \
            RETURNING sequence",
        many: "\
            INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
                headers, created_at, available_at, locked_by, locked_at, claim_token, status, done_at, \
                attempts, subscription) \
            SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, \
                value ->> 6, value ->> 7, COALESCE(value ->> 8, {now} + (value ->> 9)), value ->> 10, \
                CASE WHEN value ->> 10 IS NULL THEN NULL ELSE {now} END, value ->> 11, value ->> 12, \
                CASE WHEN value ->> 12 = 1 THEN {now} END, 0, value ->> 13 \
            FROM json_each($1) WHERE true ORDER BY key {skip} \
            RETURNING {returned}",
        // It has no network that a payload could be sent over more than once.
        fan_out: None,
    },
    existing: "\
        SELECT sequence, event_id, subscription FROM {table} \
        WHERE event_id IN (SELECT value ->> 0 FROM json_each($1))",
    existing_lock: "",
    claim: Locking::ReadThenUpdate {
        read: "\
            SELECT {columns}, available_at, entry.locked_by FROM {table} AS entry {by:claim} \
            WHERE {pending:{status}} AND available_at <= {now} AND {between} \
                AND ($1 = 0 OR created_at <= {earlier:$1}) \
                AND typeof(claim_token) = 'integer' {pairs} \
            ORDER BY available_at, sequence LIMIT $1",
        // If the owner has renewed the lease since, its end differs.
        update: "\
            UPDATE {table} AS entry SET available_at = {now} + ours.lease, locked_by = ours.owner, \
                locked_at = {now}, claim_token = {next:entry.claim_token} \
            FROM (SELECT value ->> 0 AS sequence, value ->> 1 AS token, value ->> 2 AS owner, \
                value ->> 3 AS lease, value ->> 4 AS due FROM json_each($1)) AS ours \
            WHERE entry.sequence = ours.sequence AND entry.claim_token = ours.token \
                AND (entry.available_at = ours.due OR typeof(entry.available_at) <> 'integer') \
                AND +entry.status IN (0, 2) RETURNING sequence",
    },
    order: ORDER,
    renew: Locking::AtOnce(
        "UPDATE {table} AS entry SET available_at = {now} + ours.lease, \
            takeovers = MAX(entry.takeovers, ours.takeovers) \
        FROM (SELECT value ->> 0 AS sequence, value ->> 1 AS token, value ->> 2 AS owner, \
            value ->> 3 AS lease, value ->> 4 AS takeovers FROM json_each($1)) AS ours \
        WHERE entry.sequence = ours.sequence AND entry.claim_token = ours.token \
            AND entry.locked_by = ours.owner AND +entry.status IN (0, 2) RETURNING sequence",
    ),
    settle: "\
        UPDATE {table} AS entry SET \
            status = {status_after}, \
            attempts = COALESCE(settlement.attempts, entry.attempts), \
            available_at = CASE WHEN settlement.verdict IN ({final_verdicts}) THEN entry.available_at ELSE {now} + wait END, \
            done_at = CASE WHEN settlement.verdict IN ({final_verdicts}) THEN {now} ELSE entry.done_at END, \
            last_error = COALESCE(error, entry.last_error), \
            history = COALESCE(settlement.history, entry.history), \
            takeovers = CASE WHEN settlement.verdict IN ({clearing_verdicts}) THEN 0 \
                WHEN settlement.verdict IN ({decrementing_verdicts}) AND entry.takeovers > 1 THEN entry.takeovers - 1 \
                ELSE entry.takeovers END, \
            locked_by = NULL, locked_at = NULL \
        FROM (SELECT value ->> 0 AS sequence, value ->> 1 AS token, value ->> 2 AS verdict, \
            value ->> 3 AS attempts, value ->> 4 AS wait, value ->> 5 AS error, \
            value ->> 6 AS history FROM json_each($1)) AS settlement \
        WHERE entry.sequence = settlement.sequence AND entry.claim_token = settlement.token \
            AND entry.locked_by = $2 AND +entry.status IN (0, 2)",
    settle_delete: "\
        DELETE FROM {table} WHERE +status IN (0, 2) AND (sequence, claim_token) IN ( \
            SELECT value ->> 0, value ->> 1 FROM json_each($1)) AND locked_by = $2",
    settle_alike: None,
    skip_locked: SkipLocked::Alone,
    states: "\
        SELECT sequence, claim_token, locked_by, status FROM {table} \
        WHERE sequence IN (SELECT value FROM json_each($1))",
    purge: &["\
        SELECT sequence, COALESCE(done_at, created_at) FROM {table} {by:purge} \
        WHERE {settled:{status}} AND COALESCE(done_at, created_at) < {earlier:$1} \
            AND COALESCE(done_at, created_at) >= $1 {only} ORDER BY COALESCE(done_at, created_at) LIMIT $1"],
    replay_all: "\
        UPDATE {table} SET status = 0, attempts = 0, takeovers = 0, available_at = {now}, \
            done_at = NULL, last_error = NULL, locked_by = NULL, locked_at = NULL, \
            claim_token = {next:claim_token} \
        WHERE +status = 3 AND sequence IN (SELECT value FROM json_each($1))",
    delete: "DELETE FROM {table} WHERE sequence IN (SELECT value FROM json_each($1)) {only}",
    fan_out: FAN_OUT,
    keys: KeySql {
        event: "COALESCE(aggregate_type, '__GLOBAL__') || char(31) || event_type || char(31) || subscription",
        aggregate: "COALESCE(aggregate_type, '__GLOBAL__') || char(31) || subscription",
        condition: ("(", ")"),
        among: Among::Array("IN (SELECT value FROM json_each({arg}))"),
    },
    by_index: Some(("INDEXED BY ", "")),
    in_memory: Some("SELECT COUNT(*) FROM pragma_database_list WHERE name = 'main' AND file = ''"),
    table_id: None,
    connection_limit: None,
    encrypted: None,
    notify: None,
    estimate_by_name: false,
    // Old rows are deleted first, so the sequences have few gaps. Each part reads one end of the key.
    estimate: "\
        SELECT (SELECT MAX(sequence) FROM {table}) - (SELECT MIN(sequence) FROM {table}) + 1",
    ended: &["\
        SELECT COUNT(*) FROM (SELECT 1 FROM {table} {by:purge} WHERE {settled:{status}} \
            AND COALESCE(done_at, created_at) {side} {earlier:$1} {only} LIMIT 100000)"],
    rights: None,
    columns: "SELECT name FROM pragma_table_info('{bare}')",
    indexes: "SELECT name FROM pragma_index_list('{bare}')",
    migrations: Migrations {
        steps: &[
            Step { sql: include_str!("schema/sqlite/0001_create.sql"), min_code: 1 },
            Step { sql: include_str!("schema/sqlite/0002_subscription.sql"), min_code: 1 },
            Step { sql: include_str!("schema/sqlite/0003_subscriptions.sql"), min_code: 3 },
        ],
        origin: None,
        versions: "CREATE TABLE IF NOT EXISTS {versions} (table_name TEXT PRIMARY KEY, \
            version INTEGER NOT NULL, min_code INTEGER NOT NULL DEFAULT 1)",
        add_min_code: "ALTER TABLE {versions} ADD COLUMN min_code INTEGER NOT NULL DEFAULT 1",
        setup: "PRAGMA journal_mode = WAL",
        lock_timeout: "",
        transactional: true,
    },
    migration_lock: None,
    relay_lock: relay_lock::SQLITE,
    index_in_schema: true,
    transactions: None,
    transactions_visible: "SELECT 1",
    checks: &[
        writable("SELECT query_only FROM pragma_query_only"),
        Check {
            subject: "journal",
            test: "SELECT journal_mode <> 'wal' FROM pragma_journal_mode",
            level: FindingLevel::Warning,
            ok: "the journal is a write-ahead log",
            problem: "the journal is not a write-ahead log: readers and the writer wait for each other",
            remedy: "run `PRAGMA journal_mode = WAL` once; the setting is stored in the file",
            at_start: false,
        },
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_general_code_is_classified_by_its_text() {
        let kind = |message| kind("1", message);
        assert_eq!(kind("no such table: outbox_event"), DatabaseErrorKind::NoTable);
        assert_eq!(kind("no such column: takeovers"), DatabaseErrorKind::NoColumn);
        assert_eq!(
            kind("Safety level may not be changed inside a transaction"),
            DatabaseErrorKind::InTransaction
        );
        assert_eq!(kind("near \"SELEC\": syntax error"), DatabaseErrorKind::Other);
    }
}
