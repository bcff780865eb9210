//! Fault injection: processes are killed and stopped, servers restarted, connections closed, clocks stepped,
//! disks full.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and documents itself by its name"
)]

mod binary_log;
mod change_stream;
mod database;
mod exactly_once;
mod exhausted_pool;
mod fan_out;
mod full_disk;
mod half_open;
mod invariants;
mod ledger;
mod order;
mod outage;
mod poison;
mod process;
mod restarts;
mod schedule;
mod single_active;
mod testbed;

use tokio::sync::{Mutex, MutexGuard};

/// Waits until no other test of this binary runs: each of them uses the whole machine.
async fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::const_new(());
    EXCLUSIVE.lock().await
}
