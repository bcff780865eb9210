//! Clearing the outbox in the middle of a test.

use std::time::Duration;

use outbox::dead::DeadFilter;
use outbox::testing::assert_published;

use crate::shop::{Answer, PAID, Printer, SHIPPED, Setup, commit, on_every_setup, parcels};

const HOUR: Duration = Duration::from_secs(3_600);

async fn cleared_events_are_never_delivered(setup: impl Setup) {
    let printer = Printer::with([Answer::Permanent, Answer::Fail]);
    let outbox = setup.start(&printer).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([PAID, PAID]).unwrap();
    tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
    tx.commit().await.unwrap();
    let report = outbox.drain().await;
    assert_eq!((report.dead(), report.retried()), (1, 1), "{report}");
    commit(&outbox, PAID).await.unwrap();

    outbox.clear().await;
    assert_published!(outbox.published().await, []);
    assert_eq!(outbox.dead_events().count(&DeadFilter::default()).await.unwrap(), 0);
    outbox.clock().advance(HOUR * 2);
    assert_eq!(outbox.drain().await.to_string(), "nothing was due");
    assert_eq!(printer.printed().len(), 2, "only the calls before the clear");
}

async fn clear_keeps_other_tables_and_the_clock(setup: impl Setup) {
    let outbox = setup.with_event(&Printer::default(), SHIPPED).await;
    assert_eq!(outbox.drain().await.delivered(), 2);
    outbox.clock().advance(HOUR);
    let now = outbox.clock().now();
    outbox.clear().await;
    outbox.clear().await;
    assert_eq!((parcels(&outbox).await, outbox.clock().now()), (1, now));
    // A cleared id can be written again.
    for _ in 0..2 {
        let mut tx = outbox.begin().await.unwrap();
        tx.write(outbox::event(PAID).event_id("1")).unwrap();
        tx.commit().await.unwrap();
        assert_published!(outbox.published().await, [PAID]);
        outbox.clear().await;
    }
    commit(&outbox, PAID).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn clear_forgets_events_claimed_by_a_failed_drain(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.start(&printer).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([PAID, PAID, PAID]).unwrap();
    tx.commit().await.unwrap();
    outbox.faults().record().fail();
    assert!(outbox.drain().await.failure().is_some());
    assert_eq!(printer.printed().len(), 1);
    outbox.clear().await;
    assert_eq!(outbox.drain().await.to_string(), "nothing was due");
    assert_eq!(printer.printed().len(), 1);
    commit(&outbox, PAID).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
}

on_every_setup! {
    cleared_events_are_never_delivered,
    clear_keeps_other_tables_and_the_clock,
    clear_forgets_events_claimed_by_a_failed_drain,
}
