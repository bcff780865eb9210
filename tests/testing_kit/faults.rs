//! Faults of the connection, and what the outbox makes of them.

use std::time::{Duration, Instant};

use outbox::testing::{Fate, TestOutbox, assert_published};

use crate::shop::{Desk, PAID, SHIPPED, commit, parcels, shop, with_event};

/// The default.
const LEASE: Duration = Duration::from_secs(30);

async fn quiet_shop(desk: &Desk) -> TestOutbox {
    shop(desk).start().await
}

/// The cause of an error.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

#[tokio::test]
async fn a_begin_that_fails() {
    let outbox = quiet_shop(&Desk::default()).await;
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

#[tokio::test]
async fn a_begin_whose_answer_is_lost_leaves_no_transaction_behind() {
    let outbox = quiet_shop(&Desk::default()).await;
    outbox.faults().begin().lose_answer();
    commit(&outbox, PAID).await.unwrap_err();
    commit(&outbox, PAID).await.unwrap();
    assert_published!(outbox.published().await, [PAID]);
}

#[tokio::test]
async fn a_write_that_fails_takes_the_transaction_with_it() {
    let outbox = quiet_shop(&Desk::default()).await;
    outbox.faults().write().fail();
    outbox.faults().write().lose_answer();
    for _ in 0..2 {
        let mut tx = outbox.begin().await.unwrap();
        sqlx::query("INSERT INTO parcels VALUES (1)").execute(&mut *tx).await.unwrap();
        tx.write(PAID).unwrap();
        tx.commit().await.unwrap_err();
        assert_eq!(parcels(&outbox).await, 0);
        assert_published!(outbox.published().await, []);
    }
}

#[tokio::test]
async fn a_commit_that_fails_publishes_nothing() {
    let outbox = quiet_shop(&Desk::default()).await;
    outbox.faults().commit().fail();
    commit(&outbox, PAID).await.unwrap_err();
    assert_published!(outbox.published().await, []);
    assert_eq!(outbox.drain().await.events().len(), 0);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_publishes_all_the_same() {
    let outbox = quiet_shop(&Desk::default()).await;
    outbox.faults().commit().lose_answer();
    let error = commit(&outbox, PAID).await.unwrap_err();
    assert_eq!(cause(&error), "error communicating with database: injected: the answer was lost");
    assert_published!(outbox.published().await, [PAID]);
    assert_eq!(outbox.drain().await.delivered(), 1);
}

#[tokio::test]
async fn a_commit_that_hangs_is_given_up_by_the_application() {
    let outbox = quiet_shop(&Desk::default()).await;
    outbox.faults().commit().hang();
    let limit = Duration::from_millis(50);
    tokio::time::timeout(limit, commit(&outbox, PAID)).await.unwrap_err();
    assert_published!(outbox.published().await, []);
}

#[tokio::test]
async fn a_commit_that_takes_its_time() {
    let outbox = quiet_shop(&Desk::default()).await;
    let delay = Duration::from_millis(50);
    outbox.faults().commit().delay(delay);
    let begun = Instant::now();
    commit(&outbox, PAID).await.unwrap();
    assert!(begun.elapsed() >= delay);
    assert_published!(outbox.published().await, [PAID]);
}

#[tokio::test]
async fn a_claim_that_fails_is_tried_again() {
    let desk = Desk::default();
    let outbox = with_event(&desk, PAID).await;
    outbox.faults().claim().fail();
    let report = outbox.drain().await;
    assert_eq!(report.events().len(), 0);
    assert_eq!(
        report.to_string(),
        "nothing was due\nit stopped there: the database failed while claiming events: error \
         communicating with database: injected: the connection failed"
    );
    assert_eq!(outbox.drain().await.delivered(), 1);
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_waits_for_its_lease() {
    let desk = Desk::default();
    let outbox = with_event(&desk, PAID).await;
    outbox.faults().claim().lose_answer();
    assert!(outbox.drain().await.failure().is_some());
    assert_eq!(outbox.drain().await.delivered(), 0);
    outbox.clock().advance(LEASE);
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(desk.heard(), ["paid 7, 0 failed"]);
}

#[tokio::test]
async fn a_claim_that_hangs_is_given_up() {
    let desk = Desk::default();
    let impatient = shop(&desk).configure(|outbox| outbox.lease(Duration::from_secs(1)));
    let outbox = impatient.start().await;
    commit(&outbox, PAID).await.unwrap();
    outbox.faults().claim().hang();
    let report = outbox.drain().await;
    assert!(matches!(report.failure(), Some(outbox::Error::TimedOut { .. })), "{report}");
    assert_eq!(outbox.drain().await.delivered(), 1);
}

#[tokio::test]
async fn a_result_that_is_not_recorded_is_kept_and_the_listener_not_called_again() {
    for lost in [false, true] {
        let desk = Desk::default();
        let outbox = with_event(&desk, PAID).await;
        let point = outbox.faults().record();
        if lost {
            point.lose_answer()
        } else {
            point.fail()
        }
        let report = outbox.drain().await;
        assert_eq!(report.delivered(), 1, "{report}");
        assert!(report.failure().is_some());
        let report = outbox.drain().await;
        assert!(report.failure().is_none() && report.events().is_empty(), "{report}");
        // Not even when the lease would have ended.
        outbox.clock().advance(LEASE * 2);
        assert_eq!(outbox.drain().await.events().len(), 0);
        assert_eq!(desk.heard().len(), 1);
    }
}

#[tokio::test]
async fn a_database_that_is_away_for_long() {
    let desk = Desk::default();
    let outbox = with_event(&desk, PAID).await;
    outbox.faults().record().always().fail();
    for _ in 0..5 {
        assert!(outbox.drain().await.failure().is_some());
    }
    outbox.faults().clear();
    // The lease has ended; what is done is recorded under the next claim, and not done again.
    outbox.clock().advance(LEASE * 2);
    assert!(outbox.drain().await.failure().is_none());
    assert_eq!(desk.heard().len(), 1);
}

#[tokio::test]
async fn a_listeners_transaction_that_cannot_begin_spends_no_attempt() {
    let desk = Desk::default();
    let outbox = with_event(&desk, SHIPPED).await;
    outbox.faults().begin().fail();
    assert_eq!(outbox.drain().await.deferred(), 1);
    assert!(desk.heard().is_empty());
    outbox.clock().advance(LEASE);
    assert_eq!(outbox.drain().await.delivered(), 2);
}

/// Nor does one that gets no answer, and no worker waits for it for ever.
#[tokio::test]
async fn a_listeners_transaction_that_hangs_is_given_up() {
    let desk = Desk::default();
    let impatient = shop(&desk).configure(|outbox| outbox.lease(Duration::from_secs(1)));
    let outbox = impatient.start().await;
    commit(&outbox, SHIPPED).await.unwrap();
    outbox.faults().begin().hang();
    let report = outbox.drain().await;
    assert_eq!(report.deferred(), 1, "{report}");
    assert!(desk.heard().is_empty());
    outbox.clock().advance(LEASE);
    assert_eq!(outbox.drain().await.delivered(), 2);
}

#[tokio::test]
async fn a_listeners_commit_happens_exactly_once_whatever_is_said_of_it() {
    for lost in [false, true] {
        let desk = Desk::default();
        let outbox = with_event(&desk, SHIPPED).await;
        let point = outbox.faults().commit();
        if lost {
            point.lose_answer()
        } else {
            point.fail()
        }
        let report = outbox.drain().await;
        assert_eq!(report.count(Fate::Unknown), 1, "{report}");
        outbox.clock().advance(LEASE);
        let _ = outbox.drain().await;
        assert_eq!(parcels(&outbox).await, 1);
        assert_published!(outbox.published().await, [SHIPPED, PAID]);
        let calls = desk.heard().iter().filter(|heard| *heard == "shipped 7").count();
        assert_eq!(calls, if lost { 1 } else { 2 });
    }
}
