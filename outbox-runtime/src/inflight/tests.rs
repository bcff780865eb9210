//! What a hand does, seen from outside.

mod breaker;
mod fairness;
mod reclaimed;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::event::{EventEnvelope, Status, Verdict};
use crate::store::{Claim, Renewal};

const LEASE: Duration = Duration::from_secs(30);

const LIMITS: Limits = Limits {
    workers: 100,
    hot: 8,
    hot_per_transaction: 2,
    cold: 8,
    batch: 8,
    bytes: 1_000,
    results: 100,
    lease: LeaseTiming::new(LEASE),
    suspects: 2,
    transactions: 1,
};

fn inflight(concurrency: &[Option<usize>]) -> Arc<InFlight> {
    let share = |calls: &Option<usize>| ConcurrencyLimit { calls: *calls, in_tx: false };
    let shares: Vec<ConcurrencyLimit> = concurrency.iter().map(share).collect();
    Arc::new(InFlight::new(LIMITS, &shares, Clock::System))
}

fn listener(index: usize) -> Option<ListenerId> {
    Some(ListenerId::new(index))
}

/// A call ends because its listener could not reach what it depends on.
fn end_unreachable(
    inflight: &InFlight,
    event: &QueuedEvent,
    pause: impl Fn(u32) -> Duration,
) -> BreakerChange {
    let (change, delay) = inflight.unreachable(event, pause);
    inflight.finish(event, Verdict::Deferred { delay });
    if let BreakerChange::Opened { .. } = change {
        inflight.postpone(event, delay);
    }
    change
}

fn event(payload: usize) -> EventEnvelope {
    EventEnvelope::json("A", format!("\"{}\"", "x".repeat(payload - 2))).unwrap()
}

fn row(sequence: i64, token: i64) -> Claim {
    let (attempts, taken_over, takeovers, status) = (0, false, 0, Status::New);
    Claim { sequence, token, attempts, taken_over, takeovers, status, envelope: event(10) }
}

/// A row whose last owner was lost, and which was begun so many times since.
fn lost_row(sequence: i64, takeovers: u32) -> (Claim, Option<ListenerId>) {
    (Claim { taken_over: true, takeovers, ..row(sequence, 1) }, listener(0))
}

/// What the renewer does when every row is renewed.
fn renew(inflight: &InFlight) -> Vec<(i64, u32)> {
    let asked = inflight.to_renew();
    let all = asked.iter().map(|row| row.sequence).collect();
    inflight.renewed(Instant::now(), &asked, &all);
    let mut asked: Vec<_> = asked.iter().map(|row| (row.sequence, row.takeovers)).collect();
    asked.sort_unstable();
    asked
}

fn admit(inflight: &InFlight, sequences: impl IntoIterator<Item = i64>, id: Option<ListenerId>) {
    let rows = sequences.into_iter().map(|sequence| (row(sequence, 1), id)).collect();
    inflight.admit(rows, Instant::now());
}

fn permit(inflight: &Arc<InFlight>, sequence: i64) {
    let permit = inflight.reserve(10, listener(0), 0).unwrap();
    assert_eq!(permit.redeem(sequence, event(10)), Redeemed::InFlight);
}

/// The entries that can start now.
fn startable(inflight: &InFlight) -> Vec<QueuedEvent> {
    std::iter::from_fn(|| inflight.try_next()).collect()
}

fn sequences(entries: &[QueuedEvent]) -> Vec<i64> {
    entries.iter().map(|entry| entry.sequence).collect()
}

#[test]
fn two_hot_for_one_cold_and_never_a_wait_for_the_empty_one() {
    let inflight = inflight(&[None]);
    (1..=6).for_each(|sequence| permit(&inflight, sequence));
    admit(&inflight, 11..=16, listener(0));
    assert_eq!(sequences(&startable(&inflight)), [1, 2, 11, 3, 4, 12, 5, 6, 13, 14, 15, 16]);
    admit(&inflight, 21..=23, listener(0));
    assert_eq!(sequences(&startable(&inflight)), [21, 22, 23]);
}

#[test]
fn the_first_after_an_idle_moment_is_a_hot_one() {
    let inflight = inflight(&[None]);
    // Whatever was taken before, one at a time and from either lane.
    for taken in 0..6 {
        for cold in 0..taken {
            admit(&inflight, [100 + cold], listener(0));
            let entry = inflight.try_next().unwrap();
            inflight.finish(&entry, Verdict::Done);
            inflight.recorded(inflight.take_results(10), &[]);
        }
        assert!(inflight.try_next().is_none(), "idle");
        admit(&inflight, 11..=12, listener(0));
        (1..=3).for_each(|sequence| permit(&inflight, sequence));
        let started = startable(&inflight);
        assert_eq!(sequences(&started), [1, 2, 11, 3, 12], "after {taken}");
        for entry in &started {
            inflight.finish(entry, Verdict::Done);
        }
        inflight.recorded(inflight.take_results(10), &[]);
    }
}

#[test]
fn only_a_choice_between_both_lanes_counts_as_a_turn() {
    let inflight = inflight(&[None]);
    permit(&inflight, 1);
    admit(&inflight, 11..=14, listener(0));
    assert_eq!(sequences(&[inflight.try_next().unwrap()]), [1]);
    // These have nothing to compete with, and take no turn from those that come next.
    let alone = [inflight.try_next().unwrap(), inflight.try_next().unwrap()];
    assert_eq!(sequences(&alone), [11, 12]);
    (2..=4).for_each(|sequence| permit(&inflight, sequence));
    assert_eq!(sequences(&startable(&inflight)), [2, 13, 3, 4, 14]);
}

#[test]
fn headers_count_as_much_as_payloads() {
    let inflight = inflight(&[None]);
    let event =
        EventEnvelope::builder("A").header("trace", "x".repeat(395)).payload_json("\"12345678\"");
    let envelope = event.build().unwrap();
    assert_eq!(envelope.bytes(), 10 + 5 + 395);
    inflight.admit(vec![(Claim { envelope, ..row(1, 1) }, listener(0))], Instant::now());
    assert_eq!(inflight.claim_budget().bytes, LIMITS.bytes - 410);
}

#[test]
fn seats_are_bounded_in_number_and_bytes_and_for_one_transaction() {
    let inflight = inflight(&[None]);
    assert!(
        inflight.reserve(10, listener(0), 2).is_err(),
        "a quarter of the lane for one transaction"
    );
    let large = inflight.reserve(950, listener(0), 0).unwrap();
    assert!(matches!(inflight.reserve(100, listener(0), 0), Err(NoPermit::Full)), "bytes");
    drop(large);
    let permits: Vec<Permit> =
        (0..8).map(|_| inflight.reserve(100, listener(0), 0).unwrap()).collect();
    assert!(matches!(inflight.reserve(1, listener(0), 0), Err(NoPermit::Full)), "number");
    drop(permits);
    assert!(inflight.reserve(100, listener(0), 0).is_ok(), "freed again");
    inflight.enter(Phase::Paused);
    assert!(matches!(inflight.reserve(1, listener(0), 0), Err(NoPermit::Closed)));
}

#[test]
fn bytes_are_in_hand_until_the_result_is_durable() {
    let inflight = inflight(&[None]);
    let permit = inflight.reserve(900, listener(0), 0).unwrap();
    assert_eq!(permit.redeem(1, event(10)), Redeemed::InFlight);
    let entry = inflight.try_next().unwrap();
    inflight.finish(&entry, Verdict::Done);
    let batch = inflight.take_results(10);
    assert!(inflight.reserve(200, listener(0), 0).is_err(), "not recorded yet");
    inflight.recorded(batch, &[]);
    assert!(inflight.reserve(200, listener(0), 0).is_ok());
}

#[test]
fn a_limited_listener_parks_its_events_without_a_worker() {
    let inflight = inflight(&[Some(1), None]);
    admit(&inflight, 1..=3, listener(0));
    admit(&inflight, 11..=12, listener(1));
    let started = startable(&inflight);
    assert_eq!(sequences(&started), [1, 11, 12]);
    inflight.finish(&started[0], Verdict::Done);
    assert_eq!(sequences(&startable(&inflight)), [2], "one ended, one begins");
    assert_eq!(inflight.claim_budget().open, [false, true], "its share is used up");
}

#[test]
fn nothing_starts_on_a_short_lease() {
    let inflight = inflight(&[None]);
    let long_ago = Instant::now().checked_sub(LEASE * 3 / 4).unwrap();
    inflight.admit(vec![(row(1, 1), listener(0)), (row(2, 1), listener(0))], long_ago);
    assert!(inflight.try_next().is_none());
    let mut asked = inflight.to_renew();
    asked.sort_unstable_by_key(|row| row.sequence);
    let renewal = |sequence| Renewal { sequence, token: 1, takeovers: 0 };
    assert_eq!(asked, [renewal(1), renewal(2)]);
    // One could be renewed; the other is somebody else's by now.
    let lost = inflight.renewed(Instant::now(), &asked, &HashSet::from([2]));
    assert_eq!((lost, sequences(&startable(&inflight)), inflight.len()), (1, vec![2], 1));
}

#[test]
fn a_parked_entry_that_waits_for_its_renewal_keeps_its_place() {
    let inflight = inflight(&[Some(1)]);
    let long_ago = Instant::now().checked_sub(LEASE * 3 / 4).unwrap();
    admit(&inflight, [1], listener(0));
    inflight.admit(vec![(row(2, 1), listener(0))], long_ago);
    admit(&inflight, [3, 4, 5], listener(0));
    let mut running = startable(&inflight);
    assert_eq!(sequences(&running), [1]);
    inflight.finish(&running[0], Verdict::Done);
    running = startable(&inflight);
    assert_eq!(sequences(&running), [3], "the lease of 2 is too short to begin on");
    assert_eq!(renew(&inflight), [(2, 0)]);
    assert!(inflight.try_next().is_none(), "one call at a time");
    for expected in [2, 4, 5] {
        inflight.finish(&running[0], Verdict::Done);
        running = startable(&inflight);
        assert_eq!(sequences(&running), [expected], "the oldest first");
    }
}

#[test]
fn a_closed_hand_takes_no_seat_and_gives_back_the_rest() {
    let inflight = inflight(&[Some(1)]);
    let late = inflight.reserve(10, listener(0), 0).unwrap();
    admit(&inflight, 1..=3, listener(0));
    let running = startable(&inflight);
    inflight.enter(Phase::Draining);
    assert!(inflight.reserve(10, listener(0), 0).is_err());
    inflight.give_back_waiting();
    inflight.finish(&running[0], Verdict::Released);
    inflight.enter(Phase::Closed);
    assert_eq!(late.redeem(9, event(10)), Redeemed::Closed, "the writer releases its row");
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!((inflight.len(), inflight.depths()), (0, (0, 0)));
    inflight.enter(Phase::Running);
    assert_eq!(inflight.phase(), Phase::Closed);
}

#[test]
fn results_are_bounded() {
    let limits = Limits { results: 2, ..LIMITS };
    let inflight = Arc::new(InFlight::new(limits, &[ConcurrencyLimit::default()], Clock::System));
    admit(&inflight, 1..=4, listener(0));
    for _ in 0..2 {
        let entry = inflight.try_next().unwrap();
        inflight.finish(&entry, Verdict::Done);
    }
    assert!(inflight.try_next().is_none(), "first these must be recorded");
    let batch = inflight.take_results(10);
    assert!(inflight.try_next().is_none());
    inflight.recorded(batch, &[]);
    assert!(inflight.try_next().is_some());
}

#[test]
fn what_is_claimed_while_the_node_is_paused_goes_back() {
    let inflight = inflight(&[None]);
    inflight.enter(Phase::Paused);
    admit(&inflight, 1..=2, listener(0));
    let batch = inflight.take_results(10);
    assert!(batch.iter().all(|finish| matches!(finish.verdict, Verdict::Released)));
    assert_eq!(batch.len(), 2);
    inflight.enter(Phase::Draining);
    inflight.enter(Phase::Running);
    assert_eq!(inflight.phase(), Phase::Draining, "there is no way back");
}

#[test]
fn a_seat_gives_way_to_a_row_that_is_here_already() {
    let inflight = inflight(&[None]);
    let permit = inflight.reserve(10, listener(0), 0).unwrap();
    admit(&inflight, [1], listener(0));
    assert_eq!(permit.redeem(1, event(10)), Redeemed::InFlight);
    assert_eq!(startable(&inflight).len(), 1);
    assert_eq!(inflight.depths(), (0, 0));
}

#[test]
fn hot_events_of_a_limited_listener_leave_room_for_cold_ones() {
    let inflight = inflight(&[Some(1)]);
    let permits: Vec<Permit> =
        std::iter::from_fn(|| inflight.reserve(10, listener(0), 0).ok()).take(20).collect();
    assert_eq!(permits.len(), 2, "its share of the hot lane");
    assert_eq!(inflight.claim_budget().open, [true]);
}

#[test]
fn what_was_lost_with_its_owner_begins_when_that_is_written_down() {
    let inflight = inflight(&[None]);
    inflight.admit(vec![lost_row(1, 0), lost_row(2, 0), lost_row(3, 0)], Instant::now());
    admit(&inflight, [4], listener(0));
    assert_eq!(sequences(&startable(&inflight)), [4], "nobody suspects this one");
    assert_eq!(renew(&inflight), [(1, 1), (2, 1)], "as many as may be tried at once");
    let tried = startable(&inflight);
    assert_eq!(sequences(&tried), [1, 2]);
    assert!(inflight.to_renew().is_empty(), "the third waits");
    inflight.finish(&tried[0], Verdict::Done);
    assert!(inflight.to_renew().is_empty(), "not before its end is written down as well");
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!(renew(&inflight), [(3, 1)]);
    assert_eq!(sequences(&startable(&inflight)), [3]);
}

#[test]
fn what_was_lost_while_it_ran_is_tried_alone() {
    let inflight = inflight(&[None]);
    inflight.admit(vec![lost_row(1, 1), lost_row(2, 1), lost_row(3, 0)], Instant::now());
    assert!(startable(&inflight).is_empty());
    assert_eq!(renew(&inflight), [(3, 1)], "first those that need not be alone");
    let beside = startable(&inflight);
    assert!(inflight.to_renew().is_empty(), "not beside another");
    inflight.finish(&beside[0], Verdict::Done);
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!(renew(&inflight), [(1, 2)]);
    let alone = startable(&inflight);
    inflight.admit(vec![lost_row(4, 0)], Instant::now());
    assert!(startable(&inflight).is_empty() && inflight.to_renew().is_empty(), "nothing beside it");
    inflight.finish(&alone[0], Verdict::Done);
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!(renew(&inflight), [(4, 1)]);
}

#[test]
fn a_trial_that_cannot_be_written_down_is_somebody_elses() {
    let inflight = inflight(&[None]);
    inflight.admit(vec![lost_row(1, 0)], Instant::now());
    assert!(inflight.try_next().is_none());
    let asked = inflight.to_renew();
    assert_eq!(inflight.renewed(Instant::now(), &asked, &HashSet::new()), 1);
    assert_eq!((inflight.len(), inflight.depths()), (0, (0, 0)));
}

#[test]
fn transactions_are_shared_by_the_listeners_that_ask_for_one() {
    let in_tx = ConcurrencyLimit { calls: None, in_tx: true };
    let inflight =
        InFlight::new(LIMITS, &[in_tx, in_tx, ConcurrencyLimit::default()], Clock::System);
    admit(&inflight, 1..=3, listener(0));
    admit(&inflight, 11..=12, listener(1));
    admit(&inflight, [21], listener(2));
    let mut started = startable(&inflight);
    assert_eq!(sequences(&started), [1, 21], "one transaction; the others need none");
    for expected in [2, 11, 3, 12] {
        inflight.settled_in_tx(&started[0]);
        started = startable(&inflight);
        assert_eq!(sequences(&started), [expected], "in turn");
    }
    inflight.leave_to_lease(&started[0]);
    assert_eq!((inflight.len(), inflight.depths()), (1, (0, 0)));
}

#[test]
fn a_transaction_goes_to_a_listener_that_may_use_it() {
    let limits = Limits { transactions: 2, ..LIMITS };
    let one = ConcurrencyLimit { calls: Some(1), in_tx: true };
    let inflight =
        InFlight::new(limits, &[one, ConcurrencyLimit { calls: None, ..one }], Clock::System);
    admit(&inflight, 1..=2, listener(0));
    admit(&inflight, 11..=12, listener(1));
    let started = startable(&inflight);
    assert_eq!(sequences(&started), [1, 11]);
    inflight.settled_in_tx(&started[1]);
    assert_eq!(sequences(&startable(&inflight)), [12], "the other has had its call");
    inflight.settled_in_tx(&started[0]);
    assert_eq!(sequences(&startable(&inflight)), [2]);
}

#[test]
fn two_transactions_that_end_at_once_are_both_used() {
    let limits = Limits { transactions: 2, ..LIMITS };
    let one = ConcurrencyLimit { calls: Some(1), in_tx: true };
    let inflight =
        InFlight::new(limits, &[ConcurrencyLimit { calls: None, ..one }, one], Clock::System);
    admit(&inflight, 1..=2, listener(0));
    let started = startable(&inflight);
    admit(&inflight, 11..=12, listener(1));
    admit(&inflight, [3], listener(0));
    assert!(inflight.try_next().is_none());
    started.iter().for_each(|entry| {
        inflight.settled_in_tx(entry);
    });
    assert_eq!(sequences(&startable(&inflight)), [11, 3], "not two of a listener that takes one");
}

#[test]
fn a_trial_that_ends_without_a_verdict_is_taken_back() {
    let delay = Duration::from_secs(1);
    let results = |inflight: &InFlight| -> Vec<String> {
        let results = inflight.take_results(10);
        results.iter().map(|finish| format!("{} {:?}", finish.sequence, finish.verdict)).collect()
    };
    // One is begun, and one is about to: its beginning is written down. The third waits for its trial.
    let begun = || {
        let inflight = inflight(&[None]);
        inflight.admit(vec![lost_row(1, 0), lost_row(2, 0), lost_row(3, 0)], Instant::now());
        assert!(inflight.try_next().is_none());
        assert_eq!(renew(&inflight), [(1, 1), (2, 1)]);
        let first = inflight.try_next().unwrap();
        (inflight, first)
    };
    let (inflight, first) = begun();
    inflight.give_back_waiting();
    inflight.finish(&first, Verdict::Released);
    assert_eq!(results(&inflight), ["2 Cancelled", "3 Released", "1 Cancelled"]);
    let (inflight, first) = begun();
    end_unreachable(&inflight, &first, |_| delay);
    let expected =
        ["1 Deferred { delay: 1s }", "2 Deferred { delay: 1s }", "3 Postponed { delay: 1s }"];
    assert_eq!(results(&inflight), expected);
}
