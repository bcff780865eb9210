//! The clock of the testing kit.

use std::time::{Duration, SystemTime};

use outbox::testing::TestOutbox;
use outbox_runtime::store::StoreOf;
use outbox_tests::TestDatabase;

use crate::shop::{Answer, PAID, Printer, SHIPPED, Setup, commit, on_every_setup};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

async fn the_clock_starts_now_and_moves_only_when_advanced(setup: impl Setup) {
    #[expect(clippy::disallowed_methods, reason = "compared with the clock of the kit")]
    let before = SystemTime::now() - SECOND;
    let outbox = setup.start(&Printer::default()).await;
    let now = outbox.clock().now();
    assert!(now > before);
    commit(&outbox, PAID).await.unwrap();
    let _ = outbox.drain().await;
    assert_eq!(outbox.clock().now(), now);
    outbox.clock().advance(HOUR);
    assert_eq!(outbox.clock().now(), now + HOUR);
}

async fn delayed_events_follow_the_clock(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
    tx.write(outbox::event(PAID).deliver_at(outbox.clock().now() + HOUR * 2)).unwrap();
    tx.commit().await.unwrap();
    for (step, delivered) in [(HOUR - SECOND, 0), (SECOND, 1), (HOUR - SECOND, 0), (SECOND, 1)] {
        outbox.clock().advance(step);
        let report = outbox.drain().await;
        assert_eq!(report.delivered(), delivered, "after {step:?} more: {report}");
    }
}

async fn published_events_show_their_due_time(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.clock().advance(HOUR * 5);
    let now = outbox.clock().now();
    let mut tx = outbox.begin().await.unwrap();
    tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
    tx.write(outbox::event(PAID).deliver_at(now + HOUR * 2)).unwrap();
    tx.write(outbox::event(PAID).deliver_at(now)).unwrap();
    tx.commit().await.unwrap();
    let due = outbox.published().await.into_iter().map(|event| event.available_at());
    assert_eq!(due.collect::<Vec<_>>(), [now + HOUR, now + HOUR * 2, now]);
}

async fn a_delay_counts_from_the_commit(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
    outbox.clock().advance(HOUR);
    tx.commit().await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 0);
    outbox.clock().advance(HOUR);
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn retries_follow_the_policy_exactly(setup: impl Setup) {
    let printer = Printer::with([Answer::Fail; 3]);
    let outbox = setup.with_event(&printer, PAID).await;
    assert_eq!(outbox.drain().await.retried(), 1);
    outbox.clock().advance(SECOND * 9);
    assert_eq!(outbox.drain().await.events().len(), 0);
    outbox.clock().advance(SECOND);
    assert_eq!(outbox.drain().await.retried(), 1);
    outbox.clock().advance(SECOND * 20);
    assert_eq!(outbox.drain().await.dead(), 1);
    assert_eq!(printer.printed(), ["paid 7, 0 failed", "paid 7, 1 failed", "paid 7, 2 failed"]);
}

async fn a_breaker_pause_follows_the_clock(setup: impl Setup) {
    let printer = Printer::with([Answer::Unreachable]);
    let outbox = setup.start(&printer).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([PAID, PAID, PAID]).unwrap();
    tx.commit().await.unwrap();
    let report = outbox.drain().await;
    assert_eq!(report.deferred(), 1, "{report}");
    assert_eq!(report.events()[0].error.as_deref(), Some("the printer is gone"));
    assert_eq!(outbox.drain().await.events().len(), 0);
    outbox.clock().advance(SECOND);
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 3, "{report}");
    assert_eq!(printer.printed(), ["paid 7, 0 failed"; 4]);
}

async fn occurrence_times_follow_the_clock(setup: impl Setup) {
    let printer = Printer::default();
    let skipping_recent = setup.shop(&printer).configure(|outbox| {
        let mut config = outbox::Config::default();
        config.skip_recent = HOUR;
        outbox.config(config)
    });
    let outbox = skipping_recent.start().await;
    outbox.clock().advance(HOUR * 5);
    let (early, now) = (outbox.clock().now() - HOUR, outbox.clock().now());
    let mut tx = outbox.begin().await.unwrap();
    tx.write(PAID).unwrap();
    tx.write(outbox::event(PAID).occurred_at(early)).unwrap();
    let mut part = tx.savepoint().await.unwrap();
    part.write(PAID).unwrap();
    part.release().await.unwrap();
    tx.commit().await.unwrap();
    let happened = outbox.published().await.into_iter().map(|event| event.occurred_at());
    assert_eq!(happened.collect::<Vec<_>>(), [now, early, now]);

    // Events more recent than an hour are skipped.
    assert_eq!(outbox.drain().await.delivered(), 1);
    outbox.clock().advance(HOUR);
    assert_eq!(outbox.drain().await.delivered(), 2);
}

async fn the_purge_follows_the_clock(setup: impl Setup) {
    let outbox = setup.with_event(&Printer::default(), SHIPPED).await;
    assert_eq!(outbox.drain().await.delivered(), 2);
    assert_eq!(outbox.store().purge_done(HOUR, None, 10).await.unwrap().deleted, 0);
    outbox.clock().advance(HOUR + SECOND);
    assert_eq!(outbox.store().purge_done(HOUR, None, 10).await.unwrap().deleted, 2);
}

/// Asserts that all events are due a number of hours from now.
async fn assert_due_after<DB: TestDatabase>(outbox: &TestOutbox<DB>, hours: &[u32]) {
    let now = outbox.clock().now();
    let due = outbox.published().await.into_iter().map(|event| event.available_at());
    let expected: Vec<_> = hours.iter().map(|hours| now + HOUR * *hours).collect();
    assert_eq!(due.collect::<Vec<_>>(), expected);
}

async fn a_rollback_does_not_turn_the_clock_back(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    for _ in 0..3 {
        outbox.clock().advance(HOUR);
        let mut tx = outbox.begin().await.unwrap();
        tx.write(PAID).unwrap();
        tx.flush().await.unwrap();
        tx.rollback().await.unwrap();
    }
    let mut tx = outbox.begin().await.unwrap();
    tx.write(PAID).unwrap();
    tx.commit().await.unwrap();
    assert_due_after(&outbox, &[0]).await;
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn events_written_in_other_transactions_follow_the_clock(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.clock().advance(HOUR * 5);
    let mut tx = outbox.pool().begin().await.unwrap();
    let receipt = outbox.write_in(&mut tx, outbox::event(PAID).deliver_after(HOUR)).await.unwrap();
    tx.commit().await.unwrap();
    outbox.committed(receipt.unwrap()).await.unwrap();
    assert_due_after(&outbox, &[1]).await;
    outbox.clock().advance(HOUR);
    assert_eq!(outbox.drain().await.delivered(), 1);
}

on_every_setup! {
    a_rollback_does_not_turn_the_clock_back,
    events_written_in_other_transactions_follow_the_clock,
    the_clock_starts_now_and_moves_only_when_advanced,
    delayed_events_follow_the_clock,
    published_events_show_their_due_time,
    a_delay_counts_from_the_commit,
    retries_follow_the_policy_exactly,
    a_breaker_pause_follows_the_clock,
    occurrence_times_follow_the_clock,
    the_purge_follows_the_clock,
}
