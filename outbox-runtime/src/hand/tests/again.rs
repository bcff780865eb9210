//! Rows that are claimed again while they are in hand.

use std::time::{Duration, Instant};

use super::{LEASE, admit, hand, lost_row, renew, row, seat, sequences, startable};
use crate::store::{Claimed, Finished, Renewal};

#[test]
fn what_is_claimed_again_while_it_runs_goes_on_under_the_new_token() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    let entry = hand.try_next().unwrap();
    hand.admit(vec![(row(1, 2), Some(0))], Instant::now());
    assert!(hand.try_next().is_none(), "it runs already");
    hand.finish(&entry, Finished::Done);
    assert_eq!(hand.take_results(10)[0].token, 2);
}

#[test]
fn what_is_claimed_again_after_its_result_was_applied_begins_anew() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    let entry = hand.try_next().unwrap();
    hand.finish(&entry, Finished::Deferred { delay: Duration::ZERO });
    let batch = hand.take_results(10);
    // The mark is applied, and the poller is faster than its acknowledgement.
    hand.admit(vec![(row(1, 2), Some(0))], Instant::now());
    hand.recorded(batch, &[]);
    assert_eq!(sequences(&startable(&hand)), [1]);
}

#[test]
fn a_result_that_came_too_late_for_its_token_is_recorded_under_the_new_one() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    let entry = hand.try_next().unwrap();
    hand.finish(&entry, Finished::Done);
    let batch = hand.take_results(10);
    hand.admit(vec![(row(1, 2), Some(0))], Instant::now());
    assert_eq!(hand.recorded(batch, &[1]).stale, 0);
    let batch = hand.take_results(10);
    assert_eq!((batch.len(), batch[0].token), (1, 2));
    hand.recorded(batch, &[]);
    assert_eq!(hand.len(), 0);
}

#[test]
fn a_result_that_may_have_been_recorded_is_not_recorded_under_a_newer_token() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    let entry = hand.try_next().unwrap();
    hand.finish(&entry, Finished::Dead { attempts: 1, error: String::new() });
    // It is recorded, which nobody says; somebody replays the event, and it is claimed again.
    drop(hand.borrow_results(10));
    hand.admit(vec![(row(1, 3), Some(0))], Instant::now());
    let batch = hand.take_results(10);
    assert_eq!(batch[0].token, 1, "it must not die again");
    hand.recorded(batch, &[1]);
    assert_eq!(sequences(&startable(&hand)), [1], "it begins anew");
}

#[test]
fn a_row_given_back_and_claimed_again_finds_its_listener() {
    let hand = hand(&[None]);
    hand.settle(1, 1, Finished::Released, Instant::now());
    let batch = hand.take_results(10);
    hand.admit(vec![(row(1, 2), Some(0))], Instant::now());
    hand.recorded(batch, &[]);
    let entry = hand.try_next().unwrap();
    assert_eq!((entry.sequence, entry.group), (1, Some(0)));
    hand.finish(&entry, Finished::Done);
    hand.recorded(hand.take_results(10), &[]);
    assert_eq!((hand.len(), hand.lock().bytes), (0, 0));
}

#[test]
fn a_parked_entry_that_is_claimed_again_keeps_its_place() {
    let hand = hand(&[Some(1)]);
    admit(&hand, 1..=4, Some(0));
    let mut running = startable(&hand);
    assert_eq!(sequences(&running), [1]);
    hand.admit(vec![(row(2, 2), Some(0))], Instant::now());
    for expected in [2, 3, 4] {
        hand.finish(&running[0], Finished::Done);
        running = startable(&hand);
        assert_eq!(sequences(&running), [expected], "the oldest first");
    }
}

#[test]
fn a_row_given_back_twice_is_given_back_under_its_last_token() {
    let hand = hand(&[None]);
    hand.settle(1, 1, Finished::Released, Instant::now());
    let batch = hand.take_results(10);
    hand.settle(1, 2, Finished::Released, Instant::now());
    hand.recorded(batch, &[]);
    assert_eq!(hand.take_results(10)[0].token, 2);
}

#[test]
fn a_lease_counts_from_when_it_was_asked_for_even_if_the_row_goes_back() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    hand.try_next().unwrap();
    let long_ago = Instant::now().checked_sub(LEASE / 2).unwrap();
    hand.settle(1, 2, Finished::Released, long_ago);
    assert_eq!(hand.to_renew(), [Renewal { sequence: 1, token: 2, takeovers: 0 }]);
}

#[test]
fn what_is_claimed_again_before_it_began_begins_as_the_new_claim_says() {
    let hand = hand(&[None]);
    seat(&hand, 1);
    // Somebody else had it meanwhile, failed once and was lost with it.
    let (row, group) = lost_row(1, 1);
    hand.admit(vec![(Claimed { token: 4, attempts: 1, ..row }, group)], Instant::now());
    assert!(hand.try_next().is_none(), "not before that is written down");
    assert_eq!(renew(&hand), [(1, 2)]);
    assert_eq!(hand.try_next().unwrap().attempts, 1);
    assert_eq!(hand.depths(), (0, 0));
}

#[test]
fn what_is_claimed_again_and_dead_before_it_began_does_not_begin() {
    let hand = hand(&[None]);
    seat(&hand, 1);
    let dead = Finished::Dead { attempts: 2, error: String::new() };
    hand.settle(1, 4, dead, Instant::now());
    assert!(hand.try_next().is_none());
    let batch = hand.take_results(10);
    assert_eq!(batch[0].token, 4);
    assert!(matches!(batch[0].result, Finished::Dead { attempts: 2, .. }));
    hand.recorded(batch, &[]);
    assert_eq!((hand.len(), hand.depths()), (0, (0, 0)));
}

#[test]
fn a_failure_counts_from_what_the_row_says_when_it_is_recorded() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    let entry = hand.try_next().unwrap();
    // Somebody else had it meanwhile, and failed twice.
    hand.admit(vec![(Claimed { attempts: 2, ..row(1, 4) }, Some(0))], Instant::now());
    let failed = Finished::Retry { attempts: 1, delay: LEASE, error: String::new() };
    hand.finish(&entry, failed);
    let batch = hand.take_results(10);
    assert!(matches!(batch[0].result, Finished::Retry { attempts: 3, .. }));
}

#[test]
fn a_result_under_the_last_token_is_the_end() {
    let hand = hand(&[None]);
    admit(&hand, [1], Some(0));
    let entry = hand.try_next().unwrap();
    hand.finish(&entry, Finished::Done);
    // Claimed again before its result was sent, which then names the new token.
    hand.admit(vec![(row(1, 2), Some(0))], Instant::now());
    hand.recorded(hand.take_results(10), &[]);
    assert!(hand.try_next().is_none(), "it is done");
    assert_eq!(hand.len(), 0);
}
