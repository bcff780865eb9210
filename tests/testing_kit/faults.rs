//! Injected connection faults, and how the outbox handles them.

use std::time::{Duration, Instant};

use outbox::testing::{DeliveryResult, assert_published};

use crate::shop::{PAID, Printer, SHIPPED, Setup, commit, count, on_every_setup, parcels, run};

/// The default lease.
const LEASE: Duration = Duration::from_secs(30);

/// Returns the cause of an error.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

async fn a_failed_begin_is_reported(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.faults().begin().times(2).fail();
    for _ in 0..2 {
        let error = commit(&outbox, PAID).await.unwrap_err();
        assert_eq!(
            cause(&error),
            "error communicating with database: injected: the connection failed"
        );
    }
    commit(&outbox, PAID).await.unwrap();
    assert_published!(outbox.published().await, [PAID]);
}

async fn a_begin_with_a_lost_response_leaves_no_open_transaction(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.faults().begin().lose_answer();
    commit(&outbox, PAID).await.unwrap_err();
    commit(&outbox, PAID).await.unwrap();
    assert_published!(outbox.published().await, [PAID]);
}

async fn a_failed_write_rolls_back_the_transaction(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.faults().write().fail();
    outbox.faults().write().lose_answer();
    for _ in 0..2 {
        let mut tx = outbox.begin().await.unwrap();
        run(&mut tx, "INSERT INTO parcels VALUES (1)").await;
        tx.write(PAID).unwrap();
        tx.commit().await.unwrap_err();
        assert_eq!(parcels(&outbox).await, 0);
        assert_published!(outbox.published().await, []);
    }
}

async fn a_failed_commit_publishes_nothing(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.faults().commit().fail();
    commit(&outbox, PAID).await.unwrap_err();
    assert_published!(outbox.published().await, []);
    assert_eq!(outbox.drain().await.events().len(), 0);
}

async fn a_commit_with_a_lost_response_publishes_its_events(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.faults().commit().lose_answer();
    let error = commit(&outbox, PAID).await.unwrap_err();
    assert_eq!(cause(&error), "error communicating with database: injected: the answer was lost");
    assert_published!(outbox.published().await, [PAID]);
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn the_application_can_cancel_a_hanging_commit(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.faults().commit().hang();
    let limit = Duration::from_millis(50);
    tokio::time::timeout(limit, commit(&outbox, PAID)).await.unwrap_err();
    assert_published!(outbox.published().await, []);
}

async fn a_delayed_commit_succeeds(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    let delay = Duration::from_millis(50);
    outbox.faults().commit().delay(delay);
    let begun = Instant::now();
    commit(&outbox, PAID).await.unwrap();
    assert!(begun.elapsed() >= delay);
    assert_published!(outbox.published().await, [PAID]);
}

async fn a_failed_claim_is_retried(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, PAID).await;
    outbox.faults().claim().fail();
    let report = outbox.drain().await;
    assert_eq!(report.events().len(), 0);
    assert_eq!(
        report.to_string(),
        "nothing was due\nthe drain stopped there: the database failed while claiming events: error \
         communicating with database: injected: the connection failed"
    );
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn a_claim_fault_waits_for_a_due_event(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    outbox.faults().claim().fail();
    assert!(outbox.drain().await.failure().is_none());
    commit(&outbox, PAID).await.unwrap();
    assert!(outbox.drain().await.failure().is_some());
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn rows_of_a_claim_with_a_lost_response_wait_for_their_lease(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, PAID).await;
    outbox.faults().claim().lose_answer();
    assert!(outbox.drain().await.failure().is_some());
    assert_eq!(outbox.drain().await.delivered(), 0);
    outbox.clock().advance(LEASE);
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(printer.printed(), ["paid 7, 0 failed"]);
}

async fn a_hanging_claim_times_out(setup: impl Setup) {
    let printer = Printer::default();
    let short_lease = setup.shop(&printer).configure(|outbox| outbox.lease(Duration::from_secs(1)));
    let outbox = short_lease.start().await;
    commit(&outbox, PAID).await.unwrap();
    outbox.faults().claim().hang();
    let report = outbox.drain().await;
    assert!(matches!(report.failure(), Some(outbox::Error::TimedOut { .. })), "{report}");
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn an_unrecorded_settlement_is_retried_without_a_second_call(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.start(&printer).await;
    // An answer is lost after the row was settled.
    for (lost, settled, calls) in [(false, 0, 1), (true, 2, 2)] {
        commit(&outbox, PAID).await.unwrap();
        let point = outbox.faults().record();
        if lost {
            point.lose_answer()
        } else {
            point.fail()
        }
        let report = outbox.drain().await;
        assert_eq!(report.delivered(), 1, "{report}");
        assert!(report.failure().is_some());
        let done = "SELECT COUNT(*) FROM outbox_event WHERE status = 1";
        assert_eq!(count(&outbox, done).await, settled);
        let report = outbox.drain().await;
        assert!(report.failure().is_none() && report.events().is_empty(), "{report}");
        // Not even when the lease would have expired.
        outbox.clock().advance(LEASE * 2);
        assert_eq!(outbox.drain().await.events().len(), 0);
        assert_eq!(printer.printed().len(), calls);
    }
}

async fn a_settlement_survives_a_long_outage(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, PAID).await;
    outbox.faults().record().always().fail();
    for _ in 0..5 {
        assert!(outbox.drain().await.failure().is_some());
    }
    outbox.faults().clear();
    // The lease has expired; the settlement is recorded with the next claim, without a second call.
    outbox.clock().advance(LEASE * 2);
    assert!(outbox.drain().await.failure().is_none());
    assert_eq!(printer.printed().len(), 1);
}

async fn a_listener_transaction_that_cannot_begin_spends_no_attempt(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, SHIPPED).await;
    outbox.faults().begin().fail();
    assert_eq!(outbox.drain().await.deferred(), 1);
    assert!(printer.printed().is_empty());
    outbox.clock().advance(LEASE);
    assert_eq!(outbox.drain().await.delivered(), 2);
}

/// It spends no attempt either, and no worker waits for it indefinitely.
async fn a_hanging_listener_transaction_times_out(setup: impl Setup) {
    let printer = Printer::default();
    let short_lease = setup.shop(&printer).configure(|outbox| outbox.lease(Duration::from_secs(1)));
    let outbox = short_lease.start().await;
    commit(&outbox, SHIPPED).await.unwrap();
    outbox.faults().begin().hang();
    let report = outbox.drain().await;
    assert_eq!(report.deferred(), 1, "{report}");
    assert!(printer.printed().is_empty());
    outbox.clock().advance(LEASE);
    assert_eq!(outbox.drain().await.delivered(), 2);
}

async fn a_listener_commit_takes_effect_once_whatever_is_reported(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.start(&printer).await;
    // Each event is booked once. If the commit failed, the listener was called again.
    for (lost, booked, calls) in [(false, 1, 2), (true, 2, 3)] {
        outbox.clear().await;
        commit(&outbox, SHIPPED).await.unwrap();
        let point = outbox.faults().commit();
        if lost {
            point.lose_answer()
        } else {
            point.fail()
        }
        let report = outbox.drain().await;
        assert_eq!(report.count(DeliveryResult::Unknown), 1, "{report}");
        outbox.clock().advance(LEASE);
        let _ = outbox.drain().await;
        assert_eq!(parcels(&outbox).await, booked);
        assert_published!(outbox.published().await, [SHIPPED, PAID]);
        let shipped = printer.printed().iter().filter(|printed| *printed == "shipped 7").count();
        assert_eq!(shipped, calls);
    }
}

on_every_setup! {
    a_failed_begin_is_reported,
    a_begin_with_a_lost_response_leaves_no_open_transaction,
    a_failed_write_rolls_back_the_transaction,
    a_failed_commit_publishes_nothing,
    a_commit_with_a_lost_response_publishes_its_events,
    the_application_can_cancel_a_hanging_commit,
    a_delayed_commit_succeeds,
    a_failed_claim_is_retried,
    a_claim_fault_waits_for_a_due_event,
    rows_of_a_claim_with_a_lost_response_wait_for_their_lease,
    a_hanging_claim_times_out,
    an_unrecorded_settlement_is_retried_without_a_second_call,
    a_settlement_survives_a_long_outage,
    a_listener_transaction_that_cannot_begin_spends_no_attempt,
    a_hanging_listener_transaction_times_out,
    a_listener_commit_takes_effect_once_whatever_is_reported,
}
