//! The number of statements of an idle node.

use outbox_tests::{Fresh, Node, TestDatabase, on_every_database};
use sqlx::ConnectOptions;

/// How long is measured: twice the longest interval at which an idle node does something.
const SECONDS: u64 = 30;

/// Measured after the poller has backed off.
async fn an_idle_node_runs_at_most_one_statement_per_second<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let options = [("poll_ms", 5_000), ("events", 3), ("count_ms", SECONDS * 1_000)];
    let mut node = Node::start(env!("CARGO_BIN_EXE_node"), DB::SHORT_NAME, &url, &options);
    node.expect_line("ready");
    node.expect_line("written");
    let statements: u64 = node.read_line().parse().unwrap();
    println!("{}: {statements} statements in {SECONDS} s", DB::SHORT_NAME);
    // Behind a connection pooler each statement has its own transaction for its settings.
    let per_second = if db.is_pooled().await { 3 } else { 1 };
    assert!(
        (1..=SECONDS * per_second).contains(&statements),
        "{statements} statements in {SECONDS} s"
    );
    assert_eq!(node.stop().len(), 3);
}

on_every_database!(an_idle_node_runs_at_most_one_statement_per_second);
