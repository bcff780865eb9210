//! Rows that are claimed again while they are in flight.

use std::time::{Duration, Instant};

use super::{
    LEASE, admit, admit_hot, inflight, listener, renew, row, sequences, start_all, suspect,
};
use crate::event::Verdict;
use crate::store::{Claim, Renewal};

#[test]
fn a_running_event_that_is_claimed_again_continues_under_the_new_token() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let event = inflight.try_next().unwrap();
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    assert!(inflight.try_next().is_none(), "it runs already");
    inflight.finish(&event, Verdict::Done);
    assert_eq!(inflight.take_results(10)[0].token, 2);
}

#[test]
fn an_event_that_is_claimed_again_after_its_settlement_starts_anew() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let event = inflight.try_next().unwrap();
    inflight.finish(&event, Verdict::Deferred { delay: Duration::ZERO });
    let batch = inflight.take_results(10);
    // The settlement is applied, and the next claim is answered before it.
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    inflight.recorded(batch, &[]);
    assert_eq!(sequences(&start_all(&inflight)), [1]);
}

#[test]
fn a_stale_done_verdict_is_recorded_under_the_new_token() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let event = inflight.try_next().unwrap();
    inflight.finish(&event, Verdict::Done);
    let batch = inflight.take_results(10);
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    assert_eq!(inflight.recorded(batch, &[1]).stale, 0);
    let batch = inflight.take_results(10);
    assert_eq!((batch.len(), batch[0].token), (1, 2));
    inflight.recorded(batch, &[]);
    assert_eq!(inflight.len(), 0);
}

#[test]
fn a_verdict_that_may_be_recorded_is_not_recorded_under_a_newer_token() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let event = inflight.try_next().unwrap();
    inflight.finish(&event, Verdict::Dead { attempts: 1, error: String::new() });
    // It is recorded and the response is lost; the event is replayed and claimed again.
    drop(inflight.borrow_results(10));
    inflight.admit(vec![(row(1, 3), listener(0))], Instant::now());
    let batch = inflight.take_results(10);
    assert_eq!(batch[0].token, 1, "it must not become dead again");
    inflight.recorded(batch, &[1]);
    assert_eq!(sequences(&start_all(&inflight)), [1], "it starts anew");
}

#[test]
fn a_released_row_that_is_claimed_again_reaches_its_listener() {
    let inflight = inflight(&[None]);
    inflight.settle(1, 1, Verdict::Released, Instant::now());
    let batch = inflight.take_results(10);
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    inflight.recorded(batch, &[]);
    let event = inflight.try_next().unwrap();
    assert_eq!((event.sequence, event.listener), (1, listener(0)));
    inflight.finish(&event, Verdict::Done);
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!((inflight.len(), inflight.lock().bytes), (0, 0));
}

#[test]
fn a_parked_event_that_is_claimed_again_keeps_its_turn() {
    let inflight = inflight(&[Some(1)]);
    admit(&inflight, 1..=4, listener(0));
    let mut running = start_all(&inflight);
    assert_eq!(sequences(&running), [1]);
    inflight.admit(vec![(row(2, 2), listener(0))], Instant::now());
    for expected in [2, 3, 4] {
        inflight.finish(&running[0], Verdict::Done);
        running = start_all(&inflight);
        assert_eq!(sequences(&running), [expected], "the oldest first");
    }
}

#[test]
fn a_row_that_is_released_twice_is_released_under_its_latest_token() {
    let inflight = inflight(&[None]);
    inflight.settle(1, 1, Verdict::Released, Instant::now());
    let batch = inflight.take_results(10);
    inflight.settle(1, 2, Verdict::Released, Instant::now());
    inflight.recorded(batch, &[]);
    assert_eq!(inflight.take_results(10)[0].token, 2);
}

#[test]
fn a_lease_counts_from_the_start_of_the_claim_even_if_the_row_is_released() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    inflight.try_next().unwrap();
    let long_ago = Instant::now().checked_sub(LEASE / 2).unwrap();
    inflight.settle(1, 2, Verdict::Released, long_ago);
    assert_eq!(inflight.to_renew(), [Renewal { sequence: 1, token: 2, takeovers: 0 }]);
}

#[test]
fn a_queued_event_that_is_claimed_again_starts_as_the_new_claim_says() {
    let inflight = inflight(&[None]);
    admit_hot(&inflight, 1);
    // Another node had claimed it meanwhile, failed once and was lost.
    let (row, listener) = suspect(1, 1);
    inflight.admit(vec![(Claim { token: 4, attempts: 1, ..row }, listener)], Instant::now());
    assert!(inflight.try_next().is_none(), "its start is not recorded yet");
    assert_eq!(renew(&inflight), [(1, 2)]);
    assert_eq!(inflight.try_next().unwrap().attempts, 1);
    assert_eq!(inflight.depths(), (0, 0));
}

#[test]
fn a_queued_event_that_is_dead_in_a_new_claim_does_not_start() {
    let inflight = inflight(&[None]);
    admit_hot(&inflight, 1);
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
fn a_failure_counts_from_the_attempts_of_the_latest_claim() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let event = inflight.try_next().unwrap();
    // Another node had claimed it meanwhile, and failed twice.
    inflight.admit(vec![(Claim { attempts: 2, ..row(1, 4) }, listener(0))], Instant::now());
    let failed = Verdict::Retry { attempts: 1, delay: LEASE, error: String::new() };
    inflight.finish(&event, failed);
    let batch = inflight.take_results(10);
    assert!(matches!(batch[0].verdict, Verdict::Retry { attempts: 3, .. }));
}

#[test]
fn a_row_that_is_settled_under_its_latest_token_is_not_delivered_again() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let event = inflight.try_next().unwrap();
    inflight.finish(&event, Verdict::Done);
    // It is claimed again before its settlement is sent, which then has the new token.
    inflight.admit(vec![(row(1, 2), listener(0))], Instant::now());
    inflight.recorded(inflight.take_results(10), &[]);
    assert!(inflight.try_next().is_none(), "it is done");
    assert_eq!(inflight.len(), 0);
}
