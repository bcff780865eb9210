//! What a process costs that has nothing to do.

use outbox_tests::{Fresh, Node, TestDatabase, on_every_database};
use sqlx::ConnectOptions;

/// Ten seconds, after it has backed off: at most one statement in a second.
async fn an_idle_process_asks_once_a_second_at_most<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let options = [("poll_ms", 5_000), ("events", 3), ("count_ms", 10_000)];
    let mut node = Node::start(env!("CARGO_BIN_EXE_node"), DB::SHORT_NAME, &url, &options);
    node.says("ready");
    node.says("written");
    let statements: u64 = node.tells().parse().unwrap();
    println!("{}: {statements} statements in 10 s", DB::SHORT_NAME);
    // Behind a connection pooler each has a transaction of its own for its settings.
    let for_each = if db.is_pooled().await { 3 } else { 1 };
    assert!((1..=10 * for_each).contains(&statements), "{statements} statements in 10 s");
    assert_eq!(node.stop().len(), 3);
}

on_every_database!(an_idle_process_asks_once_a_second_at_most);
