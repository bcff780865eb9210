//! Beginning anew in the middle of a test.

use std::time::Duration;

use outbox::DeadFilter;
use outbox::testing::assert_published;

use crate::shop::{Answer, Desk, PAID, SHIPPED, commit, parcels, shop, with_event};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn what_was_published_is_forgotten_and_never_delivered() {
    let desk = Desk::with([Answer::Permanent, Answer::Fail]);
    let outbox = shop(&desk).start().await;
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
    assert_eq!(desk.heard().len(), 2, "before it was cleared");
}

#[tokio::test]
async fn everything_else_stays_and_goes_on() {
    let outbox = with_event(&Desk::default(), SHIPPED).await;
    assert_eq!(outbox.drain().await.delivered(), 2);
    outbox.clock().advance(HOUR);
    let now = outbox.clock().now();
    outbox.clear().await;
    outbox.clear().await;
    assert_eq!((parcels(&outbox).await, outbox.clock().now()), (1, now));
    // An id that was used is new again.
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

#[tokio::test]
async fn what_a_failed_drain_has_claimed_is_forgotten_as_well() {
    let desk = Desk::default();
    let outbox = shop(&desk).start().await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([PAID, PAID, PAID]).unwrap();
    tx.commit().await.unwrap();
    outbox.faults().record().fail();
    assert!(outbox.drain().await.failure().is_some());
    assert_eq!(desk.heard().len(), 1);
    outbox.clear().await;
    assert_eq!(outbox.drain().await.to_string(), "nothing was due");
    assert_eq!(desk.heard().len(), 1);
    commit(&outbox, PAID).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
}

#[tokio::test]
#[should_panic(expected = "`clear` waits for a transaction that is still open")]
async fn an_open_transaction_is_named() {
    let outbox = shop(&Desk::default()).start().await;
    let _tx = outbox.begin().await.unwrap();
    outbox.clear().await;
}
