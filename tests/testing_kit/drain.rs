//! Delivering due events one after another.

use std::time::Duration;

use outbox::testing::assert_published;
use outbox::{EventEnvelope, Unroutable, VerdictKind};

use crate::shop::{Answer, OrderEvent, PAID, Printer, SHIPPED, commit, parcels, shop, with_event};

#[tokio::test]
async fn nothing_is_delivered_before_drain() {
    let printer = Printer::default();
    let outbox = with_event(&printer, PAID).await;
    // A poller would have claimed the event during these queries.
    for _ in 0..100 {
        assert_published!(outbox.published().await, [PAID]);
    }
    assert!(printer.printed().is_empty());
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(printer.printed(), ["paid 7, 0 failed"]);
    assert_eq!(outbox.drain().await.events().len(), 0);
}

#[tokio::test]
async fn events_are_delivered_in_the_order_of_writing() {
    let printer = Printer::default();
    let outbox = shop(&printer).start().await;
    let expected: Vec<String> = (0..1_200).map(|id| format!("placed {id} for 1")).collect();
    for some in [0..700, 700..1_200] {
        let mut tx = outbox.begin().await.unwrap();
        tx.write_all(some.map(|order_id| OrderEvent::Placed { order_id, total_cents: 1 })).unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(outbox.drain().await.delivered(), 1_200);
    assert_eq!(printer.printed(), expected);
}

#[tokio::test]
async fn events_written_by_listeners_are_delivered() {
    let printer = Printer::default();
    let outbox = with_event(&printer, SHIPPED).await;
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 2, "{report}");
    assert_eq!(printer.printed(), ["shipped 7", "paid 7, 0 failed"]);
    assert_eq!(parcels(&outbox).await, 1);
    assert_published!(outbox.published().await, [SHIPPED, PAID]);
}

#[tokio::test]
async fn the_report_lists_the_result_of_each_event() {
    let hour = Duration::from_secs(3_600);
    let answers = [Answer::Fail, Answer::Permanent, Answer::Later(hour), Answer::Panic];
    let outbox = shop(&Printer::with(answers)).start().await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([PAID, PAID, PAID, PAID, PAID, OrderEvent::Lost]).unwrap();
    tx.commit().await.unwrap();

    let report = outbox.drain().await;
    assert_eq!((report.delivered(), report.retried(), report.dead()), (1, 2, 1), "{report}");
    assert_eq!((report.deferred(), report.unroutable()), (1, 1), "{report}");
    let [first, second, ..] = report.events() else { panic!("{report}") };
    assert_eq!(
        (first.result, first.error.as_deref()),
        (VerdictKind::Retry.into(), Some("the printer jams"))
    );
    assert_eq!((second.event_type(), second.result), ("Paid", VerdictKind::Dead.into()));
    let mut lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
    for (line, reported) in lines.iter_mut().zip(report.events()) {
        *line = line.replace(reported.event_id().as_str(), "ID");
        // Without the number of the line.
        if let Some((start, end)) = line.clone().split_once("shop.rs:") {
            *line = format!("{start}shop.rs{}", end.trim_start_matches(char::is_numeric));
        }
    }
    assert_eq!(
        lines,
        [
            "1. Order/Paid ID: to be retried: the printer jams",
            "2. Order/Paid ID: dead: the printer burns",
            "3. Order/Paid ID: deferred",
            "4. Order/Paid ID: to be retried: the listener panicked at tests/testing_kit/shop.rs: \
             the printer explodes",
            "5. Order/Paid ID: delivered",
            "6. Order/Lost ID: unroutable",
        ]
    );
    assert_eq!(outbox.drain().await.unroutable(), 1);
}

#[tokio::test]
async fn events_of_a_lost_owner_are_delivered() {
    let printer = Printer::default();
    let outbox = with_event(&printer, PAID).await;
    let claimed = "UPDATE outbox_event SET locked_by = 'lost', claim_token = 1, takeovers = 1";
    sqlx::query(claimed).execute(outbox.pool()).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(printer.printed().len(), 1);
}

#[tokio::test]
async fn unroutable_events_become_dead_if_configured() {
    let shop = shop(&Printer::default()).configure(|outbox| outbox.unroutable(Unroutable::Dead));
    let outbox = shop.start().await;
    commit(&outbox, OrderEvent::Lost).await.unwrap();
    let report = outbox.drain().await;
    assert_eq!((report.dead(), report.unroutable()), (1, 0), "{report}");
    assert_eq!(
        report.events()[0].error.as_deref(),
        Some("no listener handles `Lost` of aggregate `Order`")
    );
}

#[tokio::test]
async fn an_event_that_needs_no_listener_is_published_and_settled() {
    for unroutable in [Unroutable::Leave, Unroutable::Dead] {
        let printer = Printer::default();
        let shop = shop(&printer).configure(move |outbox| outbox.unroutable(unroutable));
        let outbox = shop.start().await;
        let mut tx = outbox.begin().await.unwrap();
        tx.write_all([OrderEvent::Archived, PAID]).unwrap();
        assert_published!(tx, OrderEvent::Archived);
        tx.commit().await.unwrap();
        assert_published!(outbox.published().await, [OrderEvent::Archived, PAID]);
        let pending = "SELECT event_type FROM outbox_event WHERE status = 0";
        let pending: Vec<String> =
            sqlx::query_scalar(pending).fetch_all(outbox.pool()).await.unwrap();
        assert_eq!(pending, ["Paid"]);
        let report = outbox.drain().await;
        let results = (report.delivered(), report.unroutable(), report.events().len());
        assert_eq!(results, (1, 0, 1), "{report}");

        // A row that another program has inserted.
        let pending = "UPDATE outbox_event SET status = 0, done_at = NULL";
        let archived = format!("{pending} WHERE event_type = 'Archived'");
        sqlx::query(sqlx::AssertSqlSafe(archived)).execute(outbox.pool()).await.unwrap();
        outbox.pause().unwrap();
        assert_eq!(outbox.drain().await.to_string(), "nothing was due", "it is not unroutable");
        outbox.resume().unwrap();
        assert_eq!(outbox.drain().await.to_string(), "nothing was due");
        let done = "SELECT COUNT(*) FROM outbox_event WHERE status = 1";
        let done: i64 = sqlx::query_scalar(done).fetch_one(outbox.pool()).await.unwrap();
        assert_eq!((done, printer.printed().len()), (2, 1));
    }
}

#[tokio::test]
async fn the_application_can_drain_pause_and_shut_down() {
    let printer = Printer::default();
    let outbox = with_event(&printer, PAID).await;
    let handle: outbox::Outbox<sqlx::Sqlite> = outbox.clone();
    handle.drained().await.unwrap();
    assert_eq!(printer.printed().len(), 1);
    handle.pause().unwrap();
    commit(&outbox, PAID).await.unwrap();
    assert_eq!(outbox.drain().await.to_string(), "nothing was due");
    handle.resume().unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
    handle.shutdown().await.unwrap();
    commit(&outbox, PAID).await.unwrap();
    assert_published!(outbox.published().await, [PAID, PAID, PAID]);
}

#[tokio::test]
#[should_panic(expected = "`drain` waits for a transaction that is still open")]
async fn drain_panics_while_a_transaction_is_open() {
    let outbox = shop(&Printer::default()).start().await;
    let _tx = outbox.begin().await.unwrap();
    let _ = outbox.drain().await;
}

#[tokio::test]
async fn a_second_transaction_times_out() {
    let outbox = shop(&Printer::default()).start().await;
    let _tx = outbox.begin().await.unwrap();
    let error = outbox.begin().await.unwrap_err();
    assert!(matches!(error, outbox::Error::WriterLockTimeout { .. }), "{error:?}");
}

#[tokio::test]
async fn published_waits_for_a_dropped_transaction() {
    let outbox = shop(&Printer::default()).start().await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(EventEnvelope::json("Undone", "{}").unwrap()).unwrap();
    drop(tx);
    assert_published!(outbox.published().await, []);
}

#[tokio::test]
#[should_panic(expected = "`State<testing_kit::shop::Printer>`, which was not given")]
async fn a_failed_start_panics_with_the_reason() {
    let _ = outbox::testing::outbox().start().await;
}
