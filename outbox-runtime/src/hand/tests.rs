//! What a hand does, seen from outside.

mod again;
mod breaker;
mod fairness;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::event::Status;
use crate::store::{Claimed, Renewal};

const LEASE: Duration = Duration::from_secs(30);

const LIMITS: Limits = Limits {
    workers: 100,
    hot: 8,
    cold: 8,
    batch: 8,
    bytes: 1_000,
    results: 100,
    lease: LEASE,
    trials: 2,
    transactions: 1,
};

fn hand(concurrency: &[Option<usize>]) -> Arc<Hand> {
    let share = |calls: &Option<usize>| Share { calls: *calls, in_tx: false };
    let shares: Vec<Share> = concurrency.iter().map(share).collect();
    Arc::new(Hand::new(LIMITS, &shares, Clock::System))
}

fn event(payload: usize) -> EventEnvelope {
    EventEnvelope::json("A", format!("\"{}\"", "x".repeat(payload - 2))).unwrap()
}

fn row(sequence: i64, token: i64) -> Claimed {
    let (attempts, taken_over, takeovers, status) = (0, false, 0, Status::New);
    Claimed { sequence, token, attempts, taken_over, takeovers, status, envelope: event(10) }
}

/// A row whose last owner was lost, and which was begun so many times since.
fn lost_row(sequence: i64, takeovers: u32) -> (Claimed, Option<usize>) {
    (Claimed { taken_over: true, takeovers, ..row(sequence, 1) }, Some(0))
}

/// What the renewer does when every row is renewed.
fn renew(hand: &Hand) -> Vec<(i64, u32)> {
    let asked = hand.to_renew();
    let all = asked.iter().map(|row| row.sequence).collect();
    hand.renewed(Instant::now(), &asked, &all);
    let mut asked: Vec<_> = asked.iter().map(|row| (row.sequence, row.takeovers)).collect();
    asked.sort_unstable();
    asked
}

fn admit(hand: &Hand, sequences: impl IntoIterator<Item = i64>, group: Option<usize>) {
    let rows = sequences.into_iter().map(|sequence| (row(sequence, 1), group)).collect();
    hand.admit(rows, Instant::now());
}

fn seat(hand: &Arc<Hand>, sequence: i64) {
    let seat = hand.reserve(10, Some(0), 0).unwrap();
    assert!(seat.take(sequence, event(10)));
}

/// The entries that can start now.
fn startable(hand: &Hand) -> Vec<Entry> {
    std::iter::from_fn(|| hand.try_next()).collect()
}

fn sequences(entries: &[Entry]) -> Vec<i64> {
    entries.iter().map(|entry| entry.sequence).collect()
}

#[test]
fn two_hot_for_one_cold_and_never_a_wait_for_the_empty_one() {
    let hand = hand(&[None]);
    (1..=6).for_each(|sequence| seat(&hand, sequence));
    admit(&hand, 11..=16, Some(0));
    assert_eq!(sequences(&startable(&hand)), [1, 2, 11, 3, 4, 12, 5, 6, 13, 14, 15, 16]);
    admit(&hand, 21..=23, Some(0));
    assert_eq!(sequences(&startable(&hand)), [21, 22, 23]);
}

#[test]
fn the_first_after_an_idle_moment_is_a_hot_one() {
    let hand = hand(&[None]);
    // Whatever was taken before, one at a time and from either lane.
    for taken in 0..6 {
        for cold in 0..taken {
            admit(&hand, [100 + cold], Some(0));
            let entry = hand.try_next().unwrap();
            hand.finish(&entry, Finished::Done);
            hand.recorded(hand.take_results(10), &[]);
        }
        assert!(hand.try_next().is_none(), "idle");
        admit(&hand, 11..=12, Some(0));
        (1..=3).for_each(|sequence| seat(&hand, sequence));
        let started = startable(&hand);
        assert_eq!(sequences(&started), [1, 2, 11, 3, 12], "after {taken}");
        for entry in &started {
            hand.finish(entry, Finished::Done);
        }
        hand.recorded(hand.take_results(10), &[]);
    }
}

#[test]
fn only_a_choice_between_both_lanes_counts_as_a_turn() {
    let hand = hand(&[None]);
    seat(&hand, 1);
    admit(&hand, 11..=14, Some(0));
    assert_eq!(sequences(&[hand.try_next().unwrap()]), [1]);
    // These have nothing to compete with, and take no turn from those that come next.
    let alone = [hand.try_next().unwrap(), hand.try_next().unwrap()];
    assert_eq!(sequences(&alone), [11, 12]);
    (2..=4).for_each(|sequence| seat(&hand, sequence));
    assert_eq!(sequences(&startable(&hand)), [2, 13, 3, 4, 14]);
}

#[test]
fn headers_count_as_much_as_payloads() {
    let hand = hand(&[None]);
    let event =
        EventEnvelope::builder("A").header("trace", "x".repeat(395)).payload_json("\"12345678\"");
    let envelope = event.build().unwrap();
    assert_eq!(envelope.bytes(), 10 + 5 + 395);
    hand.admit(vec![(Claimed { envelope, ..row(1, 1) }, Some(0))], Instant::now());
    assert_eq!(hand.claimable().bytes, LIMITS.bytes - 410);
}

#[test]
fn seats_are_bounded_in_number_and_bytes_and_for_one_transaction() {
    let hand = hand(&[None]);
    assert!(hand.reserve(10, Some(0), 2).is_err(), "a quarter of the lane for one transaction");
    let large = hand.reserve(950, Some(0), 0).unwrap();
    assert!(matches!(hand.reserve(100, Some(0), 0), Err(NoSeat::Full)), "bytes");
    drop(large);
    let seats: Vec<HotSeat> = (0..8).map(|_| hand.reserve(100, Some(0), 0).unwrap()).collect();
    assert!(matches!(hand.reserve(1, Some(0), 0), Err(NoSeat::Full)), "number");
    drop(seats);
    assert!(hand.reserve(100, Some(0), 0).is_ok(), "freed again");
    hand.enter(Phase::Paused);
    assert!(matches!(hand.reserve(1, Some(0), 0), Err(NoSeat::Closed)));
}

#[test]
fn bytes_are_in_hand_until_the_result_is_durable() {
    let hand = hand(&[None]);
    let seat = hand.reserve(900, Some(0), 0).unwrap();
    assert!(seat.take(1, event(10)));
    let entry = hand.try_next().unwrap();
    hand.finish(&entry, Finished::Done);
    let batch = hand.take_results(10);
    assert!(hand.reserve(200, Some(0), 0).is_err(), "not recorded yet");
    hand.recorded(batch, &[]);
    assert!(hand.reserve(200, Some(0), 0).is_ok());
}

#[test]
fn a_limited_listener_parks_its_events_without_a_worker() {
    let hand = hand(&[Some(1), None]);
    admit(&hand, 1..=3, Some(0));
    admit(&hand, 11..=12, Some(1));
    let started = startable(&hand);
    assert_eq!(sequences(&started), [1, 11, 12]);
    hand.finish(&started[0], Finished::Done);
    assert_eq!(sequences(&startable(&hand)), [2], "one ended, one begins");
    assert_eq!(hand.claimable().open, [false, true], "its share is used up");
}

#[test]
fn nothing_starts_on_a_short_lease() {
    let hand = hand(&[None]);
    let long_ago = Instant::now().checked_sub(LEASE * 3 / 4).unwrap();
    hand.admit(vec![(row(1, 1), Some(0)), (row(2, 1), Some(0))], long_ago);
    assert!(hand.try_next().is_none());
    let mut asked = hand.to_renew();
    asked.sort_unstable_by_key(|row| row.sequence);
    let renewal = |sequence| Renewal { sequence, token: 1, takeovers: 0 };
    assert_eq!(asked, [renewal(1), renewal(2)]);
    // One could be renewed; the other is somebody else's by now.
    let lost = hand.renewed(Instant::now(), &asked, &HashSet::from([2]));
    assert_eq!((lost, sequences(&startable(&hand)), hand.len()), (1, vec![2], 1));
}

#[test]
fn a_parked_entry_that_waits_for_its_renewal_keeps_its_place() {
    let hand = hand(&[Some(1)]);
    let long_ago = Instant::now().checked_sub(LEASE * 3 / 4).unwrap();
    admit(&hand, [1], Some(0));
    hand.admit(vec![(row(2, 1), Some(0))], long_ago);
    admit(&hand, [3, 4, 5], Some(0));
    let mut running = startable(&hand);
    assert_eq!(sequences(&running), [1]);
    hand.finish(&running[0], Finished::Done);
    running = startable(&hand);
    assert_eq!(sequences(&running), [3], "the lease of 2 is too short to begin on");
    assert_eq!(renew(&hand), [(2, 0)]);
    assert!(hand.try_next().is_none(), "one call at a time");
    for expected in [2, 4, 5] {
        hand.finish(&running[0], Finished::Done);
        running = startable(&hand);
        assert_eq!(sequences(&running), [expected], "the oldest first");
    }
}

#[test]
fn a_closed_hand_takes_no_seat_and_gives_back_the_rest() {
    let hand = hand(&[Some(1)]);
    let late = hand.reserve(10, Some(0), 0).unwrap();
    admit(&hand, 1..=3, Some(0));
    let running = startable(&hand);
    hand.enter(Phase::Draining);
    assert!(hand.reserve(10, Some(0), 0).is_err());
    hand.give_back_waiting();
    hand.finish(&running[0], Finished::Released);
    hand.enter(Phase::Closed);
    assert!(!late.take(9, event(10)), "its row must be given back by the writer");
    hand.recorded(hand.take_results(10), &[]);
    assert_eq!((hand.len(), hand.depths()), (0, (0, 0)));
    hand.enter(Phase::Running);
    assert_eq!(hand.phase(), Phase::Closed);
}

#[test]
fn results_are_bounded() {
    let limits = Limits { results: 2, ..LIMITS };
    let hand = Arc::new(Hand::new(limits, &[Share::default()], Clock::System));
    admit(&hand, 1..=4, Some(0));
    for _ in 0..2 {
        let entry = hand.try_next().unwrap();
        hand.finish(&entry, Finished::Done);
    }
    assert!(hand.try_next().is_none(), "first these must be recorded");
    let batch = hand.take_results(10);
    assert!(hand.try_next().is_none());
    hand.recorded(batch, &[]);
    assert!(hand.try_next().is_some());
}

#[test]
fn what_is_claimed_while_the_node_is_paused_goes_back() {
    let hand = hand(&[None]);
    hand.enter(Phase::Paused);
    admit(&hand, 1..=2, Some(0));
    let batch = hand.take_results(10);
    assert!(batch.iter().all(|finish| matches!(finish.result, Finished::Released)));
    assert_eq!(batch.len(), 2);
    hand.enter(Phase::Draining);
    hand.enter(Phase::Running);
    assert_eq!(hand.phase(), Phase::Draining, "there is no way back");
}

#[test]
fn a_seat_gives_way_to_a_row_that_is_here_already() {
    let hand = hand(&[None]);
    let seat = hand.reserve(10, Some(0), 0).unwrap();
    admit(&hand, [1], Some(0));
    assert!(seat.take(1, event(10)));
    assert_eq!(startable(&hand).len(), 1);
    assert_eq!(hand.depths(), (0, 0));
}

#[test]
fn hot_events_of_a_limited_listener_leave_room_for_cold_ones() {
    let hand = hand(&[Some(1)]);
    let seats: Vec<HotSeat> =
        std::iter::from_fn(|| hand.reserve(10, Some(0), 0).ok()).take(20).collect();
    assert_eq!(seats.len(), 2, "its share of the hot lane");
    assert_eq!(hand.claimable().open, [true]);
}

#[test]
fn what_was_lost_with_its_owner_begins_when_that_is_written_down() {
    let hand = hand(&[None]);
    hand.admit(vec![lost_row(1, 0), lost_row(2, 0), lost_row(3, 0)], Instant::now());
    admit(&hand, [4], Some(0));
    assert_eq!(sequences(&startable(&hand)), [4], "nobody suspects this one");
    assert_eq!(renew(&hand), [(1, 1), (2, 1)], "as many as may be tried at once");
    let tried = startable(&hand);
    assert_eq!(sequences(&tried), [1, 2]);
    assert!(hand.to_renew().is_empty(), "the third waits");
    hand.finish(&tried[0], Finished::Done);
    assert!(hand.to_renew().is_empty(), "not before its end is written down as well");
    hand.recorded(hand.take_results(10), &[]);
    assert_eq!(renew(&hand), [(3, 1)]);
    assert_eq!(sequences(&startable(&hand)), [3]);
}

#[test]
fn what_was_lost_while_it_ran_is_tried_alone() {
    let hand = hand(&[None]);
    hand.admit(vec![lost_row(1, 1), lost_row(2, 1), lost_row(3, 0)], Instant::now());
    assert!(startable(&hand).is_empty());
    assert_eq!(renew(&hand), [(3, 1)], "first those that need not be alone");
    let beside = startable(&hand);
    assert!(hand.to_renew().is_empty(), "not beside another");
    hand.finish(&beside[0], Finished::Done);
    hand.recorded(hand.take_results(10), &[]);
    assert_eq!(renew(&hand), [(1, 2)]);
    let alone = startable(&hand);
    hand.admit(vec![lost_row(4, 0)], Instant::now());
    assert!(startable(&hand).is_empty() && hand.to_renew().is_empty(), "nothing beside it");
    hand.finish(&alone[0], Finished::Done);
    hand.recorded(hand.take_results(10), &[]);
    assert_eq!(renew(&hand), [(4, 1)]);
}

#[test]
fn a_trial_that_cannot_be_written_down_is_somebody_elses() {
    let hand = hand(&[None]);
    hand.admit(vec![lost_row(1, 0)], Instant::now());
    assert!(hand.try_next().is_none());
    let asked = hand.to_renew();
    assert_eq!(hand.renewed(Instant::now(), &asked, &HashSet::new()), 1);
    assert_eq!((hand.len(), hand.depths()), (0, (0, 0)));
}

#[test]
fn transactions_are_shared_by_the_listeners_that_ask_for_one() {
    let in_tx = Share { calls: None, in_tx: true };
    let hand = Hand::new(LIMITS, &[in_tx, in_tx, Share::default()], Clock::System);
    admit(&hand, 1..=3, Some(0));
    admit(&hand, 11..=12, Some(1));
    admit(&hand, [21], Some(2));
    let mut started = startable(&hand);
    assert_eq!(sequences(&started), [1, 21], "one transaction; the others need none");
    for expected in [2, 11, 3, 12] {
        hand.settled(&started[0], true);
        started = startable(&hand);
        assert_eq!(sequences(&started), [expected], "in turn");
    }
    hand.settled(&started[0], false);
    assert_eq!((hand.len(), hand.depths()), (1, (0, 0)));
}

#[test]
fn a_transaction_goes_to_a_listener_that_may_use_it() {
    let limits = Limits { transactions: 2, ..LIMITS };
    let one = Share { calls: Some(1), in_tx: true };
    let hand = Hand::new(limits, &[one, Share { calls: None, ..one }], Clock::System);
    admit(&hand, 1..=2, Some(0));
    admit(&hand, 11..=12, Some(1));
    let started = startable(&hand);
    assert_eq!(sequences(&started), [1, 11]);
    hand.settled(&started[1], true);
    assert_eq!(sequences(&startable(&hand)), [12], "the other has had its call");
    hand.settled(&started[0], true);
    assert_eq!(sequences(&startable(&hand)), [2]);
}

#[test]
fn two_transactions_that_end_at_once_are_both_used() {
    let limits = Limits { transactions: 2, ..LIMITS };
    let one = Share { calls: Some(1), in_tx: true };
    let hand = Hand::new(limits, &[Share { calls: None, ..one }, one], Clock::System);
    admit(&hand, 1..=2, Some(0));
    let started = startable(&hand);
    admit(&hand, 11..=12, Some(1));
    admit(&hand, [3], Some(0));
    assert!(hand.try_next().is_none());
    started.iter().for_each(|entry| {
        hand.settled(entry, true);
    });
    assert_eq!(sequences(&startable(&hand)), [11, 3], "not two of a listener that takes one");
}

#[test]
fn a_trial_that_ends_without_a_verdict_is_taken_back() {
    let delay = Duration::from_secs(1);
    let results = |hand: &Hand| -> Vec<String> {
        let results = hand.take_results(10);
        results.iter().map(|finish| format!("{} {:?}", finish.sequence, finish.result)).collect()
    };
    // One is begun, and one is about to: its beginning is written down. The third waits for its trial.
    let begun = || {
        let hand = hand(&[None]);
        hand.admit(vec![lost_row(1, 0), lost_row(2, 0), lost_row(3, 0)], Instant::now());
        assert!(hand.try_next().is_none());
        assert_eq!(renew(&hand), [(1, 1), (2, 1)]);
        let first = hand.try_next().unwrap();
        (hand, first)
    };
    let (hand, first) = begun();
    hand.give_back_waiting();
    hand.finish(&first, Finished::Released);
    assert_eq!(results(&hand), ["2 Cancelled", "3 Released", "1 Cancelled"]);
    let (hand, first) = begun();
    hand.unreachable(&first, |_| delay);
    let expected =
        ["1 Deferred { delay: 1s }", "2 Deferred { delay: 1s }", "3 Postponed { delay: 1s }"];
    assert_eq!(results(&hand), expected);
}
