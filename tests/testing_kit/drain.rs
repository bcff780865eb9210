//! Delivering what is due, one after another.

use std::time::Duration;

use outbox::testing::{Fate, assert_published};
use outbox::{EventEnvelope, Unroutable};

use crate::shop::{Answer, Desk, OrderEvent, PAID, SHIPPED, commit, parcels, shop, with_event};

#[tokio::test]
async fn nothing_happens_until_it_is_asked_for() {
    let desk = Desk::default();
    let outbox = with_event(&desk, PAID).await;
    // While the database answers so often, a poller would have been there.
    for _ in 0..100 {
        assert_published!(outbox.published().await, [PAID]);
    }
    assert!(desk.heard().is_empty());
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(desk.heard(), ["paid 7, 0 failed"]);
    assert_eq!(outbox.drain().await.events().len(), 0);
}

#[tokio::test]
async fn in_the_order_of_writing() {
    let desk = Desk::default();
    let outbox = shop(&desk).start().await;
    let expected: Vec<String> = (0..1_200).map(|id| format!("placed {id} for 1")).collect();
    for some in [0..700, 700..1_200] {
        let mut tx = outbox.begin().await.unwrap();
        tx.write_all(some.map(|order_id| OrderEvent::Placed { order_id, total_cents: 1 })).unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(outbox.drain().await.delivered(), 1_200);
    assert_eq!(desk.heard(), expected);
}

#[tokio::test]
async fn what_listeners_write_is_delivered_as_well() {
    let desk = Desk::default();
    let outbox = with_event(&desk, SHIPPED).await;
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 2, "{report}");
    assert_eq!(desk.heard(), ["shipped 7", "paid 7, 0 failed"]);
    assert_eq!(parcels(&outbox).await, 1);
    assert_published!(outbox.published().await, [SHIPPED, PAID]);
}

#[tokio::test]
async fn the_report_says_what_became_of_each() {
    let hour = Duration::from_secs(3_600);
    let answers = [Answer::Fail, Answer::Permanent, Answer::Later(hour), Answer::Panic];
    let outbox = shop(&Desk::with(answers)).start().await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([PAID, PAID, PAID, PAID, PAID, OrderEvent::Lost]).unwrap();
    tx.commit().await.unwrap();

    let report = outbox.drain().await;
    assert_eq!((report.delivered(), report.retried(), report.dead()), (1, 2, 1), "{report}");
    assert_eq!((report.deferred(), report.unroutable()), (1, 1), "{report}");
    let [first, second, ..] = report.events() else { panic!("{report}") };
    assert_eq!((first.fate, first.error.as_deref()), (Fate::Retried, Some("the printer jams")));
    assert_eq!((second.event_type(), second.fate), ("Paid", Fate::Dead));
    let mut lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
    for (line, reported) in lines.iter_mut().zip(report.events()) {
        *line = line.replace(reported.event_id().as_str(), "ID");
    }
    assert_eq!(
        lines,
        [
            "1. Order/Paid ID: to be retried: the printer jams",
            "2. Order/Paid ID: dead: the printer burns",
            "3. Order/Paid ID: deferred",
            "4. Order/Paid ID: to be retried: the listener panicked",
            "5. Order/Paid ID: delivered",
            "6. Order/Lost ID: heard by nobody",
        ]
    );
    assert_eq!(outbox.drain().await.unroutable(), 1);
}

#[tokio::test]
async fn what_another_process_has_left_behind_is_delivered() {
    let desk = Desk::default();
    let outbox = with_event(&desk, PAID).await;
    let claimed = "UPDATE outbox_event SET locked_by = 'lost', claim_token = 1, takeovers = 1";
    sqlx::query(claimed).execute(outbox.pool()).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(desk.heard().len(), 1);
}

#[tokio::test]
async fn events_that_nobody_hears_die_if_that_is_asked_for() {
    let shop = shop(&Desk::default()).configure(|outbox| outbox.unroutable(Unroutable::Dead));
    let outbox = shop.start().await;
    commit(&outbox, OrderEvent::Lost).await.unwrap();
    let report = outbox.drain().await;
    assert_eq!((report.dead(), report.unroutable()), (1, 0), "{report}");
    assert_eq!(
        report.events()[0].error.as_deref(),
        Some("nobody listens to `Lost` of aggregate `Order`")
    );
}

#[tokio::test]
async fn the_application_may_drain_and_stop_as_it_does() {
    let desk = Desk::default();
    let outbox = with_event(&desk, PAID).await;
    let handle: outbox::Outbox<sqlx::Sqlite> = outbox.clone();
    handle.drained().await.unwrap();
    assert_eq!(desk.heard().len(), 1);
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
async fn an_open_transaction_is_named() {
    let outbox = shop(&Desk::default()).start().await;
    let _tx = outbox.begin().await.unwrap();
    let _ = outbox.drain().await;
}

#[tokio::test]
async fn a_second_transaction_does_not_wait_for_ever() {
    let outbox = shop(&Desk::default()).start().await;
    let _tx = outbox.begin().await.unwrap();
    let error = outbox.begin().await.unwrap_err();
    assert!(matches!(error, outbox::Error::WriterLockTimeout { .. }), "{error:?}");
}

#[tokio::test]
async fn a_dropped_transaction_is_waited_for() {
    let outbox = shop(&Desk::default()).start().await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(EventEnvelope::json("Undone", "{}").unwrap()).unwrap();
    drop(tx);
    assert_published!(outbox.published().await, []);
}

#[tokio::test]
#[should_panic(expected = "`State<kit::shop::Desk>`, which was not given")]
async fn a_start_that_fails_says_why() {
    let _ = outbox::testing::outbox().start().await;
}
