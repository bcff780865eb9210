//! Rows that another framework has inserted.

use outbox::{Delivery, ListenerRegistry, Status};
use outbox_tests::{Fresh, Heard, TestDatabase, eventually, on_every_database};

use crate::harness::{first_row, quiet, with_status};

/// A row of event `A` as another writer inserts it, with these headers and this due time.
async fn insert<DB: TestDatabase>(db: &Fresh<DB>, id: &str, headers: &str, available_at: &str) {
    db.run(format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, headers, status, \
         attempts, available_at, created_at) \
         VALUES ('{id}', 'A', 'Order', '{{}}', {headers}, 0, 0, {available_at}, {now})",
        now = DB::NOW
    ))
    .await;
}

/// A listener of event `A` that remembers its calls, and what it is asked to of each.
fn noting<T: Send + 'static>(
    heard: &Heard,
    note: impl Fn(&Delivery) -> T + Send + Sync + 'static,
) -> (ListenerRegistry, std::sync::mpsc::Receiver<T>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let heard = heard.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        let _ = sender.send(note(&delivery));
        heard.note(&delivery);
        async {}
    });
    (registry, receiver)
}

async fn a_header_that_is_null_is_left_out<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    insert(&db, "1", r#"'{"trace":null,"reply-to":"billing"}'"#, DB::NOW).await;
    let heard = Heard::default();
    let (registry, headers) = noting(&heard, |delivery| {
        let headers = delivery.envelope().headers().iter();
        headers.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    });
    let outbox = quiet(&db, registry).start().await.unwrap();
    eventually("it is done or dead", async || {
        with_status(&db, 1).await + with_status(&db, 3).await == 1
    })
    .await;
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.last_error), (Status::Done, None));
    assert_eq!(headers.recv().unwrap(), ["reply-to=billing"]);
}

on_every_database!(a_header_that_is_null_is_left_out);
