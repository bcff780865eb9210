//! Faults that a group of outboxes reports before any of them starts.

use std::ops::ControlFlow;

use outbox::config::{Mode, Unhandled};
use outbox::error::{StartError, StartFault};
use outbox::listener::{ClaimedEvent, ListenerRegistry, PollerHandler, RegistryFault};
use outbox::{Builder, Error};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Sqlite, SqlitePool};

use super::{Mailer, Printer, assert_place, line_of};

fn pool() -> SqlitePool {
    let options = SqlitePoolOptions::new().max_connections(1).min_connections(1);
    options.connect_lazy("sqlite::memory:").unwrap()
}

/// Returns the builder of the unnamed outbox, with the states that its listeners need.
fn unnamed(pool: &SqlitePool) -> Builder<Sqlite> {
    outbox::builder(pool).state(Mailer).state(Printer).unhandled(Unhandled::Allow)
}

fn named(pool: &SqlitePool, name: &str) -> Builder<Sqlite> {
    outbox::builder(pool).name(name).table(format!("{name}_outbox")).unhandled(Unhandled::Allow)
}

fn refused<H>(started: Result<H, Error>) -> StartError {
    match started {
        Err(Error::Start(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was started"),
    }
}

async fn tables(pool: &SqlitePool) -> i64 {
    sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_master").fetch_one(pool).await.unwrap()
}

/// Returns the listener, the line and the outbox of each fault about an outbox that is not started.
fn unserved(error: &StartError) -> Vec<(String, u32, Option<String>)> {
    let faults = error.faults().iter().filter_map(|fault| match fault {
        StartFault::Registry(RegistryFault::Unserved { listener, place, outbox, .. }) => {
            assert_place(*place, place.line);
            Some((listener.clone(), place.line, outbox.clone()))
        }
        _ => None,
    });
    faults.collect()
}

#[tokio::test]
async fn a_listener_whose_outbox_is_not_started_is_reported() {
    let pool = pool();
    // A typo: the listeners name `twice` and `elsewhere`.
    let group = outbox::group((unnamed(&pool), named(&pool, "once"), named(&pool, "twise")));
    let error = refused(group.start().await);
    let line = line_of;
    let expected = [
        ("`registry::on_misrouted`", line("outbox = \"elsewhere\""), "elsewhere"),
        ("`registry::twice::first`", line("Placed { .. }, outbox"), "twice"),
        ("`registry::twice::second`", line("event = \"Ordered\""), "twice"),
    ];
    let expected = expected
        .map(|(listener, line, outbox)| (listener.to_owned(), line, Some(outbox.to_owned())));
    assert_eq!(unserved(&error), expected);
    let text = error.to_string();
    for part in [
        "the group of outboxes cannot be started, for 4 reasons:\n  - `registry::on_misrouted` (",
        "registry/main.rs:",
        "serves the outbox `elsewhere`, which is not in the group (it has `once`, `twise`); correct the name",
        "\n  - outbox `twise`: no listener serves the outbox `twise`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(tables(&pool).await, 0, "no table is created for a group that cannot be started");
}

#[tokio::test]
async fn a_listener_without_a_name_needs_an_unnamed_outbox() {
    let pool = pool();
    let error = refused(outbox::group((named(&pool, "once"),)).start().await);
    let missing = unserved(&error).into_iter().filter(|(_, _, outbox)| outbox.is_none());
    let missing: Vec<String> = missing.map(|(listener, _, _)| listener).collect();
    assert_eq!(missing, ["`registry::on_placed`", "`registry::on_paid`"]);
    let text = error.to_string();
    let part =
        "names no outbox, and the group has no unnamed one (it has `once`); add `outbox = \"..\"`";
    assert!(text.contains(part), "{text}");
}

#[tokio::test]
async fn listeners_of_other_programs_can_be_permitted() {
    let pool = pool();
    let outboxes = outbox::group((named(&pool, "once"),)).allow_unserved().start().await.unwrap();
    let (once,) = outboxes.handles();
    assert_eq!(once.admin().table().name(), "once_outbox");
    outboxes.shutdown().await.unwrap();
}

/// The registry decides which listeners an outbox has, so that shards can have the same ones under different names.
/// A process that only writes, and a handler, leave the listeners of their outbox to others.
#[tokio::test]
async fn every_way_to_serve_listeners_counts() {
    struct Forward;
    impl PollerHandler for Forward {
        fn available_capacity(&self) -> usize {
            0
        }

        fn handle(&self, _: ClaimedEvent, _: u32) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
    }
    let pools = [pool(), pool()];
    let shards: Vec<Builder<Sqlite>> = pools
        .iter()
        .enumerate()
        .map(|(shard, pool)| {
            unnamed(pool).name(format!("shard-{shard}")).listeners(ListenerRegistry::linked())
        })
        .collect();
    let pool = pool();
    let group = outbox::group((
        shards,
        (named(&pool, "once"), named(&pool, "elsewhere").handler(Forward)),
        named(&pool, "twice").mode(Mode::WriterOnly),
    ));
    let outboxes = group.start().await.unwrap();
    let (shards, (once, _), _) = outboxes.handles();
    assert_eq!((shards.len(), once.admin().table().name()), (2, "once_outbox"));
    let text = format!("{outboxes:?}");
    assert!(text.contains("Some(\"shard-1\"), Some(\"once\"), Some(\"elsewhere\")"), "{text}");
    outboxes.shutdown().await.unwrap();
}

#[tokio::test]
async fn all_faults_of_all_outboxes_are_reported_with_their_names() {
    let several = SqlitePoolOptions::new().connect_lazy("sqlite::memory:").unwrap();
    let pool = pool();
    let group = outbox::group((
        outbox::builder(&pool).unhandled(Unhandled::Allow).workers(0),
        named(&pool, "twice").notify(),
        named(&several, "once"),
    ));
    let error = refused(group.allow_unserved().share_workers(0).start().await);
    let found: Vec<(Option<&str>, &str)> = error
        .faults()
        .iter()
        .map(|fault| match fault {
            StartFault::Config(fault) => (None, fault.option),
            StartFault::InGroup { outbox, fault, .. } => {
                let outbox = Some(outbox.as_deref().unwrap_or("unnamed"));
                match &**fault {
                    StartFault::Config(fault) => (outbox, fault.option),
                    StartFault::Registry(RegistryFault::MissingState { state, .. }) => {
                        (outbox, *state)
                    }
                    StartFault::Registry(RegistryFault::Duplicate { .. }) => (outbox, "duplicate"),
                    StartFault::SharedMemory => (outbox, "memory"),
                    other => panic!("{other}"),
                }
            }
            other => panic!("{other}"),
        })
        .collect();
    let expected = [
        (None, "share_workers"),
        (Some("unnamed"), "workers"),
        (Some("unnamed"), "registry::Mailer"),
        (Some("unnamed"), "registry::Printer"),
        (Some("twice"), "duplicate"),
        (Some("twice"), "notify"),
        (Some("once"), "memory"),
    ];
    assert_eq!(found, expected);
    let text = error.to_string();
    assert!(text.contains("\n  - the unnamed outbox: `workers` must be at least 1"), "{text}");
    assert!(text.contains("\n  - outbox `twice`: two listeners for event `Ordered`"), "{text}");
    assert_eq!(tables(&pool).await, 0);
}

#[tokio::test]
async fn each_outbox_needs_a_name_of_its_own() {
    let pool = pool();
    let same = (named(&pool, "once"), named(&pool, "once").table("other"));
    let error = refused(outbox::group(same).allow_unserved().start().await);
    let [StartFault::SameName { outbox, first_table, second_table, .. }] = error.faults() else {
        panic!("{error}")
    };
    assert_eq!(
        (outbox.as_deref(), &**first_table, &**second_table),
        (Some("once"), "once_outbox", "other")
    );
    let registry = || ListenerRegistry::new().allow_empty();
    let unnamed = || outbox::builder(&pool).listeners(registry());
    let error = refused(
        outbox::group((unnamed(), unnamed().table("other"))).allow_unserved().start().await,
    );
    assert!(matches!(error.faults(), [StartFault::SameName { outbox: None, .. }]), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("(the unnamed outbox, with the tables `outbox_event` and `other`)"),
        "{text}"
    );
    assert_eq!(tables(&pool).await, 0);
}
