//! Several outboxes of one process that are started and shut down together.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use outbox::config::Ordering;
use outbox::error::{StartError, StartFault};
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{Builder, Error, Outbox};
use outbox_tests::{
    CallLog, Fresh, Proxy, TestDatabase, event, eventually, on_every_database, on_every_server,
};
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Postgres, Sqlite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::harness::{HOUR, blocking_listener, insert_due, recording_listeners, write};

/// Returns the builder of an outbox with a name and a table of its own.
fn named<DB: TestDatabase>(db: &Fresh<DB>, name: &str, registry: ListenerRegistry) -> Builder<DB> {
    let builder = outbox::builder(&db.pool).name(name).table(format!("{name}_outbox"));
    builder.listeners(registry).poll_interval(HOUR)
}

fn refused<H>(started: Result<H, Error>) -> StartError {
    match started {
        Err(Error::Start(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was started"),
    }
}

async fn rows<DB: TestDatabase>(db: &Fresh<DB>, table: &str, condition: &str) -> i64 {
    db.number(format!("SELECT COUNT(*) FROM {table} WHERE {condition}")).await
}

async fn two_tables_of_one_database_have_their_own_events<DB: TestDatabase>(db: Fresh<DB>) {
    let (org_calls, hrm_calls) = (CallLog::default(), CallLog::default());
    let outboxes = outbox::group((
        named(&db, "org", recording_listeners(&org_calls)),
        named(&db, "hrm", recording_listeners(&hrm_calls)),
    ))
    .start()
    .await
    .unwrap();
    let (org, hrm) = outboxes.handles();
    let (org_events, hrm_events) = ([event("A"), event("B")], [event("A"), event("C"), event("C")]);
    write(org, &org_events).await;
    write(hrm, &hrm_events).await;
    insert_due(&db, org, &["C"]).await;
    org.poll_once().await.unwrap();
    org_calls.wait_for(3).await;
    hrm_calls.wait_for(3).await;
    outboxes.shutdown().await.unwrap();
    let mut types = [org_calls.types(), hrm_calls.types()];
    types.iter_mut().for_each(|types| types.sort());
    assert_eq!(types, [["A", "B", "C"], ["A", "C", "C"]]);
    for table in ["org_outbox", "hrm_outbox"] {
        assert_eq!(rows(&db, table, "status = 1").await, 3, "{table}");
    }
    assert!(matches!(org.poll_once().await, Err(Error::Closed)));
    assert!(matches!(hrm.poll_once().await, Err(Error::Closed)));
    outboxes.shutdown().await.unwrap();
}

/// The conflict is found before either of them delivers an event.
async fn two_outboxes_on_one_table_are_compared<DB: TestDatabase>(db: Fresh<DB>) {
    let registry = || ListenerRegistry::new().register_for("Order", "A", |_: Delivery| async {});
    let other = ListenerRegistry::new().register_for("Order", "A", |_: Delivery| async {});
    let one = || named(&db, "one", registry());
    let error = refused(outbox::group((one(), one().name("two").listeners(other))).start().await);
    let [StartFault::InGroup { outbox: Some(outbox), fault, .. }] = error.faults() else {
        panic!("{error}")
    };
    assert!(matches!(**fault, StartFault::SharedTable { .. }), "{error}");
    assert_eq!(outbox, "two");
    // The same listeners in another order.
    let error = refused(
        outbox::group((one(), one().name("two").order(Ordering::PerAggregate))).start().await,
    );
    let text = error.to_string();
    let part = "outbox `two`: table `one_outbox` already has an outbox in this process, with the order `Unordered`";
    assert!(text.contains(part), "{text}");
    // Nothing stays behind that a later start would be compared with.
    let outboxes = outbox::group((one(), one().name("two"))).start().await.unwrap();
    outboxes.shutdown().await.unwrap();
}

/// Databases of three kinds in one process. A listener of the first writes to the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outboxes_of_several_databases_run_in_one_process() {
    let sqlite = Fresh::<Sqlite>::new().await.unwrap();
    let (Some(postgres), Some(mysql)) =
        (Fresh::<Postgres>::new().await, Fresh::<MySql>::new().await)
    else {
        return;
    };
    let logs: [CallLog; 3] = std::array::from_fn(|_| CallLog::default());
    let outboxes = outbox::group((
        named(&sqlite, "a", recording_listeners(&logs[0])),
        named(&postgres, "b", recording_listeners(&logs[1])),
        named(&mysql, "c", recording_listeners(&logs[2])),
    ))
    .share_workers(4)
    .start()
    .await
    .unwrap();
    let (a, b, c) = outboxes.handles();
    for _ in 0..20 {
        write(a, &[event("A"), event("B")]).await;
        write(b, &[event("A"), event("B")]).await;
        write(c, &[event("A"), event("B")]).await;
    }
    for log in &logs {
        log.wait_for(40).await;
    }
    outboxes.shutdown().await.unwrap();
    for log in &logs {
        log.assert_each_once(40);
    }
    assert_eq!(rows(&sqlite, "a_outbox", "status = 1").await, 40);
    assert_eq!(rows(&postgres, "b_outbox", "status = 1").await, 40);
    assert_eq!(rows(&mysql, "c_outbox", "status = 1").await, 40);
}

/// No outbox is started if the database of another one cannot be used.
async fn an_unreachable_database_keeps_all_from_starting<DB: TestDatabase>(db: Fresh<DB>) {
    let calls = CallLog::default();
    let earlier = named(&db, "sound", recording_listeners(&calls)).start().await.unwrap();
    earlier.pause().unwrap();
    insert_due(&db, &earlier, &["A"]).await;
    earlier.shutdown().await.unwrap();
    let missing = PoolOptions::<Sqlite>::new().connect_lazy("sqlite:/no/such/folder/x.db").unwrap();
    let missing = outbox::builder(missing).name("missing").listeners(recording_listeners(&calls));
    let sound = named(&db, "sound", recording_listeners(&calls));
    let error = refused(outbox::group((sound, missing)).start().await);
    let [StartFault::InGroup { outbox: Some(outbox), fault, .. }] = error.faults() else {
        panic!("{error}")
    };
    assert!(matches!(**fault, StartFault::Database(_)), "{error}");
    assert_eq!(outbox, "missing");
    assert_eq!(calls.count(), 0);
    assert_eq!(rows(&db, "sound_outbox", "claim_token > 0").await, 0, "nothing was claimed");
}

/// The second outbox passes all checks, and then its relay gets no connection for a second. The first one is started by
/// then, and has an event to deliver.
async fn no_event_is_delivered_unless_all_are_started<DB: TestDatabase>(db: Fresh<DB>) {
    let Some(other) = Fresh::<Postgres>::new().await else { return };
    let calls = CallLog::default();
    let earlier = named(&db, "first", ListenerRegistry::new().allow_empty());
    let earlier = earlier.start().await.unwrap();
    insert_due(&db, &earlier, &["A"]).await;
    earlier.shutdown().await.unwrap();
    let first = || named(&db, "first", recording_listeners(&calls));

    // It accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let pool = other.single().await;
    pool.set_connect_options((*pool.connect_options()).clone().host("127.0.0.1").port(port));
    let second = outbox::builder(pool).name("second").lease(Duration::from_secs(4));
    let second = second.listeners(recording_listeners(&calls));
    let error = refused(outbox::group((first(), second)).start().await);
    let [StartFault::InGroup { outbox: Some(outbox), .. }] = error.faults() else {
        panic!("{error}")
    };
    assert_eq!((&**outbox, calls.count()), ("second", 0));
    assert_eq!(rows(&db, "first_outbox", "claim_token > 0").await, 0, "nothing was claimed");

    let outboxes = outbox::group((first(),)).start().await.unwrap();
    calls.wait_for(1).await;
    outboxes.shutdown().await.unwrap();
}

/// A listener of the first outbox writes to the second one, whose handle it gets before its first call.
async fn handles_are_known_before_the_first_event<DB: TestDatabase>(db: Fresh<DB>) {
    let (calls, forwarded) = (CallLog::default(), CallLog::default());
    let earlier = named(&db, "first", ListenerRegistry::new().allow_empty());
    let earlier = earlier.start().await.unwrap();
    insert_due(&db, &earlier, &["A", "A", "A"]).await;
    earlier.shutdown().await.unwrap();

    let target: Arc<OnceLock<Outbox<DB>>> = Arc::default();
    let (seen, outbox) = (calls.clone(), Arc::clone(&target));
    let forward = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        seen.record(&delivery);
        let outbox = outbox.get().cloned();
        async move {
            let outbox = outbox.ok_or_else(|| outbox::ListenerError::from("not started"))?;
            write(&outbox, &[event("B")]).await;
            outbox::ListenerResult::<()>::Ok(())
        }
    });
    let outboxes = outbox::group((
        named(&db, "first", forward),
        named(&db, "second", recording_listeners(&forwarded)),
    ))
    .start_with(|(_, second)| assert!(target.set(second.clone()).is_ok()))
    .await
    .unwrap();
    forwarded.wait_for(3).await;
    outboxes.shutdown().await.unwrap();
    calls.assert_each_once(3);
    assert_eq!(rows(&db, "first_outbox", "status = 1 AND attempts = 0").await, 3);
}

/// The results of one outbox cannot be recorded. The other one is shut down cleanly meanwhile.
async fn a_failing_database_does_not_keep_the_others_running<DB: TestDatabase>(db: Fresh<DB>) {
    let sound = Fresh::<Sqlite>::new().await.unwrap();
    let proxy = Proxy::before(&db.url()).await;
    let options = DB::named(proxy.url(), db.name());
    let pool = PoolOptions::<DB>::new().connect_with(options).await.unwrap();
    let (calls, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let failing = outbox::builder(pool).name("failing").drain_timeout(Duration::from_secs(1));
    let outboxes = outbox::group((
        failing.listeners(blocking_listener(&calls, &semaphore)),
        named(&sound, "sound", blocking_listener(&calls, &semaphore)),
    ))
    .start()
    .await
    .unwrap();
    let (first, second) = outboxes.handles();
    write(first, &[event("A")]).await;
    write(second, &[event("A")]).await;
    calls.wait_for(2).await;
    proxy.refuse(true);
    proxy.freeze();
    semaphore.add_permits(2);
    let shutdown = async {
        let begun = Instant::now();
        let Err(Error::Shutdown(error)) = outboxes.shutdown().await else { panic!("it is clean") };
        (error, begun.elapsed())
    };
    let sound_is_done = async {
        let settled = async || rows(&sound, "sound_outbox", "status = 1").await == 1;
        eventually("the other one is settled", settled).await;
        eventually("and closed", async || second.poll_once().await.is_err()).await;
    };
    let ((error, took), ()) = tokio::join!(shutdown, sound_is_done);
    println!("{}: the shutdown of the group took {took:?}", DB::SHORT_NAME);
    assert!(took < Duration::from_secs(13), "{took:?}");
    let failures = error.failures();
    assert_eq!(failures.len(), 1, "{error}");
    assert_eq!(failures[0].outbox.as_deref(), Some("failing"));
    let text = error.to_string();
    assert!(
        text.starts_with("an outbox was not shut down cleanly: outbox `failing`: the database"),
        "{text}"
    );
    assert_eq!(rows(&sound, "sound_outbox", "locked_by IS NOT NULL").await, 0);
}

mod everywhere {
    use super::*;

    on_every_database!(
        two_tables_of_one_database_have_their_own_events,
        two_outboxes_on_one_table_are_compared,
        an_unreachable_database_keeps_all_from_starting,
        no_event_is_delivered_unless_all_are_started,
        handles_are_known_before_the_first_event,
    );
}

on_every_server!(a_failing_database_does_not_keep_the_others_running);
