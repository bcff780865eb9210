//! Listeners that share workers and queues.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{LIMITS, listener, row, sequences, start_all};
use crate::clock::Clock;
use crate::event::Verdict;
use crate::inflight::{ConcurrencyLimit, InFlight, Limits, NoPermit, Permit, QueuedEvent};

const PLACES: usize = 160;

const ROOMY: Limits =
    Limits { workers: 16, hot: PLACES, cold: PLACES, batch: 20, bytes: 100_000, ..LIMITS };

/// Returns an `InFlight` with `count` listeners without limits, and the time of its clock.
fn listeners(count: usize) -> (Arc<InFlight>, Arc<Mutex<Instant>>) {
    let now = Arc::new(Mutex::new(Instant::now()));
    let limits = vec![ConcurrencyLimit::default(); count];
    (Arc::new(InFlight::new(ROOMY, &limits, Clock::Simulated(Arc::clone(&now)))), now)
}

fn admit(inflight: &InFlight, sequences: impl IntoIterator<Item = i64>, index: usize) {
    let rows = sequences.into_iter().map(|sequence| (row(sequence, 1), listener(index))).collect();
    inflight.admit(rows, inflight.now());
}

/// Returns how many of some events each listener has.
fn by_listener(events: &[QueuedEvent], count: usize) -> Vec<usize> {
    (0..count)
        .map(|index| events.iter().filter(|event| event.listener == listener(index)).count())
        .collect()
}

#[test]
fn a_single_listener_may_use_every_worker_and_place() {
    let (inflight, _) = listeners(1);
    let permits: Vec<Permit> =
        std::iter::from_fn(|| inflight.reserve(1, listener(0), 0).ok()).collect();
    assert_eq!(permits.len(), PLACES);
    admit(&inflight, 0..150, 0);
    let budget = inflight.start_claim();
    assert_eq!((budget.open, budget.free_places, budget.changes_in), (vec![true], 10, None));
    let started: Vec<QueuedEvent> = start_all(&inflight).into_iter().take(16).collect();
    assert_eq!(started.len(), 16);
}

#[test]
fn the_last_eighth_of_the_workers_is_reserved_for_listeners_without_a_call() {
    let (inflight, _) = listeners(4);
    admit(&inflight, 0..40, 0);
    let slow = start_all(&inflight);
    assert_eq!(slow.len(), 14, "two of sixteen are reserved");
    admit(&inflight, 100..110, 1);
    let other = start_all(&inflight);
    assert_eq!(sequences(&other), [100], "it starts at once, and leaves a worker for the next");
    admit(&inflight, 200..210, 2);
    assert_eq!(sequences(&start_all(&inflight)), [200]);
    inflight.finish(&other[0], Verdict::Done);
    assert_eq!(sequences(&start_all(&inflight)), [101], "no event of the slow listener");
    assert!(inflight.audit(&[]).is_ok());
}

#[test]
fn two_slow_listeners_together_leave_a_worker_for_a_third() {
    let (inflight, _) = listeners(3);
    for turn in 0..20 {
        admit(&inflight, [turn], 0);
        admit(&inflight, [100 + turn], 1);
    }
    let slow = start_all(&inflight);
    assert_eq!(by_listener(&slow, 3), [7, 7, 0]);
    admit(&inflight, 200..205, 2);
    assert_eq!(sequences(&start_all(&inflight)), [200]);
}

#[test]
fn free_workers_go_to_the_waiting_listeners_in_turn() {
    let (inflight, _) = listeners(2);
    admit(&inflight, 0..60, 0);
    let mut running = start_all(&inflight);
    admit(&inflight, 100..140, 1);
    running.extend(start_all(&inflight));
    assert_eq!(by_listener(&running, 2), [14, 1]);
    for _ in 0..14 {
        let ended = running.remove(0);
        inflight.finish(&ended, Verdict::Done);
        running.extend(start_all(&inflight));
    }
    assert_eq!(by_listener(&running, 2), [7, 7], "the listeners take turns");
    assert!(inflight.audit(&[]).is_ok());
}

#[test]
fn at_least_one_worker_is_reserved_if_there_are_two() {
    for (workers, most) in [(1, 1), (2, 1), (3, 2), (4, 3), (15, 14), (16, 14), (32, 28)] {
        let limits = Limits { workers, ..ROOMY };
        let inflight = InFlight::new(limits, &[ConcurrencyLimit::default(); 2], Clock::System);
        admit(&inflight, 0..40, 0);
        let started = start_all(&inflight).len();
        // A single worker cannot be reserved.
        assert_eq!(started, most, "of {workers} workers");
    }
}

#[test]
fn a_listener_leaves_an_eighth_of_the_hot_queue_to_others() {
    let (inflight, _) = listeners(3);
    let all = |index| -> Vec<Permit> {
        std::iter::from_fn(|| inflight.reserve(1, listener(index), 0).ok()).collect()
    };
    let slow = all(0);
    assert_eq!(slow.len(), 140);
    assert_eq!(inflight.reserve(1, listener(0), 0).unwrap_err(), NoPermit::Full);
    let second = all(1);
    assert_eq!(second.len(), 18, "seven eighths of what the first leaves");
    assert_eq!(all(2).len(), 1);
    drop(slow);
    assert!(inflight.reserve(1, listener(1), 0).is_ok());
}

/// Ends the first `count` calls, and starts the next events.
fn end(inflight: &InFlight, running: &mut Vec<QueuedEvent>, count: usize) {
    for event in running.drain(..count) {
        inflight.finish(&event, Verdict::Done);
        inflight.recorded(inflight.take_results(10), &[]);
    }
    running.extend(start_all(inflight));
}

#[test]
fn a_slow_listener_is_left_out_of_claims_when_its_portion_is_used_up() {
    let (inflight, now) = listeners(2);
    admit(&inflight, 0..130, 0);
    assert_eq!(inflight.start_claim().rows, 10, "its portion is 140");
    let mut running = start_all(&inflight);
    admit(&inflight, 200..220, 0);
    let budget = inflight.start_claim();
    assert_eq!((budget.free_places, budget.open), (0, vec![true, true]), "it may just be busy");
    assert_eq!(budget.changes_in, Some(Duration::from_millis(100)));
    assert_eq!(budget.reopens_in, None, "no pause ends");
    *now.lock().unwrap() += Duration::from_millis(100);
    let budget = inflight.start_claim();
    assert_eq!((budget.free_places, budget.open.clone()), (24, vec![false, true]), "it is slow");
    assert!(budget.free_places >= budget.worthwhile(20), "the others may use what it leaves");
    // Some of its calls end; its events are not claimed until much of its portion is free.
    for _ in 0..4 {
        end(&inflight, &mut running, 14);
        assert_eq!(inflight.start_claim().open, [false, true]);
    }
    end(&inflight, &mut running, 14);
    assert_eq!(inflight.start_claim().open, [true, true]);
}

#[test]
fn a_busy_listener_is_not_left_out_of_claims() {
    let (inflight, now) = listeners(2);
    admit(&inflight, 0..140, 0);
    let mut running = start_all(&inflight);
    for refill in 1..=10 {
        assert_eq!(inflight.start_claim().open, [true, true]);
        *now.lock().unwrap() += Duration::from_millis(90);
        end(&inflight, &mut running, 14);
        end(&inflight, &mut running, 14);
        let budget = inflight.start_claim();
        assert!(budget.free_places >= budget.worthwhile(20), "{budget:?}");
        admit(&inflight, refill * 1_000..refill * 1_000 + 28, 0);
    }
}

#[test]
fn a_second_slow_listener_leaves_places_for_a_third() {
    let (inflight, now) = listeners(3);
    for (index, rows) in [(0, 150), (1, 20)] {
        admit(&inflight, index * 1_000..index * 1_000 + rows, usize::try_from(index).unwrap());
        start_all(&inflight);
        inflight.start_claim();
        *now.lock().unwrap() += Duration::from_millis(100);
    }
    let budget = inflight.start_claim();
    assert_eq!(budget.open, [false, false, true]);
    assert!(budget.free_places >= budget.worthwhile(20) && budget.rows >= 1, "{budget:?}");
}

#[test]
fn large_payloads_of_one_listener_leave_memory_for_the_others() {
    let (inflight, now) = listeners(2);
    let large: Vec<Permit> =
        std::iter::from_fn(|| inflight.reserve(10_000, listener(0), 0).ok()).collect();
    assert_eq!(large.len(), 8, "the budget has space for ten");
    assert!(inflight.reserve(10_000, listener(1), 0).is_ok());
    let budget = inflight.start_claim();
    assert_eq!((budget.free_places, budget.open), (0, vec![true, true]));
    *now.lock().unwrap() += Duration::from_millis(100);
    let budget = inflight.start_claim();
    assert_eq!(
        (budget.free_places, budget.open, budget.bytes),
        (PLACES, vec![false, true], 17_500)
    );
    drop(large);
    assert!(
        inflight.reserve(99_000, listener(0), 0).is_ok(),
        "an event that is larger than its portion may be alone in flight"
    );
}

#[test]
fn small_claims_are_made_when_the_queue_stays_full() {
    let (inflight, now) = listeners(20);
    for index in 0..10 {
        let first = i64::try_from(index).unwrap() * 100;
        admit(&inflight, first..first + 16, index);
    }
    // All sixteen workers are busy, and the calls do not end.
    let running: Vec<QueuedEvent> = std::iter::from_fn(|| inflight.try_next()).take(16).collect();
    let few = |budget: &crate::inflight::ClaimBudget| budget.free_places < budget.worthwhile(20);
    let budget = inflight.start_claim();
    assert!(few(&budget) && budget.free_places == running.len(), "{budget:?}");
    assert_eq!(budget.changes_in, Some(Duration::from_millis(100)));
    *now.lock().unwrap() += Duration::from_millis(100);
    assert!(
        (0..2).all(|_| !few(&inflight.claim_budget())),
        "reading the budget does not change it"
    );
    assert!(!few(&inflight.start_claim()), "after a while a small claim is made");
    assert!(few(&inflight.start_claim()), "the next one has to wait again");
}

#[test]
fn events_that_wait_for_a_worker_keep_their_order() {
    let (inflight, _) = listeners(2);
    admit(&inflight, 0..20, 0);
    let mut running = start_all(&inflight);
    admit(&inflight, 20..30, 0);
    let mut order = sequences(&running);
    while let Some(event) = running.pop() {
        inflight.finish(&event, Verdict::Done);
        let next = start_all(&inflight);
        order.extend(sequences(&next));
        running.extend(next);
    }
    assert_eq!(order, (0..30).collect::<Vec<i64>>());
}
