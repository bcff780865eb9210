//! The metrics, spans and log lines of several outboxes in one process can be told apart.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use outbox::listener::ListenerRegistry;
use outbox::metrics::{Metric, MetricKind, MetricsFacade};
use outbox::{Builder, Outbox};
use outbox_tests::{
    CallLog, FormattedLog, Fresh, Spans, TestDatabase, event, eventually,
    in_one_thread_on_every_database,
};
use sqlx::{Pool, Sqlite};
use tracing::Level;

use crate::harness::{HOUR, insert_due, listen, recording_listeners, write};

/// Installs a recorder for this process.
fn recorder() -> PrometheusHandle {
    let builder = PrometheusBuilder::new();
    let builder = builder
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), Metric::SECONDS_BUCKETS)
        .and_then(|builder| {
            let rows = Matcher::Suffix("_rows".to_owned());
            builder.set_buckets_for_metric(rows, Metric::ROWS_BUCKETS)
        });
    builder.unwrap().install_recorder().unwrap()
}

fn measured<DB: TestDatabase>(
    pool: &Pool<DB>,
    name: &str,
    table: &str,
    calls: &CallLog,
) -> Builder<DB> {
    let dead = listen(recording_listeners(calls), "Dead", |_| async {
        outbox::ListenerResult::<()>::Err(outbox::ListenerError::permanent("closed"))
    });
    let builder = outbox::builder(pool).name(name).table(table).listeners(dead);
    builder.metrics(MetricsFacade::new()).poll_interval(HOUR)
}

/// Writes events through the hot and the cold queue, of which one becomes dead.
async fn deliver<DB: TestDatabase>(db: &Fresh<DB>, outbox: &Outbox<DB>, events: usize) {
    for _ in 0..events {
        write(outbox, &[event("A")]).await;
    }
    write(outbox, &[event("Dead")]).await;
    insert_due(db, outbox, &["B"]).await;
    outbox.drained().await.unwrap();
}

/// Two tables of one database, and tables of the same name in two others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_series_of_every_outbox_is_its_own() {
    let handle = recorder();
    let (one, other) =
        (Fresh::<Sqlite>::new().await.unwrap(), Fresh::<Sqlite>::new().await.unwrap());
    let calls = CallLog::default();
    let outboxes = outbox::group((
        measured(&one.pool, "org", "org_outbox", &calls),
        measured(&one.pool, "hrm", "hrm_outbox", &calls),
        measured(&one.pool, "orders", "outbox_event", &calls),
        measured(&other.pool, "inventory", "outbox_event", &calls),
    ))
    .start()
    .await
    .unwrap();
    let (org, hrm, orders, inventory) = outboxes.handles();
    deliver(&one, org, 1).await;
    deliver(&one, hrm, 2).await;
    deliver(&one, orders, 3).await;
    deliver(&other, inventory, 4).await;
    let expected = [
        ("org", "org_outbox", 1),
        ("hrm", "hrm_outbox", 2),
        ("orders", "outbox_event", 3),
        ("inventory", "outbox_event", 4),
    ];
    for metric in Metric::ALL {
        let series = metric.series("outbox");
        for (name, table, _) in expected {
            let labels = format!("{{table=\"{table}\",outbox=\"{name}\"");
            let series = match metric.kind {
                MetricKind::Histogram => format!("{series}_count"),
                _ => series.clone(),
            };
            let is_there = async || {
                let rendered = handle.render();
                rendered.lines().any(|line| line.starts_with(&format!("{series}{labels}")))
            };
            eventually(&format!("{series}{labels}"), is_there).await;
        }
    }
    let rendered = handle.render();
    for (name, table, events) in expected {
        let labels = format!("table=\"{table}\",outbox=\"{name}\"");
        let unnamed = "subscription=\"\"";
        for line in [
            format!("outbox_enqueue_total{{{labels},topic=\"A\"}} {events}"),
            format!(
                "outbox_dispatch_total{{{labels},topic=\"A\",{unnamed},result=\"success\"}} {events}"
            ),
            format!("outbox_dispatch_total{{{labels},topic=\"B\",{unnamed},result=\"success\"}} 1"),
            format!("outbox_dead_total{{{labels},topic=\"Dead\",{unnamed}}} 1"),
        ] {
            assert!(rendered.lines().any(|found| found == line), "{line} in {rendered}");
        }
    }
    outboxes.shutdown().await.unwrap();
}

async fn log_lines_and_spans_name_the_outbox<DB: TestDatabase>(db: Fresh<DB>) {
    let calls = CallLog::default();
    let builder = |registry: ListenerRegistry| {
        let builder = outbox::builder(&db.pool).name("orders").table("orders_outbox");
        builder.listeners(registry).poll_interval(HOUR)
    };
    let (log, capture) = FormattedLog::capture(Level::DEBUG);
    let outbox = builder(recording_listeners(&calls)).start().await.unwrap();
    let lines = log.with("the outbox has started");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("outbox=\"orders\" table=orders_outbox mode=Full"), "{line}");
    let mut tx = outbox.begin().await.unwrap();
    tx.write(event("A")).unwrap();
    drop(tx);
    let dropped = || log.with("a transaction was dropped with events");
    eventually("it is logged", async || dropped().len() == 1).await;
    assert!(dropped()[0].contains("outbox=\"orders\" table=orders_outbox"), "{:?}", dropped());
    drop(capture);

    let spans = Spans::install();
    write(&outbox, &[event("A")]).await;
    insert_due(&db, &outbox, &["B"]).await;
    outbox.drained().await.unwrap();
    for span in ["outbox.write", "outbox.claim"] {
        let text = format!("{span} outbox=orders table=orders_outbox");
        assert!(!spans.with(&text).is_empty(), "{text}");
    }
    outbox.shutdown().await.unwrap();
}

in_one_thread_on_every_database!(log_lines_and_spans_name_the_outbox);
