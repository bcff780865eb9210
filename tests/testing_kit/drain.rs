//! Delivering due events one after another.

use std::time::Duration;

use outbox::EventEnvelope;
use outbox::admin::EventQuery;
use outbox::config::Unroutable;
use outbox::event::Status;
use outbox::metrics::VerdictKind;
use outbox::testing::assert_published;

use crate::shop::{
    Answer, OrderEvent, PAID, Printer, SHIPPED, Setup, commit, on_every_setup, parcels, run,
};

async fn nothing_is_delivered_before_drain(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, PAID).await;
    // A poller would have claimed the event during these queries.
    for _ in 0..100 {
        assert_published!(outbox.published().await, [PAID]);
    }
    assert!(printer.printed().is_empty());
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(printer.printed(), ["paid 7, 0 failed"]);
    assert_eq!(outbox.drain().await.events().len(), 0);
}

async fn events_are_delivered_in_the_order_of_writing(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.start(&printer).await;
    let expected: Vec<String> = (0..1_200).map(|id| format!("placed {id} for 1")).collect();
    for some in [0..700, 700..1_200] {
        let mut tx = outbox.begin().await.unwrap();
        tx.write_all(some.map(|order_id| OrderEvent::Placed { order_id, total_cents: 1 })).unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(outbox.drain().await.delivered(), 1_200);
    assert_eq!(printer.printed(), expected);
}

async fn events_written_by_listeners_are_delivered(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, SHIPPED).await;
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 2, "{report}");
    assert_eq!(printer.printed(), ["shipped 7", "paid 7, 0 failed"]);
    assert_eq!(parcels(&outbox).await, 1);
    assert_published!(outbox.published().await, [SHIPPED, PAID]);
}

async fn the_report_lists_the_result_of_each_event(setup: impl Setup) {
    let hour = Duration::from_secs(3_600);
    let answers = [Answer::Fail, Answer::Permanent, Answer::Later(hour), Answer::Panic];
    let outbox = setup.start(&Printer::with(answers)).await;
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

async fn events_of_a_lost_owner_are_delivered(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, PAID).await;
    let claimed = "UPDATE outbox_event SET locked_by = 'lost', claim_token = 1, takeovers = 1";
    let mut tx = outbox.begin().await.unwrap();
    run(&mut tx, claimed).await;
    tx.commit().await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(printer.printed().len(), 1);
}

async fn unroutable_events_become_dead_if_configured(setup: impl Setup) {
    let shop =
        setup.shop(&Printer::default()).configure(|outbox| outbox.unroutable(Unroutable::Dead));
    let outbox = shop.start().await;
    commit(&outbox, OrderEvent::Lost).await.unwrap();
    let report = outbox.drain().await;
    assert_eq!((report.dead(), report.unroutable()), (1, 0), "{report}");
    assert_eq!(
        report.events()[0].error.as_deref(),
        Some("no listener handles `Lost` of aggregate `Order`")
    );
}

async fn an_event_that_needs_no_listener_is_published_and_settled(setup: impl Setup) {
    settled_without_a_listener(setup, Unroutable::Leave).await;
}

async fn an_event_that_needs_no_listener_is_not_unroutable(setup: impl Setup) {
    settled_without_a_listener(setup, Unroutable::Dead).await;
}

async fn settled_without_a_listener(setup: impl Setup, unroutable: Unroutable) {
    let printer = Printer::default();
    let shop = setup.shop(&printer).configure(move |outbox| outbox.unroutable(unroutable));
    let outbox = shop.start().await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([OrderEvent::Archived, PAID]).unwrap();
    assert_published!(tx, OrderEvent::Archived);
    tx.commit().await.unwrap();
    assert_published!(outbox.published().await, [OrderEvent::Archived, PAID]);
    let with_status = async |status| {
        let rows = outbox.admin().list(&EventQuery::new().status(status)).await.unwrap();
        rows.into_iter().map(|row| row.event_type).collect::<Vec<_>>()
    };
    assert_eq!(with_status(Status::New).await, ["Paid"]);
    let report = outbox.drain().await;
    let results = (report.delivered(), report.unroutable(), report.events().len());
    assert_eq!(results, (1, 0, 1), "{report}");

    // A row that another program has inserted.
    let mut tx = outbox.begin().await.unwrap();
    let pending =
        "UPDATE outbox_event SET status = 0, done_at = NULL WHERE event_type = 'Archived'";
    run(&mut tx, pending).await;
    tx.commit().await.unwrap();
    outbox.pause().unwrap();
    assert_eq!(outbox.drain().await.to_string(), "nothing was due", "it is not unroutable");
    outbox.resume().unwrap();
    assert_eq!(outbox.drain().await.to_string(), "nothing was due");
    assert_eq!((with_status(Status::Done).await.len(), printer.printed().len()), (2, 1));
}

async fn the_application_can_drain_pause_and_shut_down(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, PAID).await;
    let handle = outbox.clone();
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

async fn published_waits_for_a_dropped_transaction(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
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

on_every_setup! {
    nothing_is_delivered_before_drain,
    events_are_delivered_in_the_order_of_writing,
    events_written_by_listeners_are_delivered,
    the_report_lists_the_result_of_each_event,
    events_of_a_lost_owner_are_delivered,
    unroutable_events_become_dead_if_configured,
    an_event_that_needs_no_listener_is_published_and_settled,
    an_event_that_needs_no_listener_is_not_unroutable,
    the_application_can_drain_pause_and_shut_down,
    published_waits_for_a_dropped_transaction,
}
