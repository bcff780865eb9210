//! The test harness: a fresh database for every test, on each of the three databases.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

pub mod arbitrary;
mod call_log;
mod claim_keys;
mod cost;
mod database;
mod eventually;
mod formatted_log;
mod java_table;
mod ledger;
mod log;
mod lost_transaction;
mod node;
mod poll_times;
mod proxy;
mod round;
mod spans;
mod table;
mod version_one;
mod writer_probe;

pub use call_log::{Call, CallLog};
pub use claim_keys::{every_unnamed, unnamed};
pub use cost::{Cost, MeasureCost};
pub use database::{Fresh, TestDatabase, given_url};
pub use eventually::eventually;
pub use formatted_log::{FormattedLog, field_names};
pub use java_table::JavaTable;
pub use ledger::{AUDIT, BILLING, IN_TX, LedgerEntry, PLAIN, uptime};
pub use log::Log;
pub use lost_transaction::LoseTransaction;
pub use node::Node;
pub use poll_times::poll_times;
pub use proxy::Proxy;
pub use round::{Round, RoundClaims};
pub use spans::Spans;
pub use table::{Row, TestTable, event, lease, numbered};
pub use version_one::VersionOne;
pub use writer_probe::{PROBE_OWNER, WriterProbe};

/// Runs generic tests on every database that has a server, and therefore concurrent writers.
#[macro_export]
macro_rules! on_every_server {
    ($($test:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(db) = $crate::Fresh::<sqlx::Postgres>::new().await {
                    super::$test(db).await;
                }
            })*
        }

        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(db) = $crate::Fresh::<sqlx::MySql>::new().await {
                    super::$test(db).await;
                }
            })*
        }
    };
}

/// Runs generic tests `async fn test<DB: TestDatabase>(db: Fresh<DB>)` on every database.
#[macro_export]
macro_rules! on_every_database {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::Fresh::<sqlx::Sqlite>::new().await.expect("SQLite")).await;
            })*
        }

        $crate::on_every_server!($($test),*);
    };
}

/// Runs generic tests on every database like [`on_every_database`], but without a second thread, so that a log of
/// the thread sees every line.
#[macro_export]
macro_rules! in_one_thread_on_every_database {
    ($($test:ident),* $(,)?) => {
        $crate::in_one_thread!(sqlite, Sqlite, $($test),*);
        $crate::in_one_thread!(postgres, Postgres, $($test),*);
        $crate::in_one_thread!(mysql, MySql, $($test),*);
    };
}

/// Runs generic tests on one database and in one thread.
#[macro_export]
macro_rules! in_one_thread {
    ($module:ident, $database:ident, $($test:ident),* $(,)?) => {
        mod $module {
            $(#[tokio::test]
            async fn $test() {
                if let Some(db) = $crate::Fresh::<sqlx::$database>::new().await {
                    super::$test(db).await;
                }
            })*
        }
    };
}
