//! A listener that cannot reach what it talks to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outbox::{Delivery, EventEnvelope, ListenerError, Status};
use outbox_tests::{Fresh, Heard, TestDatabase, event, eventually, on_every_database};

use crate::harness::{first_row, listening, locked, quiet, with_status, write};

async fn a_breaker_opens_gives_back_tries_one_and_closes<DB: TestDatabase>(db: Fresh<DB>) {
    let heard = Heard::default();
    let up = Arc::new(AtomicBool::new(false));
    let (noted, reachable) = (heard.clone(), Arc::clone(&up));
    let others = Heard::default();
    let registry =
        listening(&others).register_for("Order", "Mail", move |delivery: Delivery| {
            let up = reachable.load(Ordering::SeqCst);
            noted.note(&delivery);
            async move {
                if up { Ok(()) } else { Err(ListenerError::unreachable("mail server is down")) }
            }
        });
    let outbox = quiet(&db, registry).workers(1).start().await.unwrap();
    let mails: Vec<EventEnvelope> = (0..40).map(|_| event("Mail")).collect();
    write(&outbox, &mails).await;
    heard.reach(1).await;
    // One call was enough: everything else went back, and nothing was spent.
    eventually("all are given back", async || {
        with_status(&db, 2).await == 40 && locked(&db).await == 0
    })
    .await;
    assert_eq!(heard.count(), 1);
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.attempts, row.last_error), (Status::Retry, 0, None));
    // Meanwhile its events get no seat, and others flow.
    write(&outbox, &[event("Mail"), event("A")]).await;
    others.reach(1).await;
    let mails = "SELECT COUNT(locked_by) FROM outbox_event WHERE event_type = 'Mail'";
    assert_eq!(db.number(mails).await, 0, "no seat for a paused listener");
    // When the pause ends, a single event tries; while it fails, no other does.
    heard.reach(2).await;
    heard.reach(3).await;
    assert!(heard.calls()[2].at - heard.calls()[1].at >= std::time::Duration::from_millis(500));
    up.store(true, Ordering::SeqCst);
    eventually("all are delivered", async || with_status(&db, 1).await == 42).await;
    // 41 deliveries, and as many failed tries as there were pauses.
    let tries = heard.count() - 41;
    assert!((3..=5).contains(&tries), "{tries}");
    assert_eq!(first_row(&db, &outbox).await.attempts, 0);
    outbox.shutdown().await.unwrap();
}

on_every_database!(a_breaker_opens_gives_back_tries_one_and_closes);
