//! Registered subscriptions and running nodes.

use std::time::Duration;

use outbox_runtime::store::{Registered, Store, Table};
use outbox_tests::{Fresh, TestDatabase, eventually, on_every_database};

fn subscription(name: &str, aggregate_type: &str, event_type: &str) -> Registered {
    let (name, aggregate_type) = (name.to_owned(), aggregate_type.to_owned());
    Registered { name, aggregate_type, event_type: event_type.to_owned(), paused: false }
}

fn paused(registered: Registered) -> Registered {
    Registered { paused: true, ..registered }
}

/// Returns the time some hours ago, as SQL.
fn hours_ago<DB: TestDatabase>(hours: u32) -> String {
    match DB::SHORT_NAME {
        "postgres" => format!("now() - interval '{hours} hours'"),
        "mysql" => format!("UTC_TIMESTAMP(6) - INTERVAL {hours} HOUR"),
        _ => format!("CAST(unixepoch('subsec') * 1000000 AS INTEGER) - {hours} * 3600000000"),
    }
}

async fn subscriptions_are_registered_once<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    assert_eq!(store.registered().await.unwrap(), []);
    store.register(&[]).await.unwrap();
    let (mail, billing) =
        (subscription("mail", "Order", "Placed"), subscription("billing", "Order", "Placed"));
    let unnamed = subscription("", "Order", "Placed");
    // In any order, and also twice.
    let all = [mail.clone(), billing.clone(), unnamed.clone(), mail.clone()];
    store.register(&all).await.unwrap();
    store.register(&all).await.unwrap();
    let expected = [unnamed, billing, mail.clone()];
    assert_eq!(store.registered().await.unwrap(), expected);
    // Another outbox of this database has its own.
    let other = db.store_of(&Table::new("other").unwrap()).await;
    assert_eq!(other.registered().await.unwrap(), []);
    other.register(std::slice::from_ref(&mail)).await.unwrap();
    assert_eq!(store.unregister("mail").await.unwrap(), 1);
    assert_eq!(store.unregister("mail").await.unwrap(), 0);
    assert_eq!(store.registered().await.unwrap(), expected[..2]);
    assert_eq!(other.registered().await.unwrap(), [mail]);
}

async fn a_registration_keeps_when_it_was_first_seen<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let seen = async || -> [String; 2] {
        let text = |column: &str| format!("CAST({column} AS CHAR(40))");
        let (first, last) = (text("first_seen"), text("last_seen"));
        db.texts(format!("SELECT {first}, {last} FROM outbox_subscription")).await.remove(0)
    };
    let mail = [subscription("mail", "Order", "Placed")];
    store.register(&mail).await.unwrap();
    let [first, last] = seen().await;
    assert_eq!(first, last);
    eventually("it is seen again", async || {
        store.register(&mail).await.unwrap();
        seen().await[1] != last
    })
    .await;
    assert_eq!(seen().await[0], first);
}

async fn a_pause_survives_registrations<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let placed = subscription("billing", "Order", "Placed");
    let (paid, mail) = (subscription("billing", "Order", "Paid"), subscription("mail", "", ""));
    store.register(&[placed.clone(), mail.clone()]).await.unwrap();
    assert_eq!(store.set_paused("billing", true).await.unwrap(), 1);
    assert_eq!(store.set_paused("unknown", true).await.unwrap(), 0);
    // A type that the new version of a program adds is paused with the others.
    store.register(&[placed.clone(), paid.clone(), mail.clone()]).await.unwrap();
    let expected = [paused(paid.clone()), paused(placed.clone()), mail.clone()];
    assert_eq!(store.registered().await.unwrap(), expected);
    assert_eq!(
        db.number("SELECT COUNT(*) FROM outbox_subscription WHERE paused = 1").await,
        2,
        "both rows say so"
    );
    assert_eq!(store.set_paused("billing", true).await.unwrap(), 2, "it is paused already");
    assert_eq!(store.set_paused("billing", false).await.unwrap(), 2);
    assert_eq!(store.registered().await.unwrap(), [paid, placed, mail]);
    // A name is paused as a whole, if only one of its rows says so.
    db.run("UPDATE outbox_subscription SET paused = 1 WHERE event_type = 'Paid'").await;
    assert_eq!(store.registered().await.unwrap(), expected);
}

async fn patterns_and_long_names_are_registered<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let mut all = vec![
        subscription("audit", "", ""),
        subscription("audit", "", "Placed"),
        subscription("audit", "Order", ""),
        subscription("audit", "order", "placed"),
        subscription("audit", "Order", "Placed"),
        subscription(&"n".repeat(64), &"\u{1f600}".repeat(64), &"\u{1f600}".repeat(128)),
        subscription("quotes", "a\"b", "c\\d'e"),
    ];
    store.register(&all).await.unwrap();
    all.sort_unstable();
    assert_eq!(store.registered().await.unwrap(), all);
    // More than one statement has room for.
    let many: Vec<Registered> =
        (0..1100).map(|number| subscription("many", "Order", &format!("{number:05}"))).collect();
    store.register(&many).await.unwrap();
    let registered = store.registered().await.unwrap();
    assert_eq!(registered.iter().filter(|each| each.name == "many").count(), 1100);
}

/// A deployment starts many nodes at once.
async fn concurrent_registrations_succeed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let nodes: Vec<_> = (0..8)
        .map(|node: usize| {
            let store: Store<DB> = store.clone();
            tokio::spawn(async move {
                let mut all: Vec<Registered> = (0..20)
                    .map(|number| subscription(&format!("name-{number}"), "Order", "Placed"))
                    .collect();
                all.rotate_left(node * 2);
                all.push(subscription(&format!("own-{node}"), "", ""));
                for _ in 0..10 {
                    store.register(&all).await.unwrap();
                    store.set_paused("name-7", node.is_multiple_of(2)).await.unwrap();
                    store.beat(&format!("node-{node}"), "{}").await.unwrap();
                }
            })
        })
        .collect();
    for node in nodes {
        node.await.unwrap();
    }
    assert_eq!(store.registered().await.unwrap().len(), 28);
    assert_eq!(store.nodes().await.unwrap().len(), 8);
}

async fn a_node_is_listed_until_it_leaves<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    assert_eq!(store.nodes().await.unwrap(), []);
    store.beat("b", "{\"running\":1}").await.unwrap();
    store.beat("a", "{}").await.unwrap();
    let nodes = store.nodes().await.unwrap();
    assert_eq!(nodes.iter().map(|node| node.owner.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let before = &nodes[1];
    assert_eq!((before.state.as_str(), before.started_at), ("{\"running\":1}", before.seen_at));
    assert!(before.age < Duration::from_secs(60), "{before:?}");
    let long = format!("{{\"mode\":\"{}\u{1f600}\"}}", "x".repeat(100_000));
    eventually("it is seen again", async || {
        store.beat("b", &long).await.unwrap();
        store.nodes().await.unwrap()[1].seen_at > before.seen_at
    })
    .await;
    let after = store.nodes().await.unwrap().remove(1);
    assert_eq!((after.started_at, after.state), (before.started_at, long));
    store.leave("b").await.unwrap();
    store.leave("b").await.unwrap();
    assert_eq!(store.nodes().await.unwrap().len(), 1);
    let other = db.store_of(&Table::new("other").unwrap()).await;
    assert_eq!(other.nodes().await.unwrap(), []);
    other.leave("a").await.unwrap();
    assert_eq!(store.nodes().await.unwrap().len(), 1);
}

async fn a_lost_node_is_removed_after_a_day<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let other = db.store_of(&Table::new("other").unwrap()).await;
    for node in ["lost", "late"] {
        store.beat(node, "{}").await.unwrap();
        other.beat(node, "{}").await.unwrap();
    }
    for (node, hours) in [("lost", 25), ("late", 23)] {
        let ago = hours_ago::<DB>(hours);
        db.run(format!("UPDATE outbox_node SET seen_at = {ago} WHERE owner = '{node}'")).await;
    }
    let nodes = store.nodes().await.unwrap();
    let hours: Vec<u64> = nodes.iter().map(|node| node.age.as_secs() / 3600).collect();
    assert_eq!(hours, [23, 25], "late and lost");
    store.beat("new", "{}").await.unwrap();
    store.remove_lost_nodes().await.unwrap();
    let owners: Vec<String> =
        store.nodes().await.unwrap().into_iter().map(|node| node.owner).collect();
    assert_eq!(owners, ["late", "new"]);
    assert_eq!(other.nodes().await.unwrap().len(), 2, "those of another table stay");
}

on_every_database!(
    subscriptions_are_registered_once,
    a_registration_keeps_when_it_was_first_seen,
    a_pause_survives_registrations,
    patterns_and_long_names_are_registered,
    concurrent_registrations_succeed,
    a_node_is_listed_until_it_leaves,
    a_lost_node_is_removed_after_a_day,
);
