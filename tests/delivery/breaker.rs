//! Circuit breakers: listeners whose dependency is unreachable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outbox::event::Status;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::metrics::Lane;
use outbox::{EventEnvelope, ListenerError};
use outbox_runtime::store::StoreOf;
use outbox_tests::{
    CallLog, Fresh, Spans, TestDatabase, TestTable, event, eventually, on_every_database,
};

use crate::harness::{
    CountingMetrics, first_row, insert_due, locked_rows, manual_poll, recording_listeners,
    with_status, write,
};

/// Adds a listener for `Mail` that succeeds while `up` is true.
fn with_mail(
    registry: ListenerRegistry,
    mails: &CallLog,
    up: &Arc<AtomicBool>,
) -> ListenerRegistry {
    let (mails, up) = (mails.clone(), Arc::clone(up));
    registry.register_for("Order", "Mail", move |delivery: Delivery| {
        let up = up.load(Ordering::SeqCst);
        mails.record(&delivery);
        async move {
            if up { Ok(()) } else { Err(ListenerError::unreachable("mail server is down")) }
        }
    })
}

async fn a_breaker_opens_releases_events_probes_and_closes<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let up = Arc::new(AtomicBool::new(false));
    let others = CallLog::default();
    let registry = with_mail(recording_listeners(&others), &received, &up);
    let outbox = manual_poll(&db, registry).workers(1).start().await.unwrap();
    let mails: Vec<EventEnvelope> = (0..40).map(|_| event("Mail")).collect();
    write(&outbox, &mails).await;
    received.wait_for(1).await;
    // One call opens the breaker: all other events are released, and no attempt is spent.
    eventually("all are released", async || {
        with_status(&db, 2).await == 40 && locked_rows(&db).await == 0
    })
    .await;
    assert_eq!(received.count(), 1);
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.attempts, row.last_error), (Status::Retry, 0, None));
    // Meanwhile its events get no permit, and other events are delivered.
    write(&outbox, &[event("Mail"), event("A")]).await;
    others.wait_for(1).await;
    let mails = "SELECT COUNT(locked_by) FROM outbox_event WHERE event_type = 'Mail'";
    assert_eq!(db.number(mails).await, 0, "no permit for a paused listener");
    // When the pause ends, a single event is the probe; while it fails, no other is called.
    received.wait_for(2).await;
    received.wait_for(3).await;
    assert!(received.calls()[2].at - received.calls()[1].at >= Duration::from_millis(500));
    up.store(true, Ordering::SeqCst);
    eventually("all are delivered", async || with_status(&db, 1).await == 42).await;
    // 41 deliveries, and one failed probe for each pause.
    let probes = received.count() - 41;
    assert!((3..=5).contains(&probes), "{probes}");
    assert_eq!(first_row(&db, &outbox).await.attempts, 0);
    outbox.shutdown().await.unwrap();
}

/// The longest first pause: 1.5 seconds, plus a tolerance for the clock.
const FIRST_PAUSE: Duration = Duration::from_millis(1_600);

async fn a_half_open_breaker_without_events_causes_no_claims<DB: TestDatabase>(db: Fresh<DB>) {
    let (mails, up, counted) =
        (CallLog::default(), Arc::new(AtomicBool::new(false)), CountingMetrics::default());
    let (spans, table) = (Spans::install(), format!("half_open_{}", DB::SHORT_NAME));
    let registry = with_mail(recording_listeners(&CallLog::default()), &mails, &up);
    let outbox =
        manual_poll(&db, registry).table(&table).metrics(counted.clone()).start().await.unwrap();
    write(&outbox, &[event("Mail")]).await;
    let opened = mails.wait_for(1).await[0].at;
    eventually("it is released", async || {
        db.number(format!("SELECT COUNT(*) FROM {table} WHERE status = 2")).await == 1
    })
    .await;
    db.run(format!("DELETE FROM {table}")).await;
    let claims = || spans.with(&format!("outbox.claim table={table} ")).len();
    let claimed = claims();
    eventually("the pause is over", async || opened.elapsed() > FIRST_PAUSE).await;
    // The gauge is read every 15 seconds.
    let over = Instant::now();
    eventually("the gauge is read", async || counted.paused_after(over).is_some()).await;
    let claimed = claims() - claimed;
    println!("{}: {claimed} claims in {:?}", DB::SHORT_NAME, opened.elapsed());
    // Claims for newly due rows, for the skipped rows, and for polls missed during the pause.
    assert!(claimed <= 10, "{claimed} claims without an event");
    assert_eq!(counted.paused_after(over), Some(0), "the pause is over");
    // The next event is the probe, and is delivered through the hot path.
    up.store(true, Ordering::SeqCst);
    let hot = counted.enqueued(Lane::Hot);
    let written = Instant::now();
    write(&outbox, &[event("Mail")]).await;
    let waited = mails.wait_for(2).await[1].at - written;
    println!("{}: delivered after {waited:?}", DB::SHORT_NAME);
    assert_eq!(counted.enqueued(Lane::Hot), hot + 1);
    let before = claims();
    outbox.drained().await.unwrap();
    assert!(claims() > before, "claims are counted");
    outbox.shutdown().await.unwrap();
}

async fn an_event_of_another_process_can_be_the_probe<DB: TestDatabase>(db: Fresh<DB>) {
    let (mails, up) = (CallLog::default(), Arc::new(AtomicBool::new(false)));
    let registry = with_mail(recording_listeners(&CallLog::default()), &mails, &up);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("Mail")]).await;
    mails.wait_for(1).await;
    eventually("it is released", async || with_status(&db, 2).await == 1).await;
    db.run("DELETE FROM outbox_event").await;
    up.store(true, Ordering::SeqCst);
    // During the pause they are skipped; no commit of this process wakes the poller afterwards.
    insert_due(&db, &outbox, &["Mail"; 30]).await;
    outbox.poll_once().await.unwrap();
    eventually("all are delivered", async || with_status(&db, 1).await == 30).await;
    let calls = mails.calls();
    assert_eq!(calls.len(), 31);
    println!("{}: probed after {:?}", DB::SHORT_NAME, calls[1].at - calls[0].at);
    assert!(calls[1].at - calls[0].at >= Duration::from_millis(500), "after the pause");
    // The poll interval is an hour. A loaded machine may take a few seconds instead of one.
    assert!(calls[1].at - calls[0].at < Duration::from_secs(20), "without waiting for a poll");
    outbox.shutdown().await.unwrap();
}

/// A call of `poll_once` skips the events of a paused listener, some of them below the low watermark. The poller
/// must know of them, although it did not claim itself.
async fn events_skipped_during_a_pause_are_delivered_after_it<DB: TestDatabase>(db: Fresh<DB>) {
    let (mails, up) = (CallLog::default(), Arc::new(AtomicBool::new(false)));
    let registry = with_mail(recording_listeners(&CallLog::default()), &mails, &up);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    // Long enough that the next scheduled poll is far away.
    let begun = Instant::now();
    eventually("the poller is idle", async || begun.elapsed() > Duration::from_secs(4)).await;
    write(&outbox, &[event("Mail")]).await;
    mails.wait_for(1).await;
    eventually("it is released", async || with_status(&db, 2).await == 1).await;
    db.run("DELETE FROM outbox_event").await;
    up.store(true, Ordering::SeqCst);
    insert_due(&db, &outbox, &["Mail"; 30]).await;
    (&db, outbox.store()).age(Duration::from_secs(60)).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 0, "the listener is paused");
    eventually("all are delivered", async || with_status(&db, 1).await == 30).await;
    let calls = mails.calls();
    let waited = calls[1].at - calls[0].at;
    println!("{}: probed after {waited:?}", DB::SHORT_NAME);
    assert!(waited < Duration::from_secs(8), "{waited:?}");
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    a_breaker_opens_releases_events_probes_and_closes,
    a_half_open_breaker_without_events_causes_no_claims,
    an_event_of_another_process_can_be_the_probe,
    events_skipped_during_a_pause_are_delivered_after_it,
);
