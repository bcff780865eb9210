//! A server that is away for long, and leases that are longer.

use std::collections::HashMap;
use std::time::Duration;

use outbox_tests::eventually;
use sqlx::{MySql, Postgres};

use crate::database::FaultDatabase;
use crate::invariants::Verdict;
use crate::process::Role;
use crate::testbed::{Arena, End, Habits};

const AWAY: Duration = Duration::from_secs(20);

async fn nothing_happens_twice<DB: FaultDatabase>() {
    let lease = Duration::from_secs(60);
    let habits = Habits { lease, pace: Duration::from_millis(10), failing: 0, seed: 1 };
    let Some(mut arena) = Arena::<DB>::open(habits).await else { return };
    let writer = Role { writers: 3, seats: 8, exhausts: false, own_clock: false };
    let children = vec![arena.start(writer), arena.start(Role { writers: 0, ..writer })];
    eventually("they work", async || arena.count("outbox_event WHERE status = 1").await > 500)
        .await;
    let (in_hand, lasted) = arena.outage(End::Stopped, AWAY).await;
    let done = arena.count("outbox_event WHERE status = 1").await;
    let more = async || arena.count("outbox_event WHERE status = 1").await > done + 500;
    eventually("they work again", more).await;
    arena.settle(children).await;
    let verdict = Verdict::of(&arena, &HashMap::new()).await;
    println!(
        "{}: away for {lasted:?}, {} in hand meanwhile, {} events",
        DB::SHORT_NAME,
        in_hand.len(),
        verdict.events
    );
    verdict.assert_right(&[]);
    assert!(lasted >= AWAY && !in_hand.is_empty(), "something was in hand");
    assert_eq!(verdict.repeated, 0);
}

/// Both at once: most of it is waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_away_for_twenty_seconds() {
    let _alone = crate::alone().await;
    tokio::join!(nothing_happens_twice::<Postgres>(), nothing_happens_twice::<MySql>());
}
