//! Outboxes of a group that share their workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::EventEnvelope;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_database};
use tokio::sync::Semaphore;

use crate::harness::{HOUR, blocking_listener, insert_due, recording_listeners, write};

/// Counts the calls that run, and the most that have run at once.
#[derive(Debug, Default)]
struct Running {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Returns a listener for event `A` that records the call, and counts it until a semaphore permits its end.
fn counted(
    calls: &CallLog,
    running: &Arc<Running>,
    semaphore: &Arc<Semaphore>,
) -> ListenerRegistry {
    let (calls, running, semaphore) = (calls.clone(), Arc::clone(running), Arc::clone(semaphore));
    ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        calls.record(&delivery);
        let now = running.now.fetch_add(1, Ordering::SeqCst) + 1;
        running.most.fetch_max(now, Ordering::SeqCst);
        let (running, semaphore) = (Arc::clone(&running), Arc::clone(&semaphore));
        async move {
            semaphore.acquire().await.expect("it is not closed").forget();
            running.now.fetch_sub(1, Ordering::SeqCst);
        }
    })
}

fn events(count: usize) -> Vec<EventEnvelope> {
    (0..count).map(|_| event("A")).collect()
}

async fn no_outbox_starves_another_and_the_limit_holds<DB: TestDatabase>(db: Fresh<DB>) {
    let (busy, late, running) = (CallLog::default(), CallLog::default(), Arc::default());
    let (gate, late_gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let outboxes = outbox::group((
        outbox::builder(&db.pool)
            .name("busy")
            .table("busy_outbox")
            .poll_interval(HOUR)
            .listeners(counted(&busy, &running, &gate)),
        outbox::builder(&db.pool)
            .name("late")
            .table("late_outbox")
            .poll_interval(HOUR)
            .listeners(counted(&late, &running, &late_gate)),
    ))
    .share_workers(8)
    .start()
    .await
    .unwrap();
    let (busy_outbox, late_outbox) = outboxes.handles();
    // From both queues: more than there are workers.
    write(busy_outbox, &events(30)).await;
    insert_due(&db, busy_outbox, &["A"; 30]).await;
    busy_outbox.poll_once().await.unwrap();
    busy.wait_for(7).await;
    // All calls of the busy outbox are stuck; the other one gets the worker that is left, again and again.
    late_gate.add_permits(5);
    for served in 1..=5 {
        write(late_outbox, &events(1)).await;
        late.wait_for(served).await;
    }
    assert_eq!((busy.count(), running.most.load(Ordering::SeqCst)), (7, 8));

    // Both have a backlog now. Each worker that becomes free goes to one after the other.
    write(late_outbox, &events(30)).await;
    late.wait_for(6).await;
    gate.add_permits(60);
    late_gate.add_permits(30);
    busy.wait_for(60).await;
    late.wait_for(35).await;
    outboxes.shutdown().await.unwrap();
    busy.assert_each_once(60);
    late.assert_each_once(35);
    assert_eq!(running.most.load(Ordering::SeqCst), 8, "the most calls at once");
}

/// An event that waits for a worker of another outbox for longer than its lease is still delivered once.
async fn waiting_for_a_worker_costs_no_attempt<DB: TestDatabase>(db: Fresh<DB>) {
    let (stuck, waiting, gate) =
        (CallLog::default(), CallLog::default(), Arc::new(Semaphore::new(0)));
    let builder = |name: &str| {
        let builder = outbox::builder(&db.pool).name(name).table(format!("{name}_outbox"));
        builder.lease(Duration::from_secs(1)).poll_interval(Duration::from_millis(200))
    };
    let outboxes = outbox::group((
        builder("stuck").listeners(blocking_listener(&stuck, &gate)),
        builder("waiting").listeners(recording_listeners(&waiting)),
    ))
    .share_workers(1)
    .start()
    .await
    .unwrap();
    let (stuck_outbox, waiting_outbox) = outboxes.handles();
    write(stuck_outbox, &events(1)).await;
    stuck.wait_for(1).await;
    write(waiting_outbox, &events(3)).await;
    // Nothing started within a lease, so they were released and claimed again.
    let token = "SELECT MIN(claim_token) FROM waiting_outbox";
    eventually("their lease is over", async || db.number(token).await > 2).await;
    assert_eq!(waiting.count(), 0, "there is one worker");
    gate.add_permits(1);
    waiting.wait_for(3).await;
    outboxes.shutdown().await.unwrap();
    waiting.assert_each_once(3);
    let failed =
        "SELECT COUNT(*) FROM waiting_outbox WHERE attempts + takeovers > 0 OR status <> 1";
    assert_eq!(db.number(failed).await, 0);
}

/// An outbox that is shut down while its events wait for a worker releases them.
async fn a_shutdown_does_not_wait_for_workers_of_others<DB: TestDatabase>(db: Fresh<DB>) {
    let (stuck, waiting, gate) =
        (CallLog::default(), CallLog::default(), Arc::new(Semaphore::new(0)));
    let builder = |name: &str| {
        let builder = outbox::builder(&db.pool).name(name).table(format!("{name}_outbox"));
        builder.poll_interval(HOUR).drain_timeout(Duration::from_millis(100))
    };
    let outboxes = outbox::group((
        builder("stuck").listeners(blocking_listener(&stuck, &gate)),
        builder("waiting").listeners(recording_listeners(&waiting)),
    ))
    .share_workers(1)
    .start()
    .await
    .unwrap();
    let (stuck_outbox, waiting_outbox) = outboxes.handles();
    write(stuck_outbox, &events(1)).await;
    stuck.wait_for(1).await;
    write(waiting_outbox, &events(3)).await;
    waiting_outbox.shutdown().await.unwrap();
    let released = "SELECT COUNT(*) FROM waiting_outbox WHERE locked_by IS NULL AND status = 0";
    assert_eq!((waiting.count(), db.number(released).await), (0, 3));
    // A worker that is granted to an outbox that has ended is not lost.
    gate.add_permits(9);
    write(stuck_outbox, &events(5)).await;
    stuck.wait_for(6).await;
    outboxes.shutdown().await.unwrap();
}

on_every_database!(
    no_outbox_starves_another_and_the_limit_holds,
    waiting_for_a_worker_costs_no_attempt,
    a_shutdown_does_not_wait_for_workers_of_others,
);
