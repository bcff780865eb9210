//! The time of a test, which is kept with the connection: the store writes it there before each unit of work, and the
//! statements read it from there.
//!
//! It is set for each unit of work, because a pool may have any number of connections and they may be new. On
//! PostgreSQL it is set for the transaction of that work, so that a connection pooler cannot separate them.

use crate::store::dialect::Dialect;
#[cfg(feature = "mysql")]
use crate::store::mysql;
#[cfg(feature = "postgres")]
use crate::store::postgres;
#[cfg(feature = "sqlite")]
use crate::store::sqlite;

/// How a database keeps the time of a test.
#[derive(Debug)]
pub struct TestClock {
    /// Reads the time.
    pub(in crate::store) dialect: Dialect,
    /// Writes the time. Takes it in microseconds since 1970.
    pub(super) set: &'static str,
}

/// In a table that belongs to the connection, so that no schema shows it. If it was created in a transaction that was
/// rolled back, it is created again.
#[cfg(feature = "sqlite")]
pub(in crate::store) const SQLITE: TestClock = TestClock {
    dialect: Dialect {
        now: "(SELECT micros FROM temp.outbox_clock)",
        later: ("((SELECT micros FROM temp.outbox_clock) + ", ")"),
        earlier: ("((SELECT micros FROM temp.outbox_clock) - ", ")"),
        ..sqlite::DIALECT
    },
    set: "\
        CREATE TEMP TABLE IF NOT EXISTS outbox_clock (id INTEGER PRIMARY KEY, micros INTEGER NOT NULL); \
        INSERT OR REPLACE INTO temp.outbox_clock VALUES (1, ?)",
};

/// The time of a test on PostgreSQL. In two parts, for the reason of `Dialect::time` there.
#[cfg(feature = "postgres")]
macro_rules! postgres_now {
    () => {
        "(timestamptz 'epoch' \
            + (current_setting('outbox.now')::bigint / 1000000) * interval '1 second' \
            + (current_setting('outbox.now')::bigint % 1000000) * interval '1 microsecond')"
    };
}

/// In a setting of the transaction.
#[cfg(feature = "postgres")]
pub(in crate::store) const POSTGRES: TestClock = TestClock {
    dialect: Dialect {
        now: postgres_now!(),
        later: (concat!("(", postgres_now!(), " + "), " * interval '1 microsecond')"),
        earlier: (concat!("(", postgres_now!(), " - "), " * interval '1 microsecond')"),
        ..postgres::DIALECT
    },
    set: "SELECT set_config('outbox.now', ($1::bigint)::text, true)",
};

/// The time of a test on MySQL. With a cast, because MySQL decides the type of a variable when it prepares a
/// statement, which may be before the variable is set.
#[cfg(feature = "mysql")]
macro_rules! mysql_now {
    () => {
        "TIMESTAMPADD(MICROSECOND, CAST(@outbox_now AS SIGNED), TIMESTAMP'1970-01-01 00:00:00.000000')"
    };
}

/// In a variable of the session.
#[cfg(feature = "mysql")]
pub(in crate::store) const MYSQL: TestClock = TestClock {
    dialect: Dialect {
        now: mysql_now!(),
        later: ("TIMESTAMPADD(MICROSECOND, ", concat!(", ", mysql_now!(), ")")),
        earlier: ("TIMESTAMPADD(MICROSECOND, -", concat!(", ", mysql_now!(), ")")),
        ..mysql::DIALECT
    },
    set: "SET @outbox_now = ?",
};
