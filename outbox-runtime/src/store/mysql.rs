//! MySQL and MariaDB, with the SQL that both understand. Batches are sent as one JSON text and read with
//! `JSON_TABLE`; rows are locked first and updated then, in one READ COMMITTED transaction.
//!
//! `STRAIGHT_JOIN` from the batch to the table, and by its key (`FORCE INDEX`): the optimiser would rather scan a
//! small table, and so wait for every row that another session has locked, or lock the whole table itself. The
//! claim names its index as well: the optimiser would look up the status alone, and read every row below the
//! watermark.
//!
//! MySQL accepts a locking read of a `JSON_TABLE` only with the table to lock (`OF`), which MariaDB does not know:
//! each skips the comment that is for the other.
//!
//! The unique index of the ids is descending: a duplicate locks the gap before its record, and in an
//! ascending index that may be the gap into which every generated id goes.

use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use super::backend::backend;
use super::dialect::{
    Among, Check, Dialect, Insert, KeySql, Locking, OpenTransaction, Places, SkipLocked, writable,
};
use super::fan_out::mysql::FAN_OUT;
use super::identity::{self, Address};
use super::migration_lock::MigrationLock;
use super::order::mysql::ORDER;
use super::rights::Rights;
use super::schema::origin::Origin;
use super::schema::plan::{Migrations, Step};
use super::{DatabaseErrorKind, FindingLevel, harness, relay_lock};

/// The name of the migration lock. Names are server-wide, have at most 64 characters and are not case-sensitive;
/// the name of a database alone can have as many.
macro_rules! migration_lock_name {
    () => {
        "CONCAT('outbox:migrate:', \
            LEFT(SHA2(LOWER(COALESCE(NULLIF('{bare_schema}', ''), DATABASE(), '')), 256), 40))"
    };
}

backend! {
    MySql, DIALECT, harness::MYSQL,
    arrays: |values| serde_json::to_string(&values).unwrap_or_default(),
    done: |result| i64::try_from(result.last_insert_id()).ok(),
    file: |_pool| None,
    address: |options| {
        let (socket, host) = (options.get_socket(), options.get_host());
        let server = identity::server("mysql", socket, host, options.get_port());
        Address { server, schema: options.get_database().unwrap_or_default().to_owned() }
    },
    relay: |options, _timeout| options,
    listen: |_pool, _channel, _heard| std::future::pending().await,
}

/// Classifies an error of MySQL or MariaDB by its number, and by its SQLSTATE where that is precise.
pub(super) fn classify(error: &dyn DatabaseError) -> Option<DatabaseErrorKind> {
    let error = error.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(kind(error.number(), error.code().unwrap_or_default(), error.message()))
}

fn kind(number: u16, code: &str, message: &str) -> DatabaseErrorKind {
    match number {
        1213 => return DatabaseErrorKind::Contention,
        1205 => return DatabaseErrorKind::LockTimeout,
        // The time limit of a statement, on MariaDB and on MySQL.
        1969 | 3024 => return DatabaseErrorKind::Cancelled,
        // The limits of the server and of a user on connections.
        1040 | 1203 | 1226 => return DatabaseErrorKind::Exhausted,
        _ => {}
    }
    match code {
        "25001" => DatabaseErrorKind::InTransaction,
        "25006" => DatabaseErrorKind::ReadOnly,
        "28000" => DatabaseErrorKind::Login,
        "42S02" => DatabaseErrorKind::NoTable,
        "42S22" => DatabaseErrorKind::NoColumn,
        // One SQLSTATE for a syntax error and several others.
        "42000" if message.contains("Unknown database") => DatabaseErrorKind::NoDatabase,
        "42000" if message.contains("denied") => DatabaseErrorKind::Rights,
        "HY000" if message.contains("insecure transport") => DatabaseErrorKind::Tls,
        "HY000" if message.contains("read-only") => DatabaseErrorKind::ReadOnly,
        // Some servers have no better code than "general error" for a character that they cannot store.
        "HY000" => DatabaseErrorKind::Data,
        _ => match code.get(..2) {
            // The connection failed, or the server or the session is being shut down.
            Some("08" | "70") => DatabaseErrorKind::Unreachable,
            Some("22") => DatabaseErrorKind::Data,
            _ => DatabaseErrorKind::Other,
        },
    }
}

pub(super) const DIALECT: Dialect = Dialect {
    quote: '`',
    remote: true,
    fragile_prepare: true,
    numbered: false,
    arrays: false,
    now: "UTC_TIMESTAMP(6)",
    int: ("CAST(", " AS SIGNED)"),
    text: ("", ""),
    micros: ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ", ")"),
    time: ("TIMESTAMPADD(MICROSECOND, ", ", '1970-01-01 00:00:00.000000')"),
    // No time before the year 1 can be computed, but on MariaDB one can be stored.
    from: (
        "COALESCE(TIMESTAMPADD(MICROSECOND, ",
        ", '1970-01-01 00:00:00.000000') /*M! , '0000-00-00 00:00:00' */ \
            /*!80000 , TIMESTAMP'0001-01-01 00:00:00' */)",
    ),
    later: ("TIMESTAMPADD(MICROSECOND, ", ", UTC_TIMESTAMP(6))"),
    earlier: ("TIMESTAMPADD(MICROSECOND, -", ", UTC_TIMESTAMP(6))"),

    pending: ("status = ", ""),
    settled: ("status = ", ""),
    between: "(available_at > {from:$1} OR (available_at = {from:$1} AND sequence > $1)) \
        AND (available_at < {time:$1} OR (available_at = {time:$1} AND sequence <= $1))",
    places: Places::TimeTwice,
    earliest: -62_135_596_800_000_001,
    settings: &[],
    has_settings: None,
    relay_settings: &[],
    // Each server skips the comment of the other. The shortest wait for a lock is a second on MySQL. The
    // application may have set up its sessions, and with them the relay's, in another way. A transaction whose
    // client is gone without closing the connection would keep its row locks beyond a lease: MariaDB can end it.
    session: Some(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET SESSION autocommit = 1, sql_safe_updates = 0, sql_select_limit = DEFAULT, \
            innodb_lock_wait_timeout = 1 /*M! , max_statement_time = {seconds}, \
            idle_transaction_timeout = {whole} */ \
            /*!80000 , max_execution_time = {millis} */",
    ),
    end_session: Some("KILL CONNECTION_ID()"),
    begin: "START TRANSACTION; SAVEPOINT outbox_tx",
    begin_settling: "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
        SAVEPOINT outbox_tx",
    begin_work: "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION",
    // A purge would lock the gaps between the rows that it deletes, and new events are inserted into one of them.
    work_for_changes: true,
    guard: Some("RELEASE SAVEPOINT outbox_tx"),
    probe: &["RELEASE SAVEPOINT outbox_tx", "SAVEPOINT outbox_tx"],
    open: OpenTransaction::FailsInside(
        "SET TRANSACTION READ WRITE",
        Some("SELECT CAST(@@autocommit = 0 AS SIGNED)"),
    ),
    commits_implicitly: true,

    insert: Insert::Failing {
        bulk: "\
            INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, \
                payload, headers, created_at, available_at, locked_by, locked_at, claim_token, \
                status, done_at, attempts, subscription) \
            SELECT new.event_id, new.event_type, new.aggregate_type, new.aggregate_id, new.tenant_id, \
                new.payload, new.headers, {time:new.created}, \
                CASE WHEN new.until IS NULL THEN {later:new.wait} ELSE {time:new.until} END, \
                new.owner, CASE WHEN new.owner IS NULL THEN NULL ELSE {now} END, new.token, new.status, \
                CASE WHEN new.status = 1 THEN {now} END, 0, new.subscription \
            FROM JSON_TABLE($1, '$[*]' COLUMNS (place FOR ORDINALITY, \
                event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$[0]', event_type VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', \
                aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[2]', aggregate_id VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[3]', \
                tenant_id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[4]', payload LONGTEXT CHARACTER SET utf8mb4 PATH '$[5]', \
                headers LONGTEXT CHARACTER SET utf8mb4 PATH '$[6]', created BIGINT PATH '$[7]', until BIGINT PATH '$[8]', \
                wait BIGINT PATH '$[9]', owner VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[10]', token BIGINT PATH '$[11]', \
                status SMALLINT PATH '$[12]', subscription VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[13]' \
            )) AS new ORDER BY new.place",
        // Not from a SELECT: with `innodb_autoinc_lock_mode = 1`, MariaDB's default, that locks the table's
        // counter until it ends, and all other writers wait with it.
        head: "\
            INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, \
                payload, headers, created_at, available_at, locked_by, locked_at, claim_token, \
                status, done_at, attempts, subscription) VALUES ",
        row: "\
            ($1, $2, $3, $4, $5, $6, $7, {time:$8}, COALESCE({time:$9}, {later:$10}), $11, \
                CASE WHEN locked_by IS NULL THEN NULL ELSE {now} END, $12, $13, \
                CASE WHEN status = 1 THEN {now} END, 0, $14)",
    },
    // By the whole unique key: a locking read by a part of it also locks the gap beside it, which new ids go into.
    existing: "\
        SELECT {int:entry.sequence}, entry.event_id, entry.subscription FROM JSON_TABLE($1, '$[*]' COLUMNS ( \
            event_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', \
            subscription VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX ({index:subscription}) \
            ON entry.event_id = ours.event_id AND entry.subscription_key = ours.subscription",
    // The snapshot of a transaction does not show a row that another has committed since.
    existing_lock: " /*M! LOCK IN SHARE MODE */ /*!80001 FOR SHARE OF entry */",
    claim: Locking::LockThenUpdate {
        lock: "\
            SELECT {columns}, {micros:available_at}, entry.locked_by \
            FROM {table} AS entry FORCE INDEX ({index:claim}) \
            WHERE status = {status} AND available_at <= {now} AND {between} \
                AND ($1 = 0 OR created_at <= {earlier:$1}) {pairs} \
            ORDER BY available_at, sequence LIMIT $1 FOR UPDATE SKIP LOCKED",
        update: "\
            UPDATE JSON_TABLE($1, '$[*]' COLUMNS ( \
                sequence BIGINT PATH '$[0]', token BIGINT PATH '$[1]', \
                owner VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[2]', \
                lease BIGINT PATH '$[3]')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) ON entry.sequence = ours.sequence \
            SET entry.available_at = {later:ours.lease}, entry.locked_by = ours.owner, \
                entry.locked_at = {now}, entry.claim_token = {next:entry.claim_token} \
            WHERE entry.status IN (0, 2) AND entry.claim_token = ours.token",
    },
    order: ORDER,
    renew: Locking::LockThenUpdate {
        lock: "\
            SELECT {int:entry.sequence} FROM JSON_TABLE($1, '$[*]' COLUMNS ( \
                sequence BIGINT PATH '$[0]', token BIGINT PATH '$[1]', \
                owner VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[2]')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
                ON entry.sequence = ours.sequence \
            WHERE entry.claim_token = ours.token AND entry.locked_by = ours.owner \
                AND entry.status IN (0, 2) FOR UPDATE /*!80001 OF entry */ SKIP LOCKED",
        update: "\
            UPDATE JSON_TABLE($1, '$[*]' COLUMNS (sequence BIGINT PATH '$[0]', \
                lease BIGINT PATH '$[1]', takeovers INT PATH '$[2]')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) ON entry.sequence = ours.sequence \
            SET entry.available_at = {later:ours.lease}, \
                entry.takeovers = GREATEST(entry.takeovers, ours.takeovers)",
    },
    settle: "\
        UPDATE JSON_TABLE($1, '$[*]' COLUMNS (sequence BIGINT PATH '$[0]', \
            token BIGINT PATH '$[1]', verdict INT PATH '$[2]', attempts INT PATH '$[3]', \
            wait BIGINT PATH '$[4]', error LONGTEXT CHARACTER SET utf8mb4 PATH '$[5]', \
            history LONGTEXT CHARACTER SET utf8mb4 PATH '$[6]')) AS settlement \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
            ON entry.sequence = settlement.sequence \
        SET entry.available_at = CASE WHEN settlement.verdict IN ({final_verdicts}) THEN entry.available_at \
                ELSE {later:settlement.wait} END, \
            entry.attempts = COALESCE(settlement.attempts, entry.attempts), \
            entry.done_at = CASE WHEN settlement.verdict IN ({final_verdicts}) THEN {now} ELSE entry.done_at END, \
            entry.last_error = COALESCE(settlement.error, entry.last_error), \
            entry.history = COALESCE(settlement.history, entry.history), \
            entry.takeovers = CASE WHEN settlement.verdict IN ({clearing_verdicts}) THEN 0 \
                WHEN settlement.verdict IN ({decrementing_verdicts}) AND entry.takeovers > 1 THEN entry.takeovers - 1 \
                ELSE entry.takeovers END, \
            entry.locked_by = NULL, entry.locked_at = NULL, \
            entry.status = {status_after} \
        WHERE entry.claim_token = settlement.token AND entry.locked_by = $2 AND entry.status IN (0, 2)",
    settle_delete: "\
        DELETE entry FROM JSON_TABLE($1, '$[*]' COLUMNS ( \
            sequence BIGINT PATH '$[0]', token BIGINT PATH '$[1]')) AS settlement \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
            ON entry.sequence = settlement.sequence \
        WHERE entry.claim_token = settlement.token AND entry.locked_by = $2 AND entry.status IN (0, 2)",
    settle_alike: None,
    skip_locked: SkipLocked::LockFirst(
        "SELECT {int:entry.sequence} FROM JSON_TABLE($1, '$[*]' COLUMNS ( \
            sequence BIGINT PATH '$')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
            ON entry.sequence = ours.sequence FOR UPDATE /*!80001 OF entry */ SKIP LOCKED",
    ),
    states: "\
        SELECT {int:entry.sequence}, {int:entry.claim_token}, entry.locked_by, \
            {int:entry.status} \
        FROM JSON_TABLE($1, '$[*]' COLUMNS (sequence BIGINT PATH '$')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
            ON entry.sequence = ours.sequence",
    purge: &[
        "SELECT {int:sequence}, {micros:done_at} FROM {table} {by:purge} WHERE status = {status} \
            AND done_at < {earlier:$1} AND done_at >= {from:$1} {only} ORDER BY done_at LIMIT $1",
        "SELECT {int:sequence}, {micros:created_at} FROM {table} {by:purge} WHERE status = {status} \
            AND done_at IS NULL AND created_at < {earlier:$1} AND created_at >= {from:$1} {only} LIMIT $1",
    ],
    replay_all: "\
        UPDATE JSON_TABLE($1, '$[*]' COLUMNS (sequence BIGINT PATH '$')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
            ON entry.sequence = ours.sequence \
        SET entry.attempts = 0, entry.takeovers = 0, entry.available_at = {now}, entry.done_at = NULL, \
            entry.last_error = NULL, entry.locked_by = NULL, entry.locked_at = NULL, \
            entry.claim_token = {next:entry.claim_token}, entry.status = 0 \
        WHERE entry.status = 3",
    delete: "\
        DELETE entry FROM JSON_TABLE($1, '$[*]' COLUMNS (sequence BIGINT PATH '$')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
            ON entry.sequence = ours.sequence \
        WHERE true {only}",
    fan_out: FAN_OUT,
    keys: KeySql {
        event: "(COALESCE(aggregate_type, '__GLOBAL__'), event_type, subscription)",
        aggregate: "(COALESCE(aggregate_type, '__GLOBAL__'), subscription)",
        condition: ("(", ")"),
        among: Among::Each,
    },
    by_index: Some(("FORCE INDEX (", ")")),
    in_memory: None,
    table_id: None,
    connection_limit: Some(
        "SELECT CAST(LEAST(@@max_connections, \
            COALESCE(NULLIF(@@max_user_connections, 0), @@max_connections)) AS SIGNED)",
    ),
    encrypted: Some(
        "SELECT CAST(variable_value <> '' AS SIGNED) FROM /*M! information_schema.session_status */ \
            /*!80000 performance_schema.session_status */ WHERE variable_name = 'Ssl_cipher'",
    ),
    notify: None,
    estimate_by_name: true,
    estimate: "\
        SELECT CAST(table_rows AS SIGNED) FROM information_schema.tables \
        WHERE table_name = $1 AND table_schema = COALESCE($2, DATABASE())",
    ended: &[
        "SELECT {int:COUNT(*)} FROM (SELECT 1 AS one FROM {table} FORCE INDEX ({index:purge}) \
            WHERE status = {status} AND done_at {side} {earlier:$1} {only} LIMIT 100000) AS capped",
        "SELECT {int:COUNT(*)} FROM (SELECT 1 AS one FROM {table} FORCE INDEX ({index:purge}) \
            WHERE status = {status} AND done_at IS NULL AND created_at {side} {earlier:$1} \
            {only} LIMIT 100000) AS capped",
    ],
    rights: Some(Rights {
        // The host is the part after the last `@`.
        names: "\
            SELECT CONCAT(QUOTE(LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - 1 \
                    - CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))), \
                    '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1))), \
                CONCAT('`', place, '`.`{bare}`'), '', CONCAT('`', place, '`.`outbox_schema`'), 1 \
            FROM (SELECT REPLACE(COALESCE(NULLIF('{bare_schema}', ''), DATABASE()), '`', '``') AS place) AS here",
        sequence: None,
        lock_requires_update: false,
        conceals_tables: true,
    }),
    columns: "\
        SELECT column_name FROM information_schema.columns WHERE table_name = '{bare}' \
            AND table_schema = COALESCE(NULLIF('{bare_schema}', ''), DATABASE())",
    indexes: "\
        SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_name = '{bare}' \
            AND table_schema = COALESCE(NULLIF('{bare_schema}', ''), DATABASE())",
    migrations: Migrations {
        steps: &[
            Step { sql: include_str!("schema/mysql/0001_create.sql"), min_code: 1 },
            Step { sql: include_str!("schema/mysql/0002_subscription.sql"), min_code: 1 },
            Step { sql: include_str!("schema/mysql/0003_subscriptions.sql"), min_code: 3 },
        ],
        origin: Some(Origin { sql: include_str!("schema/mysql/adopt_java.sql") }),
        versions: "CREATE TABLE IF NOT EXISTS {versions} (table_name VARCHAR(63) PRIMARY KEY, \
            version INT NOT NULL, min_code INT NOT NULL DEFAULT 1)",
        add_min_code: "ALTER TABLE {versions} ADD COLUMN min_code INT NOT NULL DEFAULT 1",
        // The application may have switched it off; then nothing would be committed.
        setup: "SET SESSION autocommit = 1",
        lock_timeout: "SET SESSION lock_wait_timeout = 1",
        transactional: false,
    },
    migration_lock: Some(MigrationLock {
        take: concat!("SELECT CAST(GET_LOCK(", migration_lock_name!(), ", {seconds}) AS SIGNED)"),
        release: Some(concat!("DO RELEASE_LOCK(", migration_lock_name!(), ")")),
        holder: concat!(
            "SELECT CAST(IS_USED_LOCK(",
            migration_lock_name!(),
            ") AS SIGNED), ",
            migration_lock_name!()
        ),
    }),
    relay_lock: relay_lock::MYSQL,
    index_in_schema: false,
    transactions: Some(
        // This is the only time in the server's own time zone.
        "SELECT {int:COUNT(*)}, {int:TIMESTAMPDIFF(MICROSECOND, MIN(trx_started), \
            CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM'))} \
         FROM information_schema.innodb_trx WHERE trx_started < \
            TIMESTAMPADD(MICROSECOND, -$1, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM'))",
    ),
    // Without the privilege, the query itself fails.
    transactions_visible: "SELECT 1",
    checks: &[
        writable("SELECT CAST(@@read_only AS SIGNED)"),
        // InnoDB refuses READ COMMITTED then, the isolation level of the store's own transactions. A variable that
        // a server does not have is no row; each server skips the comment of the other.
        Check {
            subject: "server",
            test: "\
                SELECT CAST(COUNT(*) = 3 AS SIGNED) FROM /*M! information_schema.session_variables */ \
                    /*!80000 performance_schema.session_variables */ \
                WHERE (variable_name, variable_value) IN \
                    (('binlog_format', 'STATEMENT'), ('log_bin', 'ON'), ('sql_log_bin', 'ON'))",
            level: FindingLevel::Error,
            ok: "",
            problem: "the binary log holds statements (`binlog_format = STATEMENT`): every claim and every \
                settlement is refused with error 1665, so events are written and never delivered",
            remedy: "set `binlog_format` to `ROW` or `MIXED` (`SET GLOBAL binlog_format = 'ROW'`, and in the \
                server's configuration)",
            at_start: true,
        },
        Check {
            subject: "server",
            test: "SELECT CAST(@@innodb_autoinc_lock_mode = 0 AS SIGNED)",
            level: FindingLevel::Warning,
            ok: "",
            problem: "every INSERT locks its table's counter until it ends: a writer that waits for an event \
                id stops all others",
            remedy: "set `innodb_autoinc_lock_mode` to 1 or 2",
            at_start: true,
        },
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sqlstate_can_have_several_meanings() {
        let kind = |message| kind(1064, "42000", message);
        assert_eq!(
            kind("SELECT command denied to user 'a'@'b' for table `c`"),
            DatabaseErrorKind::Rights
        );
        assert_eq!(kind("Unknown database 'shop'"), DatabaseErrorKind::NoDatabase);
        assert_eq!(kind("You have an error in your SQL syntax"), DatabaseErrorKind::Other);
    }

    #[test]
    fn a_lock_timeout_is_not_about_data() {
        let general = |number| kind(number, "HY000", "");
        assert_eq!(general(1205), DatabaseErrorKind::LockTimeout);
        assert_eq!(general(3024), DatabaseErrorKind::Cancelled);
        assert_eq!(general(1366), DatabaseErrorKind::Data);
        assert_eq!(kind(1213, "40001", ""), DatabaseErrorKind::Contention);
        assert_eq!(kind(1927, "70100", ""), DatabaseErrorKind::Unreachable);
    }
}
