//! A listener that cannot reach what it talks to.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{LIMITS, admit, event, hand, row, seat, sequences, startable};
use crate::clock::Clock;
use crate::hand::{BreakerStep, Hand, Limits, NoSeat, Phase, Share};
use crate::store::{Finish, Finished};

const PAUSE: Duration = Duration::from_secs(1);

/// A hand whose time is moved by hand.
fn timed(limits: Limits, share: Share) -> (Arc<Hand>, Arc<Mutex<Instant>>) {
    let now = Arc::new(Mutex::new(Instant::now()));
    let hand = Hand::new(limits, &[share], Clock::Simulated(Arc::clone(&now)));
    (Arc::new(hand), now)
}

fn pass(now: &Mutex<Instant>, time: Duration) {
    *now.lock().unwrap() += time;
}

/// Lets the breaker open with a call of this event, and the results be recorded.
fn open(hand: &Hand, sequence: i64) {
    hand.admit(vec![(row(sequence, 1), Some(0))], hand.now());
    let entry = hand.try_next().unwrap();
    assert_eq!(entry.sequence, sequence);
    hand.unreachable(&entry, |failures| PAUSE * failures);
    hand.recorded(hand.take_results(100), &[]);
}

#[test]
fn an_open_breaker_gives_everything_back_and_lets_one_try() {
    let hand = hand(&[None]);
    admit(&hand, 1..=4, Some(0));
    let first = hand.try_next().unwrap();
    let step = hand.unreachable(&first, |_| Duration::ZERO);
    assert_eq!(step, BreakerStep::Opened { failures: 1 });
    assert!(hand.try_next().is_none());
    let batch = hand.take_results(10);
    assert!(matches!(batch[0].result, Finished::Deferred { .. }), "it was called");
    let waited = |finish: &Finish| matches!(finish.result, Finished::Postponed { .. });
    assert!(batch[1..].iter().all(waited), "the others were not");
    assert_eq!(batch.len(), 4);
    hand.recorded(batch, &[]);
    admit(&hand, 5..=6, Some(0));
    let probe = startable(&hand);
    assert_eq!(sequences(&probe), [5], "only one tries");
    assert_eq!(hand.claimable().open, [false], "nothing is claimed until its end");
    let step = hand.unreachable(&probe[0], |_| Duration::ZERO);
    assert_eq!(step, BreakerStep::Opened { failures: 2 });
    let batch = hand.take_results(10);
    assert_eq!(batch.len(), 2, "the other one goes back with it");
    hand.recorded(batch, &[]);
    admit(&hand, 7..=9, Some(0));
    let probe = startable(&hand);
    assert_eq!(sequences(&probe), [7]);
    assert_eq!(hand.finish(&probe[0], Finished::Done), BreakerStep::Closed);
    assert_eq!(sequences(&startable(&hand)), [8, 9], "those that waited for it go on");
    assert_eq!(hand.claimable().open, [true]);
}

#[test]
fn after_its_pause_a_listener_is_not_paused_and_nothing_is_due_to_happen() {
    let (hand, now) = timed(LIMITS, Share::default());
    open(&hand, 1);
    let room = hand.claimable();
    assert_eq!((room.open, room.changes_in, hand.paused()), (vec![false], Some(PAUSE), 1));
    assert_eq!(room.reopens_in, Some(PAUSE));
    assert_eq!(hand.reserve(10, Some(0), 0).unwrap_err(), NoSeat::Closed);
    pass(&now, PAUSE);
    let room = hand.claimable();
    assert_eq!((room.open, room.changes_in, hand.paused()), (vec![true], None, 0));
}

#[test]
fn the_next_hot_event_is_the_probe() {
    let (hand, now) = timed(LIMITS, Share::default());
    open(&hand, 1);
    pass(&now, PAUSE);
    let first = hand.reserve(10, Some(0), 0).unwrap();
    assert_eq!(hand.reserve(10, Some(0), 0).unwrap_err(), NoSeat::Closed, "one is enough");
    assert!(first.take(2, event(10)));
    let probe = hand.try_next().unwrap();
    assert_eq!(hand.reserve(10, Some(0), 0).unwrap_err(), NoSeat::Closed, "it is being tried");
    assert_eq!(hand.paused(), 1, "others wait for its verdict");
    assert_eq!(hand.finish(&probe, Finished::Done), BreakerStep::Closed);
    assert_eq!(hand.paused(), 0);
    seat(&hand, 3);
    assert_eq!(sequences(&startable(&hand)), [3]);
}

#[test]
fn a_large_backlog_is_not_claimed_for_a_probe() {
    let (hand, now) = timed(Limits { cold: 80, batch: 50, ..LIMITS }, Share::default());
    open(&hand, 1);
    pass(&now, PAUSE);
    assert_eq!(hand.claimable().rows, 10, "an eighth of the queue");
    hand.admit((2..=11).map(|sequence| (row(sequence, 1), Some(0))).collect(), hand.now());
    assert_eq!(hand.claimable().open, [false]);
    let probe = startable(&hand);
    assert_eq!(sequences(&probe), [2]);
    let step = hand.unreachable(&probe[0], |failures| PAUSE * failures);
    assert_eq!(step, BreakerStep::Opened { failures: 2 });
    assert_eq!((hand.take_results(100).len(), hand.depths()), (10, (0, 0)));
    assert_eq!(hand.claimable().changes_in, Some(PAUSE * 2));
    pass(&now, PAUSE * 3);
    assert_eq!(hand.claimable().rows, 80, "no backlog was found");
}

#[test]
fn a_probe_that_vanishes_leaves_it_to_the_next() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    let entry = hand.try_next().unwrap();
    hand.unreachable(&entry, |_| Duration::ZERO);
    hand.recorded(hand.take_results(10), &[]);
    admit(&hand, 2..=4, Some(0));
    let probe = startable(&hand);
    hand.finish(&probe[0], Finished::Released);
    assert!(hand.try_next().is_none(), "not before that is recorded");
    hand.recorded(hand.take_results(10), &[]);
    let probe = startable(&hand);
    assert_eq!(sequences(&probe), [3], "another one must try");
    // Whether its transaction was committed is not known.
    assert_eq!(hand.settled(&probe[0], false), BreakerStep::Unchanged);
    assert_eq!(sequences(&startable(&hand)), [4]);
}

#[test]
fn what_is_settled_unseen_is_no_probe() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    let entry = hand.try_next().unwrap();
    hand.unreachable(&entry, |_| Duration::ZERO);
    hand.recorded(hand.take_results(10), &[]);
    // It turns out to have lost too many owners.
    let dead = Finished::Dead { attempts: 0, error: String::new() };
    hand.settle(2, 1, dead, Instant::now());
    hand.recorded(hand.take_results(10), &[]);
    admit(&hand, 3..=4, Some(0));
    assert_eq!(sequences(&startable(&hand)), [3], "the breaker is still half-open");
}

#[test]
fn a_hung_call_does_not_keep_a_probe_from_its_verdict() {
    let hand = hand(&[None]);
    admit(&hand, 1..=2, Some(0));
    let calls = startable(&hand);
    hand.unreachable(&calls[1], |_| Duration::ZERO);
    hand.recorded(hand.take_results(10), &[]);
    // The first call still runs when the pause is over.
    admit(&hand, [3], Some(0));
    let probe = hand.try_next().unwrap();
    assert_eq!(hand.finish(&calls[0], Finished::Done), BreakerStep::Unchanged, "it says nothing");
    assert_eq!(hand.finish(&probe, Finished::Done), BreakerStep::Closed);
}

#[test]
fn a_probe_keeps_to_the_limit_of_its_listener() {
    let (hand, now) = timed(LIMITS, Share { calls: Some(2), in_tx: false });
    hand.admit((1..=2).map(|sequence| (row(sequence, 1), Some(0))).collect(), hand.now());
    let calls = startable(&hand);
    assert_eq!(sequences(&calls), [1, 2]);
    hand.unreachable(&calls[0], |failures| PAUSE * failures);
    pass(&now, PAUSE);
    hand.admit((3..=4).map(|sequence| (row(sequence, 1), Some(0))).collect(), hand.now());
    assert_eq!(sequences(&startable(&hand)), [3], "one call still runs");
    hand.enter(Phase::Draining);
    hand.finish(&calls[1], Finished::Done);
    assert!(hand.try_next().is_none(), "and one probes");
}
