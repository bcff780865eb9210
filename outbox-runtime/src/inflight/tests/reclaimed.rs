//! Rows that are claimed again while they are in hand.

use std::time::{Duration, Instant};

use super::{LEASE, admit, inflight, listener, lost_row, permit, renew, row, sequences, startable};
use crate::event::Verdict;
use crate::store::{Claim, Renewal};

#[test]
fn what_is_claimed_again_while_it_runs_goes_on_under_the_new_token() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let entry = inflight.try_next().unwrap();
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    assert!(inflight.try_next().is_none(), "it runs already");
    inflight.finish(&entry, Verdict::Done);
    assert_eq!(inflight.take_results(10)[0].token, 2);
}

#[test]
fn what_is_claimed_again_after_its_result_was_applied_begins_anew() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let entry = inflight.try_next().unwrap();
    inflight.finish(&entry, Verdict::Deferred { delay: Duration::ZERO });
    let batch = inflight.take_results(10);
    // The mark is applied, and the poller is faster than its acknowledgement.
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    inflight.recorded(batch, &[]);
    assert_eq!(sequences(&startable(&inflight)), [1]);
}

#[test]
fn a_result_that_came_too_late_for_its_token_is_recorded_under_the_new_one() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let entry = inflight.try_next().unwrap();
    inflight.finish(&entry, Verdict::Done);
    let batch = inflight.take_results(10);
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    assert_eq!(inflight.recorded(batch, &[1]).stale, 0);
    let batch = inflight.take_results(10);
    assert_eq!((batch.len(), batch[0].token), (1, 2));
    inflight.recorded(batch, &[]);
    assert_eq!(inflight.len(), 0);
}

#[test]
fn a_result_that_may_have_been_recorded_is_not_recorded_under_a_newer_token() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let entry = inflight.try_next().unwrap();
    inflight.finish(&entry, Verdict::Dead { attempts: 1, error: String::new() });
    // It is recorded, which nobody says; somebody replays the event, and it is claimed again.
    drop(inflight.borrow_results(10));
    inflight.admit(vec![(row(1, 3), listener(0))], Instant::now());
    let batch = inflight.take_results(10);
    assert_eq!(batch[0].token, 1, "it must not die again");
    inflight.recorded(batch, &[1]);
    assert_eq!(sequences(&startable(&inflight)), [1], "it begins anew");
}

#[test]
fn a_row_given_back_and_claimed_again_finds_its_listener() {
    let inflight = inflight(&[None]);
    inflight.settle(1, 1, Verdict::Released, Instant::now());
    let batch = inflight.take_results(10);
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    inflight.recorded(batch, &[]);
    let entry = inflight.try_next().unwrap();
    assert_eq!((entry.sequence, entry.listener), (1, listener(0)));
    inflight.finish(&entry, Verdict::Done);
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!((inflight.len(), inflight.lock().bytes), (0, 0));
}

#[test]
fn a_parked_entry_that_is_claimed_again_keeps_its_place() {
    let inflight = inflight(&[Some(1)]);
    admit(&inflight, 1..=4, listener(0));
    let mut running = startable(&inflight);
    assert_eq!(sequences(&running), [1]);
    inflight.admit(vec![(row(2, 2), listener(0))], Instant::now());
    for expected in [2, 3, 4] {
        inflight.finish(&running[0], Verdict::Done);
        running = startable(&inflight);
        assert_eq!(sequences(&running), [expected], "the oldest first");
    }
}

#[test]
fn a_row_given_back_twice_is_given_back_under_its_last_token() {
    let inflight = inflight(&[None]);
    inflight.settle(1, 1, Verdict::Released, Instant::now());
    let batch = inflight.take_results(10);
    inflight.settle(1, 2, Verdict::Released, Instant::now());
    inflight.recorded(batch, &[]);
    assert_eq!(inflight.take_results(10)[0].token, 2);
}

#[test]
fn a_lease_counts_from_when_it_was_asked_for_even_if_the_row_goes_back() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    inflight.try_next().unwrap();
    let long_ago = Instant::now().checked_sub(LEASE / 2).unwrap();
    inflight.settle(1, 2, Verdict::Released, long_ago);
    assert_eq!(inflight.to_renew(), [Renewal { sequence: 1, token: 2, takeovers: 0 }]);
}

#[test]
fn what_is_claimed_again_before_it_began_begins_as_the_new_claim_says() {
    let inflight = inflight(&[None]);
    permit(&inflight, 1);
    // Somebody else had it meanwhile, failed once and was lost with it.
    let (row, group) = lost_row(1, 1);
    inflight.admit(vec![(Claim { token: 4, attempts: 1, ..row }, group)], Instant::now());
    assert!(inflight.try_next().is_none(), "not before that is written down");
    assert_eq!(renew(&inflight), [(1, 2)]);
    assert_eq!(inflight.try_next().unwrap().attempts, 1);
    assert_eq!(inflight.depths(), (0, 0));
}

#[test]
fn what_is_claimed_again_and_dead_before_it_began_does_not_begin() {
    let inflight = inflight(&[None]);
    permit(&inflight, 1);
    let dead = Verdict::Dead { attempts: 2, error: String::new() };
    inflight.settle(1, 4, dead, Instant::now());
    assert!(inflight.try_next().is_none());
    let batch = inflight.take_results(10);
    assert_eq!(batch[0].token, 4);
    assert!(matches!(batch[0].verdict, Verdict::Dead { attempts: 2, .. }));
    inflight.recorded(batch, &[]);
    assert_eq!((inflight.len(), inflight.depths()), (0, (0, 0)));
}

#[test]
fn a_failure_counts_from_what_the_row_says_when_it_is_recorded() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let entry = inflight.try_next().unwrap();
    // Somebody else had it meanwhile, and failed twice.
    inflight.admit(vec![(Claim { attempts: 2, ..row(1, 4) }, listener(0))], Instant::now());
    let failed = Verdict::Retry { attempts: 1, delay: LEASE, error: String::new() };
    inflight.finish(&entry, failed);
    let batch = inflight.take_results(10);
    assert!(matches!(batch[0].verdict, Verdict::Retry { attempts: 3, .. }));
}

#[test]
fn a_result_under_the_last_token_is_the_end() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let entry = inflight.try_next().unwrap();
    inflight.finish(&entry, Verdict::Done);
    // Claimed again before its result was sent, which then names the new token.
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    inflight.recorded(inflight.take_results(10), &[]);
    assert!(inflight.try_next().is_none(), "it is done");
    assert_eq!(inflight.len(), 0);
}
