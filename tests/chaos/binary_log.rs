//! A server with a statement-based binary log: InnoDB refuses all writes of a relay.

use std::sync::Arc;
use std::time::Duration;

use outbox::admin::{DoctorOptions, FindingLevel};
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_runtime::store::StoreOf;
use outbox_servers::Server;
use outbox_tests::{CallLog, Fresh, Log, TestTable, event, eventually, given_url};
use sqlx::MySql;
use tokio::sync::Semaphore;

const REMEDY: &str = "set `binlog_format` to `ROW` or `MIXED`";

/// Single-threaded, because the log is captured per thread.
#[tokio::test]
async fn a_statement_based_binary_log_is_reported_and_loses_no_event() {
    let _exclusive = crate::exclusive().await;
    if given_url::<MySql>().is_none() {
        return;
    }
    let arguments = ["--log-bin=binary", "--server-id=1", "--binlog-format=STATEMENT"];
    let server = Server::for_mysql(&arguments).expect("a server");
    let db = Fresh::<MySql>::at(server.url()).await;
    let (log, _log) = Log::capture();
    let received = CallLog::default();
    let recorded = received.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        async {}
    });
    let semaphore = Arc::new(Semaphore::new(0));
    let waiting_semaphore = Arc::clone(&semaphore);
    let registry = registry.register_for("Order", "Slow", move |_: Delivery| {
        let waiting_semaphore = Arc::clone(&waiting_semaphore);
        async move { drop(waiting_semaphore.acquire().await) }
    });
    let outbox = outbox::builder(db.pool.clone())
        .listeners(registry)
        .poll_interval(Duration::from_millis(100))
        .lease(Duration::from_secs(1))
        .start()
        .await
        .unwrap();
    assert_eq!(log.with(REMEDY).len(), 1, "it is logged at the start");
    let findings = outbox.store().doctor(&DoctorOptions::default()).await.unwrap();
    let finding = findings.iter().find(|finding| finding.level == FindingLevel::Error);
    let finding = finding.expect("a finding");
    assert!(finding.remedy.contains(REMEDY), "{finding:?}");

    // One event cannot be claimed; the other takes the hot path and cannot be recorded.
    let refused = |doing: &str| {
        let lines = log.with("BINLOG_FORMAT = STATEMENT");
        lines.iter().any(|line| line.contains(doing))
    };
    (&db, outbox.store()).insert_due(&[event("A")]).await;
    eventually("claims are refused", async || refused("while claiming events")).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(event("A")).unwrap();
    tx.commit().await.unwrap();
    received.wait_for(1).await;
    eventually("results are refused", async || refused("while settling events")).await;
    let waiting = "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)";
    assert_eq!((db.number(waiting).await, received.count()), (2, 1));

    // As the remedy says; the process is not restarted.
    db.run("SET GLOBAL binlog_format = 'ROW'").await;
    received.wait_for(2).await;
    eventually("both are recorded", async || db.number(waiting).await == 0).await;
    received.assert_each_once(2);
    // No lease expires because its renewal uses a session from before the change.
    let renewals = |log: &Log| log.with("while renewing leases").len();
    let before = renewals(&log);
    let mut tx = outbox.begin().await.unwrap();
    tx.write(event("Slow")).unwrap();
    tx.commit().await.unwrap();
    let until = "SELECT CAST(UNIX_TIMESTAMP(MAX(available_at)) * 1000 AS SIGNED) FROM outbox_event \
        WHERE event_type = 'Slow' AND locked_by IS NOT NULL";
    let first = db.number(until).await;
    eventually("its lease is renewed", async || db.number(until).await > first).await;
    assert_eq!(renewals(&log), before);
    semaphore.add_permits(1);
    eventually("it is recorded", async || db.number(waiting).await == 0).await;
    // Old connections of the application may still have the old setting; a new one has the right one.
    let reconnected = db.existing(db.name()).await;
    let findings = reconnected.store().await.doctor(&DoctorOptions::default()).await.unwrap();
    assert!(findings.iter().all(|finding| finding.level == FindingLevel::Ok), "{findings:?}");
    outbox.shutdown().await.unwrap();
}
