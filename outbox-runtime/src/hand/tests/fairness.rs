//! Listeners that share workers and queues.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{LIMITS, row, sequences, startable};
use crate::clock::Clock;
use crate::hand::{Entry, Hand, HotSeat, Limits, NoSeat, Share};
use crate::store::Finished;

const PLACES: usize = 160;

const ROOMY: Limits =
    Limits { workers: 16, hot: PLACES, cold: PLACES, batch: 20, bytes: 100_000, ..LIMITS };

/// So many listeners without limits of their own, and their time.
fn listeners(count: usize) -> (Arc<Hand>, Arc<Mutex<Instant>>) {
    let now = Arc::new(Mutex::new(Instant::now()));
    let shares = vec![Share::default(); count];
    (Arc::new(Hand::new(ROOMY, &shares, Clock::Simulated(Arc::clone(&now)))), now)
}

fn admit(hand: &Hand, sequences: impl IntoIterator<Item = i64>, group: usize) {
    let rows = sequences.into_iter().map(|sequence| (row(sequence, 1), Some(group))).collect();
    hand.admit(rows, hand.now());
}

fn by_listener(entries: &[Entry], count: usize) -> Vec<usize> {
    (0..count).map(|one| entries.iter().filter(|entry| entry.group == Some(one)).count()).collect()
}

#[test]
fn a_listener_without_others_has_every_worker_and_place() {
    let (hand, _) = listeners(1);
    let seats: Vec<HotSeat> = std::iter::from_fn(|| hand.reserve(1, Some(0), 0).ok()).collect();
    assert_eq!(seats.len(), PLACES);
    admit(&hand, 0..150, 0);
    let room = hand.begin_claim();
    assert_eq!((room.open, room.lane, room.changes_in), (vec![true], 10, None));
    let started: Vec<Entry> = startable(&hand).into_iter().take(16).collect();
    assert_eq!(started.len(), 16);
}

#[test]
fn the_last_eighth_of_the_workers_is_for_listeners_without_a_call() {
    let (hand, _) = listeners(4);
    admit(&hand, 0..40, 0);
    let slow = startable(&hand);
    assert_eq!(slow.len(), 14, "two of sixteen are kept");
    admit(&hand, 100..110, 1);
    let other = startable(&hand);
    assert_eq!(sequences(&other), [100], "it begins at once, and leaves one for the next");
    admit(&hand, 200..210, 2);
    assert_eq!(sequences(&startable(&hand)), [200]);
    hand.finish(&other[0], Finished::Done);
    assert_eq!(sequences(&startable(&hand)), [101], "not one of the slow listener");
    assert!(hand.audit(&[]).is_ok());
}

#[test]
fn two_slow_listeners_together_leave_a_worker_for_a_third() {
    let (hand, _) = listeners(3);
    for turn in 0..20 {
        admit(&hand, [turn], 0);
        admit(&hand, [100 + turn], 1);
    }
    let slow = startable(&hand);
    assert_eq!(by_listener(&slow, 3), [7, 7, 0]);
    admit(&hand, 200..205, 2);
    assert_eq!(sequences(&startable(&hand)), [200]);
}

#[test]
fn workers_that_become_free_go_to_everybody_who_waits() {
    let (hand, _) = listeners(2);
    admit(&hand, 0..60, 0);
    let mut running = startable(&hand);
    admit(&hand, 100..140, 1);
    running.extend(startable(&hand));
    assert_eq!(by_listener(&running, 2), [14, 1]);
    for _ in 0..14 {
        let ended = running.remove(0);
        hand.finish(&ended, Finished::Done);
        running.extend(startable(&hand));
    }
    assert_eq!(by_listener(&running, 2), [7, 7], "in turn");
    assert!(hand.audit(&[]).is_ok());
}

#[test]
fn few_workers_leave_one() {
    for (workers, most) in [(1, 1), (2, 1), (3, 2), (4, 3), (15, 14), (16, 14), (32, 28)] {
        let limits = Limits { workers, ..ROOMY };
        let hand = Hand::new(limits, &[Share::default(); 2], Clock::System);
        admit(&hand, 0..40, 0);
        let started = startable(&hand).len();
        // With a single worker there is none to leave; it takes one entry at a time.
        assert_eq!(started, most, "of {workers} workers");
    }
}

#[test]
fn a_listener_leaves_an_eighth_of_the_hot_queue() {
    let (hand, _) = listeners(3);
    let all = |group| -> Vec<HotSeat> {
        std::iter::from_fn(|| hand.reserve(1, Some(group), 0).ok()).collect()
    };
    let slow = all(0);
    assert_eq!(slow.len(), 140);
    assert_eq!(hand.reserve(1, Some(0), 0).unwrap_err(), NoSeat::Full);
    let second = all(1);
    assert_eq!(second.len(), 18, "seven eighths of what the first has left");
    assert_eq!(all(2).len(), 1);
    drop(slow);
    assert!(hand.reserve(1, Some(1), 0).is_ok());
}

/// Lets so many calls end.
fn end(hand: &Hand, running: &mut Vec<Entry>, count: usize) {
    for entry in running.drain(..count) {
        hand.finish(&entry, Finished::Done);
        hand.recorded(hand.take_results(10), &[]);
    }
    running.extend(startable(hand));
}

#[test]
fn a_slow_listener_is_left_out_of_claims_when_its_share_is_used_up() {
    let (hand, now) = listeners(2);
    admit(&hand, 0..130, 0);
    assert_eq!(hand.begin_claim().rows, 10, "its share is 140");
    let mut running = startable(&hand);
    admit(&hand, 200..220, 0);
    let room = hand.begin_claim();
    assert_eq!((room.lane, room.open), (0, vec![true, true]), "it may just be busy");
    assert_eq!(room.changes_in, Some(Duration::from_millis(100)));
    assert_eq!(room.reopens_in, None, "nothing happens by itself if nothing is due");
    *now.lock().unwrap() += Duration::from_millis(100);
    let room = hand.begin_claim();
    assert_eq!((room.lane, room.open.clone()), (24, vec![false, true]), "it is slow");
    assert!(room.lane >= room.worthwhile(20), "the others have what it has left");
    // Some of its calls end; it is not claimed for until much of its share is free.
    for _ in 0..4 {
        end(&hand, &mut running, 14);
        assert_eq!(hand.begin_claim().open, [false, true]);
    }
    end(&hand, &mut running, 14);
    assert_eq!(hand.begin_claim().open, [true, true]);
}

#[test]
fn a_busy_listener_is_not_left_out_of_claims() {
    let (hand, now) = listeners(2);
    admit(&hand, 0..140, 0);
    let mut running = startable(&hand);
    for refill in 1..=10 {
        assert_eq!(hand.begin_claim().open, [true, true]);
        *now.lock().unwrap() += Duration::from_millis(90);
        end(&hand, &mut running, 14);
        end(&hand, &mut running, 14);
        let room = hand.begin_claim();
        assert!(room.lane >= room.worthwhile(20), "{room:?}");
        admit(&hand, refill * 1_000..refill * 1_000 + 28, 0);
    }
}

#[test]
fn a_second_slow_listener_leaves_places_for_a_third() {
    let (hand, now) = listeners(3);
    for (group, rows) in [(0, 150), (1, 20)] {
        admit(&hand, group * 1_000..group * 1_000 + rows, usize::try_from(group).unwrap());
        startable(&hand);
        hand.begin_claim();
        *now.lock().unwrap() += Duration::from_millis(100);
    }
    let room = hand.begin_claim();
    assert_eq!(room.open, [false, false, true]);
    assert!(room.lane >= room.worthwhile(20) && room.rows >= 1, "{room:?}");
}

#[test]
fn large_payloads_of_one_listener_leave_memory_for_the_others() {
    let (hand, now) = listeners(2);
    let large: Vec<HotSeat> =
        std::iter::from_fn(|| hand.reserve(10_000, Some(0), 0).ok()).collect();
    assert_eq!(large.len(), 8, "of a budget for ten");
    assert!(hand.reserve(10_000, Some(1), 0).is_ok());
    let room = hand.begin_claim();
    assert_eq!((room.lane, room.open), (0, vec![true, true]));
    *now.lock().unwrap() += Duration::from_millis(100);
    let room = hand.begin_claim();
    assert_eq!((room.lane, room.open, room.bytes), (PLACES, vec![false, true], 17_500));
    drop(large);
    assert!(hand.reserve(99_000, Some(0), 0).is_ok(), "a payload that is larger goes alone");
}

#[test]
fn a_queue_that_stays_half_full_is_claimed_into_all_the_same() {
    let (hand, now) = listeners(20);
    for group in 0..10 {
        let first = i64::try_from(group).unwrap() * 100;
        admit(&hand, first..first + 16, group);
    }
    // All sixteen workers are busy, and the calls do not end.
    let running: Vec<Entry> = std::iter::from_fn(|| hand.try_next()).take(16).collect();
    let few = |room: &crate::hand::Room| room.lane < room.worthwhile(20);
    let room = hand.begin_claim();
    assert!(few(&room) && room.lane == running.len(), "{room:?}");
    assert_eq!(room.changes_in, Some(Duration::from_millis(100)));
    *now.lock().unwrap() += Duration::from_millis(100);
    assert!((0..2).all(|_| !few(&hand.claimable())), "to ask takes nothing away");
    assert!(!few(&hand.begin_claim()), "after a while a small claim is made");
    assert!(few(&hand.begin_claim()), "and then it waits again");
}

#[test]
fn those_that_wait_for_a_worker_keep_their_order() {
    let (hand, _) = listeners(2);
    admit(&hand, 0..20, 0);
    let mut running = startable(&hand);
    admit(&hand, 20..30, 0);
    let mut order = sequences(&running);
    while let Some(entry) = running.pop() {
        hand.finish(&entry, Finished::Done);
        let next = startable(&hand);
        order.extend(sequences(&next));
        running.extend(next);
    }
    assert_eq!(order, (0..30).collect::<Vec<i64>>());
}
