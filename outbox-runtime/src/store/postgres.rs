//! PostgreSQL: arrays and `unnest`, so that one prepared statement serves a batch of any size;
//! materialised CTEs, so that no planner updates more rows than were locked.
//!
//! A statement by key finds its rows with `sequence = ANY(..)`, which bounds the rows that it can touch, and then
//! joins them to the batch by `sequence + 0`, which cannot use an index: the planner would look up the whole list
//! once for every row. `status + 0` cannot use one either: the claim index also holds entries that vacuum has not
//! removed yet.

use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;

use super::backend::backend;
use super::dialect::{
    Among, Check, Dialect, KeySql, Locking, OpenTransaction, Places, SkipLocked, writable,
};
use super::fan_out::postgres::FAN_OUT;
use super::identity::{self, Address};
use super::insert::postgres::INSERT;
use super::migration_lock::MigrationLock;
use super::order::postgres::ORDER;
use super::rights::Rights;
use super::schema::origin::Origin;
use super::schema::plan::{Migrations, Step};
use super::settle::postgres::ALIKE;
use super::{DatabaseErrorKind, FindingLevel, harness, relay_lock};

backend! {
    Postgres, DIALECT, harness::POSTGRES,
    arrays: |values| values,
    done: |_result| None,
    file: |_pool| None,
    address: |options| {
        let (socket, host) = (options.get_socket(), options.get_host());
        let server = identity::server("postgres", socket, host, options.get_port());
        let database = options.get_database().unwrap_or(options.get_username());
        // Which schema a name means is not known here; the table has an id.
        Address { server: format!("{server}/{database}"), schema: String::new() }
    },
    relay: |options, timeout| {
        let timeout = timeout.as_millis().to_string();
        let settings = DIALECT.settings.iter().chain(DIALECT.relay_settings).copied();
        options.options(settings.chain([("statement_timeout", timeout.as_str())]))
    },
    listen: |pool, channel, heard| {
        /// The interval of the checks that the server still answers.
        const HEARTBEAT: Duration = Duration::from_secs(10);
        // A connection of its own: when a listener is dropped, sqlx sends an UNLISTEN and waits for the answer, on
        // a half-open connection indefinitely. The pool would lack the connection for that time.
        let own = pool.options().clone().max_connections(1).min_connections(0);
        let own = own.connect_lazy_with((*pool.connect_options()).clone());
        let begin = async {
            let mut listener = sqlx::postgres::PgListener::connect_with(&own).await?;
            listener.listen(channel).await?;
            Ok::<_, sqlx::Error>(listener)
        };
        let begun = tokio::time::timeout(HEARTBEAT, begin).await;
        let mut listener = begun.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        // A connection pooler in transaction mode accepts the LISTEN, and forwards no notification.
        let test = async {
            let mut connection = pool.acquire().await?;
            // If the network is silent, the pool must not wait for it.
            connection.close_on_drop();
            sqlx::query("SELECT pg_notify($1, '')").bind(channel).execute(&mut *connection).await?;
            listener.try_recv().await
        };
        match tokio::time::timeout(HEARTBEAT, test).await {
            Ok(received) => drop(received?),
            Err(_) => {
                return Err(sqlx::Error::Protocol(
                    "a notification did not arrive within 10 s; a connection pooler in transaction mode \
                     forwards none: connect to the server itself, or turn `notify` off"
                        .into(),
                ));
            }
        }
        heard();
        let lifetime = pool.options().get_max_lifetime().unwrap_or(Duration::MAX);
        let mut too_old = std::pin::pin!(tokio::time::sleep(lifetime));
        loop {
            let received = tokio::select! {
                received = tokio::time::timeout(HEARTBEAT, listener.try_recv()) => received,
                () = &mut too_old => return Ok(()),
            };
            match received {
                Ok(Ok(Some(_))) => heard(),
                // The connection was lost and made again.
                Ok(Ok(None)) => heard(),
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let alive = sqlx::query("SELECT 1").execute(&mut listener);
                    match tokio::time::timeout(HEARTBEAT, alive).await {
                        Ok(answer) => answer.map(drop)?,
                        Err(_) => return Err(sqlx::Error::PoolTimedOut),
                    }
                }
            }
        }
    },
}

/// Classifies an error of PostgreSQL by its SQLSTATE.
pub(super) fn classify(error: &dyn DatabaseError) -> Option<DatabaseErrorKind> {
    let error = error.try_downcast_ref::<PgDatabaseError>()?;
    Some(kind(error.code(), error.message()))
}

fn kind(code: &str, message: &str) -> DatabaseErrorKind {
    match code {
        "40001" | "40P01" => DatabaseErrorKind::Contention,
        "55P03" => DatabaseErrorKind::LockTimeout,
        "57014" => DatabaseErrorKind::Cancelled,
        "25P01" => DatabaseErrorKind::NoTransaction,
        "25P02" => DatabaseErrorKind::Aborted,
        "25006" => DatabaseErrorKind::ReadOnly,
        // PgBouncer's answer to a start-up parameter: the connection works without it.
        "08P01" if message.contains("startup parameter") => DatabaseErrorKind::Other,
        "28000" if message.contains("no encryption") || message.contains("SSL off") => {
            DatabaseErrorKind::Tls
        }
        "3D000" => DatabaseErrorKind::NoDatabase,
        "42P01" | "3F000" => DatabaseErrorKind::NoTable,
        "42703" => DatabaseErrorKind::NoColumn,
        "42501" => DatabaseErrorKind::Rights,
        _ => match code.get(..2) {
            // The connection failed, or the server or the session is being shut down.
            Some("08" | "57") => DatabaseErrorKind::Unreachable,
            Some("22") => DatabaseErrorKind::Data,
            Some("28") => DatabaseErrorKind::Login,
            Some("53") => DatabaseErrorKind::Exhausted,
            _ => DatabaseErrorKind::Other,
        },
    }
}

pub(super) const DIALECT: Dialect = Dialect {
    quote: '"',
    remote: true,
    fragile_prepare: false,
    numbered: true,
    arrays: true,
    now: "statement_timestamp()",
    int: ("(", ")::bigint"),
    text: ("(", ")::text"),
    // A time beyond 64 bits, or an infinite one, is NULL.
    micros: (
        "CASE WHEN ",
        " BETWEEN timestamptz '4714-11-24 00:00:00+00 BC' AND timestamptz '294246-12-31 00:00:00+00' \
            THEN (extract(epoch from {it}) * 1000000)::bigint END",
    ),
    // In two parts: the multiplication of an interval has a precision of only 53 bits.
    time: (
        "(timestamptz 'epoch' + (",
        " / 1000000) * interval '1 second' + ({it} % 1000000) * interval '1 microsecond')",
    ),
    // The calendar begins in 4714 BC, and `-infinity` is before that.
    from: (
        "CASE WHEN ",
        " < -210866803200000000 THEN timestamptz '-infinity' ELSE (timestamptz 'epoch' \
            + ({it} / 1000000) * interval '1 second' \
            + ({it} % 1000000) * interval '1 microsecond') END",
    ),
    later: ("(statement_timestamp() + ", " * interval '1 microsecond')"),
    earlier: ("(statement_timestamp() - ", " * interval '1 microsecond')"),

    pending: ("status = ", ""),
    settled: ("status = ", ""),
    between: "(available_at, sequence) > ({from:$1::bigint}, $2::bigint) \
        AND (available_at, sequence) <= ({time:$3::bigint}, $4::bigint)",
    places: Places::Row,
    earliest: -210_866_803_200_000_001,
    settings: &[
        // Every statement of the store has an index, and the order of that index. A plan that is cheaper on a table
        // that seems to be empty scans the whole table when it is not.
        ("enable_seqscan", "off"),
        ("enable_bitmapscan", "off"),
        ("enable_sort", "off"),
        // A batch is joined to its rows by hashing. The planner expects a few rows in a batch and would use a
        // nested loop, but it has up to a thousand.
        ("enable_nestloop", "off"),
        // The only plan that is left has an absurdly high cost, because of which the server would compile it.
        ("jit", "off"),
    ],
    has_settings: Some("SELECT (current_setting('enable_seqscan') = 'off')::int::bigint"),
    // One row that another session has locked must not delay the others: see `settle`. A session whose network is
    // gone must not keep its transaction.
    relay_settings: &[("lock_timeout", "250"), ("idle_in_transaction_session_timeout", "10000")],
    session: Some(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET statement_timeout = {millis}",
    ),
    end_session: Some("SELECT pg_terminate_backend(pg_backend_pid())"),
    begin: "BEGIN",
    begin_settling: "BEGIN ISOLATION LEVEL READ COMMITTED",
    begin_work: "BEGIN ISOLATION LEVEL READ COMMITTED",
    work_for_changes: false,
    guard: None,
    probe: &["SELECT 1"],
    open: OpenTransaction::FailsOutside(&["SAVEPOINT outbox_in", "RELEASE SAVEPOINT outbox_in"]),
    commits_implicitly: false,

    insert: INSERT,
    existing: "\
        SELECT sequence, event_id::text, subscription::text FROM {table} \
        WHERE event_id = ANY($1::text[]) \
            AND CASE WHEN subscription = '*' THEN '' ELSE subscription END = ANY($2::text[])",
    existing_lock: "",
    claim: Locking::AtOnce(
        "WITH due AS MATERIALIZED ( \
            SELECT sequence, available_at, locked_by FROM {table} \
            WHERE status = {status} AND available_at <= {now} AND {between} \
                AND ($5::bigint = 0 OR created_at <= {earlier:$6}) {pairs} \
            ORDER BY available_at, sequence LIMIT $7 FOR UPDATE SKIP LOCKED) \
        UPDATE {table} AS entry SET available_at = {later:$8}, locked_by = $9, locked_at = {now}, \
            claim_token = {next:entry.claim_token} \
        FROM due WHERE entry.sequence = ANY(ARRAY(SELECT sequence FROM due)) \
            AND entry.sequence + 0 = due.sequence \
        RETURNING {columns}, {micros:due.available_at}, due.locked_by::text",
    ),
    order: ORDER,
    renew: Locking::AtOnce(
        "WITH held AS MATERIALIZED ( \
            SELECT entry.sequence, ours.takeovers FROM {table} AS entry \
            JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS ours(sequence, token, takeovers) \
                ON entry.sequence + 0 = ours.sequence AND entry.claim_token = ours.token \
            WHERE entry.sequence = ANY($1::bigint[]) AND entry.locked_by = $4 \
                AND (entry.status + 0) IN (0, 2) FOR UPDATE OF entry SKIP LOCKED) \
        UPDATE {table} AS entry SET available_at = {later:$5}, \
            takeovers = GREATEST(entry.takeovers, held.takeovers) \
        FROM held WHERE entry.sequence = ANY(ARRAY(SELECT sequence FROM held)) \
            AND entry.sequence + 0 = held.sequence RETURNING entry.sequence",
    ),
    settle: "\
        UPDATE {table} AS entry SET \
            status = {status_after}, \
            attempts = COALESCE(settlement.attempts, entry.attempts), \
            available_at = CASE WHEN settlement.verdict IN ({final_verdicts}) THEN entry.available_at ELSE {later:wait} END, \
            done_at = CASE WHEN settlement.verdict IN ({final_verdicts}) THEN {now} ELSE entry.done_at END, \
            last_error = COALESCE(error, entry.last_error), \
            history = COALESCE(settlement.history, entry.history), \
            takeovers = CASE WHEN settlement.verdict IN ({clearing_verdicts}) THEN 0 \
                WHEN settlement.verdict IN ({decrementing_verdicts}) AND entry.takeovers > 1 THEN entry.takeovers - 1 \
                ELSE entry.takeovers END, \
            locked_by = NULL, locked_at = NULL \
        FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], \
            $7::text[]) AS settlement(sequence, token, verdict, attempts, wait, error, history) \
        WHERE entry.sequence = ANY({keys}) AND entry.sequence + 0 = settlement.sequence \
            AND entry.claim_token = settlement.token AND entry.locked_by = $8 \
            AND (entry.status + 0) IN (0, 2)",
    settle_delete: "\
        DELETE FROM {table} AS entry \
        USING unnest($1::bigint[], $2::bigint[]) AS settlement(sequence, token) \
        WHERE entry.sequence = ANY({keys}) AND entry.sequence + 0 = settlement.sequence \
            AND entry.claim_token = settlement.token AND entry.locked_by = $3 \
            AND (entry.status + 0) IN (0, 2)",
    settle_alike: Some(ALIKE),
    skip_locked: SkipLocked::Statement {
        waiting: "$1::bigint[]",
        skipping: "ARRAY(SELECT sequence FROM {table} WHERE sequence = ANY($1::bigint[]) \
            FOR UPDATE SKIP LOCKED)",
    },
    states: "\
        SELECT sequence, claim_token, locked_by::text, {int:status} FROM {table} \
        WHERE sequence = ANY($1::bigint[])",
    purge: &["\
        SELECT sequence, {micros:COALESCE(done_at, created_at)} FROM {table} \
        WHERE status = {status} AND COALESCE(done_at, created_at) < {earlier:$1} \
            AND COALESCE(done_at, created_at) >= {from:$2::bigint} {only} \
        ORDER BY COALESCE(done_at, created_at) LIMIT $3"],
    replay_all: "\
        UPDATE {table} SET status = 0, attempts = 0, takeovers = 0, available_at = {now}, \
            done_at = NULL, last_error = NULL, locked_by = NULL, locked_at = NULL, \
            claim_token = {next:claim_token} \
        WHERE status + 0 = 3 AND sequence = ANY($1::bigint[])",
    delete: "DELETE FROM {table} WHERE sequence = ANY({keys}) {only}",
    fan_out: FAN_OUT,
    // In a CASE, so that the planner does not assume that matches are rare, and fetch all rows before it sorts the few.
    keys: KeySql {
        event: "COALESCE(aggregate_type, '__GLOBAL__') || chr(31) || event_type || chr(31) || subscription",
        aggregate: "COALESCE(aggregate_type, '__GLOBAL__') || chr(31) || subscription",
        condition: ("CASE WHEN ", " THEN true ELSE false END"),
        among: Among::Array("= ANY({arg}::text[])"),
    },
    by_index: None,
    in_memory: None,
    table_id: Some("SELECT '{table}'::regclass::oid::bigint"),
    // A limit of -1 means none, and LEAST ignores NULL. `reserved_connections` exists since version 16.
    connection_limit: Some(
        "SELECT LEAST(current_setting('max_connections')::bigint \
                - current_setting('superuser_reserved_connections')::bigint \
                - COALESCE(NULLIF(current_setting('reserved_connections', true), ''), '0')::bigint, \
            (SELECT NULLIF(rolconnlimit, -1) FROM pg_roles WHERE rolname = session_user), \
            (SELECT NULLIF(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))",
    ),
    encrypted: Some("SELECT ssl::int::bigint FROM pg_stat_ssl WHERE pid = pg_backend_pid()"),
    notify: Some("SELECT pg_notify($1, '')"),
    estimate_by_name: false,
    estimate: "SELECT reltuples::bigint FROM pg_class WHERE oid = '{table}'::regclass",
    ended: &["\
        SELECT {int:COUNT(*)} FROM (SELECT 1 FROM {table} WHERE {settled:{status}} \
            AND COALESCE(done_at, created_at) {side} {earlier:$1} {only} LIMIT 100000) AS capped"],
    // A schema that the user may not use is left out of the search path, so that the table is looked for by name.
    rights: Some(Rights {
        names: "\
            SELECT quote_ident(current_user), quote_ident(nspname) || '.' || quote_ident(relname), \
                quote_ident(nspname), quote_ident(nspname) || '.outbox_schema', \
                has_schema_privilege(pg_namespace.oid, 'USAGE')::int::bigint \
            FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
                JOIN unnest(CASE WHEN '{bare_schema}' <> '' THEN ARRAY['{bare_schema}'] \
                        ELSE string_to_array(current_setting('search_path'), ',') END) \
                    WITH ORDINALITY AS path(entry, place) \
                ON nspname = CASE btrim(entry, '\" ') WHEN '$user' THEN current_user ELSE btrim(entry, '\" ') END \
            WHERE relname = '{bare}' AND relkind IN ('r', 'p') ORDER BY place LIMIT 1",
        // An identity column needs no privilege on its sequence.
        sequence: Some(
            "SELECT pg_get_serial_sequence('{table}', 'sequence') FROM pg_attribute \
             WHERE attrelid = '{table}'::regclass AND attname = 'sequence' AND attidentity = '' \
                AND NOT has_sequence_privilege(pg_get_serial_sequence('{table}', 'sequence'), 'USAGE')",
        ),
        lock_requires_update: true,
        conceals_tables: false,
    }),
    columns: "\
        SELECT attname::text FROM pg_attribute \
        WHERE attrelid = to_regclass('{table}') AND attnum > 0 AND NOT attisdropped",
    indexes: "\
        SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid \
        WHERE indrelid = to_regclass('{table}') AND indisvalid",
    migrations: Migrations {
        steps: &[
            Step { sql: include_str!("schema/postgres/0001_create.sql"), min_code: 1 },
            Step { sql: include_str!("schema/postgres/0002_subscription.sql"), min_code: 1 },
            Step { sql: include_str!("schema/postgres/0003_subscriptions.sql"), min_code: 3 },
        ],
        origin: Some(Origin { sql: include_str!("schema/postgres/adopt_java.sql") }),
        versions: "CREATE TABLE IF NOT EXISTS {versions} (table_name varchar(63) PRIMARY KEY, \
            version integer NOT NULL, min_code integer NOT NULL DEFAULT 1)",
        add_min_code: "ALTER TABLE {versions} ADD COLUMN IF NOT EXISTS min_code integer NOT NULL DEFAULT 1",
        setup: "",
        lock_timeout: "SET LOCAL lock_timeout = 1000",
        transactional: true,
    },
    migration_lock: Some(MigrationLock {
        take: "SET LOCAL lock_timeout = {millis}; \
            SELECT pg_advisory_xact_lock(7738134957241561); \
            SET LOCAL lock_timeout = DEFAULT",
        release: None,
        holder: "SELECT pid::bigint, '7738134957241561' FROM pg_locks \
            WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
            AND (classid::bigint << 32 | objid::bigint) = 7738134957241561 AND database = \
                (SELECT oid FROM pg_database WHERE datname = current_database())",
    }),
    relay_lock: relay_lock::POSTGRES,
    index_in_schema: false,
    // A row that a snapshot may still see cannot be removed, whichever tables its transaction reads.
    transactions: Some(
        "SELECT {int:COUNT(*)}, {int:extract(epoch from {now} - MIN(xact_start)) * 1000000} \
         FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
            AND backend_type = 'client backend' AND xact_start < {earlier:$1}",
    ),
    transactions_visible: "SELECT pg_has_role('pg_read_all_stats', 'USAGE')::int::bigint",
    checks: &[
        Check {
            subject: "server",
            test: "SELECT (current_setting('server_encoding') <> 'UTF8')::int::bigint",
            level: FindingLevel::Warning,
            ok: "",
            problem: "the server's encoding is not UTF8: events with other characters are refused",
            remedy: "create the database with `ENCODING 'UTF8'`",
            at_start: true,
        },
        writable(
            "SELECT (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::int::bigint",
        ),
        Check {
            subject: "autovacuum",
            test: "\
                SELECT (current_setting('autovacuum') = 'off' OR COALESCE(array_to_string(reloptions, ','), '') \
                    ~ 'autovacuum_enabled=(false|off|no|0)')::int::bigint \
                FROM pg_class WHERE oid = '{table}'::regclass",
            level: FindingLevel::Warning,
            ok: "autovacuum is on",
            problem: "autovacuum is off: the table grows with every change, and claims become slow",
            remedy: "turn it on: `ALTER TABLE .. RESET (autovacuum_enabled)`, or `autovacuum = on` in \
                postgresql.conf",
            at_start: false,
        },
        Check {
            subject: "bloat",
            test: "\
                SELECT (n_dead_tup > 50000 AND n_dead_tup > n_live_tup)::int::bigint \
                FROM pg_stat_all_tables WHERE relid = '{table}'::regclass",
            level: FindingLevel::Warning,
            ok: "there are few old versions of rows",
            problem: "there are more old versions of rows than rows: autovacuum does not keep up",
            remedy: "look for long transactions and forgotten replication slots, then run `VACUUM` on \
                the table",
            at_start: false,
        },
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified_by_their_sqlstate() {
        let kind = |code| kind(code, "");
        assert_eq!(kind("40P01"), DatabaseErrorKind::Contention);
        assert_eq!(kind("55P03"), DatabaseErrorKind::LockTimeout);
        assert_eq!(kind("25P02"), DatabaseErrorKind::Aborted);
        assert_eq!(kind("22021"), DatabaseErrorKind::Data);
        assert_eq!(kind("53300"), DatabaseErrorKind::Exhausted);
        assert_eq!(kind("57P01"), DatabaseErrorKind::Unreachable);
        assert_eq!(kind("57014"), DatabaseErrorKind::Cancelled);
        assert_eq!(kind("42601"), DatabaseErrorKind::Other);
        assert_eq!(kind("08P01"), DatabaseErrorKind::Unreachable);
    }

    #[test]
    fn a_start_up_parameter_that_a_pooler_refuses_is_no_outage() {
        let message = "unsupported startup parameter in options: enable_seqscan";
        assert_eq!(kind("08P01", message), DatabaseErrorKind::Other);
    }

    #[test]
    fn a_server_that_requires_tls_is_not_a_wrong_password() {
        let message =
            "no pg_hba.conf entry for host \"::1\", user \"a\", database \"b\", no encryption";
        assert_eq!(kind("28000", message), DatabaseErrorKind::Tls);
        assert_eq!(kind("28000", "role \"a\" does not exist"), DatabaseErrorKind::Login);
    }
}
