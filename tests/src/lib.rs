//! A fresh database for every test, on each of the three.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

pub mod arbitrary;
mod calls;
mod cost;
mod database;
mod ledger;
mod log;
mod lost_transaction;
mod node;
mod poll_times;
mod proxy;
mod recorder;
mod spans;
mod table;

pub use calls::{Call, Heard, eventually};
pub use cost::{Cost, Costs};
pub use database::{Fresh, TestDatabase, given_url};
pub use ledger::{IN_TX, Noted, PLAIN, uptime};
pub use log::Log;
pub use lost_transaction::Losable;
pub use node::Node;
pub use poll_times::poll_times;
pub use proxy::Proxy;
pub use recorder::Recorder;
pub use spans::Spans;
pub use table::{Row, Rows, event, lease, numbered};

/// Runs generic tests on every database that has a server, and so several writers at once.
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
