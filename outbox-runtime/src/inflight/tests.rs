//! Tests of the events in flight through the methods that other modules use.

mod activity;
mod breaker;
mod fairness;
mod reclaimed;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::event::{EventEnvelope, Recipient, Status, Verdict};
use crate::store::{Claim, Renewal, Settlement};

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
    order: None,
    in_sequence: false,
};

/// Returns an empty `InFlight` with a listener for each limit.
fn inflight(concurrency: &[Option<usize>]) -> Arc<InFlight> {
    let limit = |calls: &Option<usize>| ConcurrencyLimit { calls: *calls, in_tx: false };
    let listeners: Vec<ConcurrencyLimit> = concurrency.iter().map(limit).collect();
    Arc::new(InFlight::new(LIMITS, &listeners, Clock::System))
}

fn listener(index: usize) -> Option<ListenerId> {
    Some(ListenerId::new(index))
}

/// Ends a call whose listener could not reach what it depends on.
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

fn envelope(bytes: usize) -> EventEnvelope {
    EventEnvelope::json("A", format!("\"{}\"", "x".repeat(bytes - 2))).unwrap()
}

fn row(sequence: i64, token: i64) -> Claim {
    let (attempts, taken_over, takeovers, status) = (0, false, 0, Status::New);
    let (history, recipient) = (None, Recipient::Unnamed);
    let envelope = envelope(10);
    Claim { sequence, token, attempts, taken_over, takeovers, status, history, recipient, envelope }
}

/// Returns a row whose last owner was lost, and which was started `takeovers` times since.
fn suspect(sequence: i64, takeovers: u32) -> (Claim, Option<ListenerId>) {
    (Claim { taken_over: true, takeovers, ..row(sequence, 1) }, listener(0))
}

/// Renews all leases that need it, as the renewer does. Returns the sequence and the take-overs of each.
fn renew(inflight: &InFlight) -> Vec<(i64, u32)> {
    let requested = inflight.to_renew();
    let all = requested.iter().map(|row| row.sequence).collect();
    inflight.renewed(Instant::now(), &requested, &all);
    let mut renewed: Vec<_> = requested.iter().map(|row| (row.sequence, row.takeovers)).collect();
    renewed.sort_unstable();
    renewed
}

fn admit(inflight: &InFlight, sequences: impl IntoIterator<Item = i64>, id: Option<ListenerId>) {
    let rows = sequences.into_iter().map(|sequence| (row(sequence, 1), id)).collect();
    inflight.admit(rows, Instant::now());
}

/// Reserves a place, and redeems the permit.
fn admit_hot(inflight: &Arc<InFlight>, sequence: i64) {
    let permit = inflight.reserve(10, listener(0), 0).unwrap();
    assert_eq!(permit.redeem(sequence, envelope(10)), Redeemed::InFlight);
}

/// Starts all events that can start now.
fn start_all(inflight: &InFlight) -> Vec<QueuedEvent> {
    std::iter::from_fn(|| inflight.try_next()).collect()
}

fn sequences(events: &[QueuedEvent]) -> Vec<i64> {
    events.iter().map(|event| event.sequence).collect()
}

#[test]
fn two_hot_events_start_for_each_cold_one() {
    let inflight = inflight(&[None]);
    (1..=6).for_each(|sequence| admit_hot(&inflight, sequence));
    admit(&inflight, 11..=16, listener(0));
    assert_eq!(sequences(&start_all(&inflight)), [1, 2, 11, 3, 4, 12, 5, 6, 13, 14, 15, 16]);
    admit(&inflight, 21..=23, listener(0));
    assert_eq!(sequences(&start_all(&inflight)), [21, 22, 23]);
}

#[test]
fn a_hot_event_is_first_after_an_idle_time() {
    let inflight = inflight(&[None]);
    // The number of events that were started before, one at a time, makes no difference.
    for before in 0..6 {
        for cold in 0..before {
            admit(&inflight, [100 + cold], listener(0));
            let event = inflight.try_next().unwrap();
            inflight.finish(&event, Verdict::Done);
            inflight.recorded(inflight.take_results(10), &[]);
        }
        assert!(inflight.try_next().is_none(), "the queues are empty");
        admit(&inflight, 11..=12, listener(0));
        (1..=3).for_each(|sequence| admit_hot(&inflight, sequence));
        let started = start_all(&inflight);
        assert_eq!(sequences(&started), [1, 2, 11, 3, 12], "after {before} events");
        for event in &started {
            inflight.finish(event, Verdict::Done);
        }
        inflight.recorded(inflight.take_results(10), &[]);
    }
}

#[test]
fn only_a_choice_between_both_queues_counts_as_a_turn() {
    let inflight = inflight(&[None]);
    admit_hot(&inflight, 1);
    admit(&inflight, 11..=14, listener(0));
    assert_eq!(sequences(&[inflight.try_next().unwrap()]), [1]);
    // The hot queue is empty, so these do not count as a turn.
    let alone = [inflight.try_next().unwrap(), inflight.try_next().unwrap()];
    assert_eq!(sequences(&alone), [11, 12]);
    (2..=4).for_each(|sequence| admit_hot(&inflight, sequence));
    assert_eq!(sequences(&start_all(&inflight)), [2, 13, 3, 4, 14]);
}

#[test]
fn headers_count_against_the_byte_limit() {
    let inflight = inflight(&[None]);
    let builder =
        EventEnvelope::builder("A").header("trace", "x".repeat(395)).payload_json("\"12345678\"");
    let envelope = builder.build().unwrap();
    assert_eq!(envelope.bytes(), 10 + 5 + 395);
    inflight.admit(vec![(Claim { envelope, ..row(1, 1) }, listener(0))], Instant::now());
    assert_eq!(inflight.claim_budget().bytes, LIMITS.bytes - 410);
}

#[test]
fn permits_are_limited_by_number_by_bytes_and_per_transaction() {
    let inflight = inflight(&[None]);
    assert!(inflight.reserve(10, listener(0), 2).is_err(), "the limit of one transaction");
    let large = inflight.reserve(950, listener(0), 0).unwrap();
    assert!(matches!(inflight.reserve(100, listener(0), 0), Err(NoPermit::Full)), "bytes");
    drop(large);
    let permits: Vec<Permit> =
        (0..8).map(|_| inflight.reserve(100, listener(0), 0).unwrap()).collect();
    assert!(matches!(inflight.reserve(1, listener(0), 0), Err(NoPermit::Full)), "number");
    drop(permits);
    assert!(inflight.reserve(100, listener(0), 0).is_ok(), "dropped permits free their places");
    inflight.enter(Phase::Paused);
    assert!(matches!(inflight.reserve(1, listener(0), 0), Err(NoPermit::NotAccepting)));
}

#[test]
fn bytes_are_in_flight_until_the_settlement_is_durable() {
    let inflight = inflight(&[None]);
    let permit = inflight.reserve(900, listener(0), 0).unwrap();
    assert_eq!(permit.redeem(1, envelope(10)), Redeemed::InFlight);
    let event = inflight.try_next().unwrap();
    inflight.finish(&event, Verdict::Done);
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
    let started = start_all(&inflight);
    assert_eq!(sequences(&started), [1, 11, 12]);
    inflight.finish(&started[0], Verdict::Done);
    assert_eq!(sequences(&start_all(&inflight)), [2], "one call has ended");
    assert_eq!(inflight.claim_budget().open, [false, true], "its portion is used up");
}

#[test]
fn no_event_starts_with_a_short_lease() {
    let inflight = inflight(&[None]);
    let long_ago = Instant::now().checked_sub(LEASE * 3 / 4).unwrap();
    inflight.admit(vec![(row(1, 1), listener(0)), (row(2, 1), listener(0))], long_ago);
    assert!(inflight.try_next().is_none());
    let mut requested = inflight.to_renew();
    requested.sort_unstable_by_key(|row| row.sequence);
    let renewal = |sequence| Renewal { sequence, token: 1, takeovers: 0 };
    assert_eq!(requested, [renewal(1), renewal(2)]);
    // The second is renewed; another node has claimed the first.
    let lost = inflight.renewed(Instant::now(), &requested, &HashSet::from([2]));
    assert_eq!((lost, sequences(&start_all(&inflight)), inflight.len()), (1, vec![2], 1));
}

#[test]
fn a_parked_event_keeps_its_turn_during_a_renewal() {
    let inflight = inflight(&[Some(1)]);
    let long_ago = Instant::now().checked_sub(LEASE * 3 / 4).unwrap();
    admit(&inflight, [1], listener(0));
    inflight.admit(vec![(row(2, 1), listener(0))], long_ago);
    admit(&inflight, [3, 4, 5], listener(0));
    let mut running = start_all(&inflight);
    assert_eq!(sequences(&running), [1]);
    inflight.finish(&running[0], Verdict::Done);
    running = start_all(&inflight);
    assert_eq!(sequences(&running), [3], "the lease of 2 is too short");
    assert_eq!(renew(&inflight), [(2, 0)]);
    assert!(inflight.try_next().is_none(), "one call at a time");
    for expected in [2, 4, 5] {
        inflight.finish(&running[0], Verdict::Done);
        running = start_all(&inflight);
        assert_eq!(sequences(&running), [expected], "the oldest first");
    }
}

#[test]
fn a_closed_node_redeems_no_permit_and_gives_back_queued_events() {
    let inflight = inflight(&[Some(1)]);
    let late = inflight.reserve(10, listener(0), 0).unwrap();
    admit(&inflight, 1..=3, listener(0));
    let running = start_all(&inflight);
    inflight.enter(Phase::Draining);
    assert!(inflight.reserve(10, listener(0), 0).is_err());
    inflight.give_back_waiting();
    inflight.finish(&running[0], Verdict::Released);
    inflight.enter(Phase::Closed);
    assert_eq!(late.redeem(9, envelope(10)), Redeemed::Closed, "the writer releases its row");
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!((inflight.len(), inflight.depths()), (0, (0, 0)));
    inflight.enter(Phase::Running);
    assert_eq!(inflight.phase(), Phase::Closed);
}

#[test]
fn unrecorded_verdicts_are_limited() {
    let limits = Limits { results: 2, ..LIMITS };
    let inflight = Arc::new(InFlight::new(limits, &[ConcurrencyLimit::default()], Clock::System));
    admit(&inflight, 1..=4, listener(0));
    for _ in 0..2 {
        let event = inflight.try_next().unwrap();
        inflight.finish(&event, Verdict::Done);
    }
    assert!(inflight.try_next().is_none(), "two verdicts wait to be recorded");
    let batch = inflight.take_results(10);
    assert!(inflight.try_next().is_none());
    inflight.recorded(batch, &[]);
    assert!(inflight.try_next().is_some());
}

#[test]
fn rows_claimed_while_the_node_is_paused_are_released() {
    let inflight = inflight(&[None]);
    inflight.enter(Phase::Paused);
    admit(&inflight, 1..=2, listener(0));
    let batch = inflight.take_results(10);
    assert!(batch.iter().all(|settlement| settlement.verdict == Verdict::Released));
    assert_eq!(batch.len(), 2);
    inflight.enter(Phase::Draining);
    inflight.enter(Phase::Running);
    assert_eq!(inflight.phase(), Phase::Draining, "a node that drains cannot be resumed");
}

#[test]
fn a_permit_for_a_row_in_flight_is_freed() {
    let inflight = inflight(&[None]);
    let permit = inflight.reserve(10, listener(0), 0).unwrap();
    admit(&inflight, [1], listener(0));
    assert_eq!(permit.redeem(1, envelope(10)), Redeemed::InFlight);
    assert_eq!(start_all(&inflight).len(), 1);
    assert_eq!(inflight.depths(), (0, 0));
}

#[test]
fn hot_events_of_a_limited_listener_leave_places_for_cold_ones() {
    let inflight = inflight(&[Some(1)]);
    let permits: Vec<Permit> =
        std::iter::from_fn(|| inflight.reserve(10, listener(0), 0).ok()).take(20).collect();
    assert_eq!(permits.len(), 2, "its portion of the hot queue");
    assert_eq!(inflight.claim_budget().open, [true]);
}

#[test]
fn a_suspect_starts_when_its_start_is_recorded() {
    let inflight = inflight(&[None]);
    inflight.admit(vec![suspect(1, 0), suspect(2, 0), suspect(3, 0)], Instant::now());
    admit(&inflight, [4], listener(0));
    assert_eq!(sequences(&start_all(&inflight)), [4], "this one is no suspect");
    assert_eq!(renew(&inflight), [(1, 1), (2, 1)], "the limit of suspects");
    let tried = start_all(&inflight);
    assert_eq!(sequences(&tried), [1, 2]);
    assert!(inflight.to_renew().is_empty(), "the third waits");
    inflight.finish(&tried[0], Verdict::Done);
    assert!(inflight.to_renew().is_empty(), "its settlement is not durable yet");
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!(renew(&inflight), [(3, 1)]);
    assert_eq!(sequences(&start_all(&inflight)), [3]);
}

#[test]
fn a_suspect_that_had_started_is_tried_alone() {
    let inflight = inflight(&[None]);
    inflight.admit(vec![suspect(1, 1), suspect(2, 1), suspect(3, 0)], Instant::now());
    assert!(start_all(&inflight).is_empty());
    assert_eq!(renew(&inflight), [(3, 1)], "those that had not started are first");
    let beside = start_all(&inflight);
    assert!(inflight.to_renew().is_empty(), "the others must be alone");
    inflight.finish(&beside[0], Verdict::Done);
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!(renew(&inflight), [(1, 2)]);
    let alone = start_all(&inflight);
    inflight.admit(vec![suspect(4, 0)], Instant::now());
    assert!(start_all(&inflight).is_empty() && inflight.to_renew().is_empty(), "it is alone");
    inflight.finish(&alone[0], Verdict::Done);
    inflight.recorded(inflight.take_results(10), &[]);
    assert_eq!(renew(&inflight), [(4, 1)]);
}

#[test]
fn a_suspect_whose_start_cannot_be_recorded_is_dropped() {
    let inflight = inflight(&[None]);
    inflight.admit(vec![suspect(1, 0)], Instant::now());
    assert!(inflight.try_next().is_none());
    let requested = inflight.to_renew();
    assert_eq!(inflight.renewed(Instant::now(), &requested, &HashSet::new()), 1);
    assert_eq!((inflight.len(), inflight.depths()), (0, (0, 0)));
}

#[test]
fn listeners_take_turns_with_transactions() {
    let in_tx = ConcurrencyLimit { calls: None, in_tx: true };
    let inflight =
        InFlight::new(LIMITS, &[in_tx, in_tx, ConcurrencyLimit::default()], Clock::System);
    admit(&inflight, 1..=3, listener(0));
    admit(&inflight, 11..=12, listener(1));
    admit(&inflight, [21], listener(2));
    let mut started = start_all(&inflight);
    assert_eq!(sequences(&started), [1, 21], "one transaction; the third listener needs none");
    for expected in [2, 11, 3, 12] {
        inflight.settled_in_tx(&started[0]);
        started = start_all(&inflight);
        assert_eq!(sequences(&started), [expected], "the listeners take turns");
    }
    inflight.leave_to_lease(&started[0]);
    assert_eq!((inflight.len(), inflight.depths()), (1, (0, 0)));
}

#[test]
fn a_free_transaction_goes_to_a_listener_below_its_limit() {
    let limits = Limits { transactions: 2, ..LIMITS };
    let one = ConcurrencyLimit { calls: Some(1), in_tx: true };
    let inflight =
        InFlight::new(limits, &[one, ConcurrencyLimit { calls: None, ..one }], Clock::System);
    admit(&inflight, 1..=2, listener(0));
    admit(&inflight, 11..=12, listener(1));
    let started = start_all(&inflight);
    assert_eq!(sequences(&started), [1, 11]);
    inflight.settled_in_tx(&started[1]);
    assert_eq!(sequences(&start_all(&inflight)), [12], "the other is at its limit");
    inflight.settled_in_tx(&started[0]);
    assert_eq!(sequences(&start_all(&inflight)), [2]);
}

#[test]
fn two_free_transactions_are_both_used() {
    let limits = Limits { transactions: 2, ..LIMITS };
    let one = ConcurrencyLimit { calls: Some(1), in_tx: true };
    let inflight =
        InFlight::new(limits, &[ConcurrencyLimit { calls: None, ..one }, one], Clock::System);
    admit(&inflight, 1..=2, listener(0));
    let started = start_all(&inflight);
    admit(&inflight, 11..=12, listener(1));
    admit(&inflight, [3], listener(0));
    assert!(inflight.try_next().is_none());
    started.iter().for_each(|event| {
        inflight.settled_in_tx(event);
    });
    assert_eq!(sequences(&start_all(&inflight)), [11, 3], "the second listener may have one call");
}

#[test]
fn a_recorded_start_of_a_suspect_without_a_verdict_is_taken_back() {
    let delay = Duration::from_secs(1);
    let verdicts = |inflight: &InFlight| -> Vec<String> {
        let settlements = inflight.take_results(10);
        let text =
            |settlement: &Settlement| format!("{} {:?}", settlement.sequence, settlement.verdict);
        settlements.iter().map(text).collect()
    };
    // The first runs, the start of the second is recorded, and the third waits in quarantine.
    let quarantined = || {
        let inflight = inflight(&[None]);
        inflight.admit(vec![suspect(1, 0), suspect(2, 0), suspect(3, 0)], Instant::now());
        assert!(inflight.try_next().is_none());
        assert_eq!(renew(&inflight), [(1, 1), (2, 1)]);
        let first = inflight.try_next().unwrap();
        (inflight, first)
    };
    let (inflight, first) = quarantined();
    inflight.give_back_waiting();
    inflight.finish(&first, Verdict::Released);
    assert_eq!(verdicts(&inflight), ["2 Cancelled", "3 Released", "1 Cancelled"]);
    let (inflight, first) = quarantined();
    end_unreachable(&inflight, &first, |_| delay);
    let expected =
        ["1 Deferred { delay: 1s }", "2 Deferred { delay: 1s }", "3 Postponed { delay: 1s }"];
    assert_eq!(verdicts(&inflight), expected);
}
