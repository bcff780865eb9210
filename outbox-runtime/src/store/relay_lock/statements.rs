//! The statements of the relay lock, for each database.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use super::RelayLock;

/// The key of the lock. Such locks belong to a database; in it, the number of a table does not depend on the search
/// path.
#[cfg(feature = "postgres")]
macro_rules! postgres_key {
    () => {
        "hashtextextended('outbox:relay:' || '{table}'::regclass::oid, 0)"
    };
}

#[cfg(feature = "postgres")]
pub(in crate::store) const POSTGRES: RelayLock = RelayLock::Session {
    // The time-out of idle sessions exists since version 14.
    set_up: "SELECT set_config(name, '{millis}', false) FROM pg_settings \
            WHERE name IN ('idle_session_timeout', 'statement_timeout'); \
        SET default_transaction_isolation = 'read committed'",
    take: concat!("SELECT pg_try_advisory_lock(", postgres_key!(), ")::int::bigint"),
    confirm: concat!(
        "SELECT (SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
            AND pid = pg_backend_pid() AND (classid::bigint << 32 | objid::bigint) = ",
        postgres_key!(),
        ") FROM pg_sleep({beat})"
    ),
    release: concat!("SELECT pg_advisory_unlock(", postgres_key!(), ")::int::bigint"),
    id: "SELECT pg_backend_pid()::bigint",
};

/// The name of the lock. Names are server-wide and have at most 64 characters. The server decides whether names of
/// tables are case-sensitive.
#[cfg(feature = "mysql")]
macro_rules! mysql_name {
    () => {
        "CONCAT('outbox:relay:', LEFT(SHA2(IF(@@lower_case_table_names = 0, \
            CONCAT(COALESCE(NULLIF('{bare_schema}', ''), DATABASE(), ''), '.{bare}'), \
            LOWER(CONCAT(COALESCE(NULLIF('{bare_schema}', ''), DATABASE(), ''), '.{bare}'))), 256), 40))"
    };
}

#[cfg(feature = "mysql")]
pub(in crate::store) const MYSQL: RelayLock = RelayLock::Session {
    // Each server skips the comment of the other.
    set_up: "SET SESSION autocommit = 1, wait_timeout = {seconds} \
        /*M! , max_statement_time = {seconds} */ /*!80000 , max_execution_time = {millis} */",
    take: concat!("SELECT CAST(GET_LOCK(", mysql_name!(), ", 0) AS SIGNED)"),
    confirm: concat!(
        "SELECT CAST(SLEEP({beat}) = 0 AND COALESCE(IS_USED_LOCK(",
        mysql_name!(),
        ") = CONNECTION_ID(), 0) AS SIGNED)"
    ),
    release: concat!("SELECT CAST(RELEASE_LOCK(", mysql_name!(), ") AS SIGNED)"),
    id: "SELECT CAST(CONNECTION_ID() AS SIGNED)",
};

#[cfg(feature = "sqlite")]
pub(in crate::store) const SQLITE: RelayLock = RelayLock::Row {
    create: "CREATE TABLE IF NOT EXISTS {relay} (table_name TEXT PRIMARY KEY, owner TEXT NOT NULL, \
        expires_at INTEGER NOT NULL)",
    is_taken: "SELECT COUNT(*) FROM {relay} \
        WHERE table_name = '{bare}' AND owner <> $1 AND expires_at > {now}",
    take: "INSERT INTO {relay} (table_name, owner, expires_at) VALUES ('{bare}', $1, {now} + $2) \
        ON CONFLICT (table_name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at \
        WHERE owner = excluded.owner OR expires_at <= {now} RETURNING 1",
    release: "UPDATE {relay} SET expires_at = 0 WHERE table_name = '{bare}' AND owner = $1 RETURNING 1",
};
