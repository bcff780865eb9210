//! A listener that cannot reach what it depends on.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{
    LIMITS, admit, admit_hot, end_unreachable, envelope, inflight, listener, row, sequences,
    start_all,
};
use crate::clock::Clock;
use crate::event::Verdict;
use crate::inflight::{
    BreakerChange, ConcurrencyLimit, InFlight, Limits, NoPermit, Phase, Redeemed,
};
use crate::store::Settlement;

const PAUSE: Duration = Duration::from_secs(1);

/// Returns an `InFlight` with one listener, and the time of its clock.
fn with_clock(limits: Limits, limit: ConcurrencyLimit) -> (Arc<InFlight>, Arc<Mutex<Instant>>) {
    let now = Arc::new(Mutex::new(Instant::now()));
    let inflight = InFlight::new(limits, &[limit], Clock::Simulated(Arc::clone(&now)));
    (Arc::new(inflight), now)
}

fn advance(now: &Mutex<Instant>, by: Duration) {
    *now.lock().unwrap() += by;
}

/// Opens the circuit breaker by a call of this event, and records the settlements.
fn open(inflight: &InFlight, sequence: i64) {
    inflight.admit(vec![(row(sequence, 1), listener(0))], inflight.now());
    let event = inflight.try_next().unwrap();
    assert_eq!(event.sequence, sequence);
    end_unreachable(inflight, &event, |failures| PAUSE * failures);
    inflight.recorded(inflight.take_results(100), &[]);
}

#[test]
fn an_open_breaker_gives_back_queued_events_and_probes_with_one() {
    let inflight = inflight(&[None]);
    admit(&inflight, 1..=4, listener(0));
    let first = inflight.try_next().unwrap();
    let change = end_unreachable(&inflight, &first, |_| Duration::ZERO);
    assert_eq!(change, BreakerChange::Opened { failures: 1 });
    assert!(inflight.try_next().is_none());
    let batch = inflight.take_results(10);
    assert!(matches!(batch[0].verdict, Verdict::Deferred { .. }), "it was called");
    let is_postponed =
        |settlement: &Settlement| matches!(settlement.verdict, Verdict::Postponed { .. });
    assert!(batch[1..].iter().all(is_postponed), "the others were not called");
    assert_eq!(batch.len(), 4);
    inflight.recorded(batch, &[]);
    admit(&inflight, 5..=6, listener(0));
    let probe = start_all(&inflight);
    assert_eq!(sequences(&probe), [5], "only one is the probe");
    assert_eq!(inflight.claim_budget().open, [false], "nothing is claimed during the probe");
    let change = end_unreachable(&inflight, &probe[0], |_| Duration::ZERO);
    assert_eq!(change, BreakerChange::Opened { failures: 2 });
    let batch = inflight.take_results(10);
    assert_eq!(batch.len(), 2, "the other one is given back as well");
    inflight.recorded(batch, &[]);
    admit(&inflight, 7..=9, listener(0));
    let probe = start_all(&inflight);
    assert_eq!(sequences(&probe), [7]);
    assert_eq!(inflight.finish(&probe[0], Verdict::Done), BreakerChange::Closed);
    assert_eq!(sequences(&start_all(&inflight)), [8, 9], "those that waited for the probe start");
    assert_eq!(inflight.claim_budget().open, [true]);
}

#[test]
fn a_listener_is_open_again_when_its_pause_is_over() {
    let (inflight, now) = with_clock(LIMITS, ConcurrencyLimit::default());
    open(&inflight, 1);
    let budget = inflight.claim_budget();
    assert_eq!(
        (budget.open, budget.changes_in, inflight.paused_listeners()),
        (vec![false], Some(PAUSE), 1)
    );
    assert_eq!(budget.reopens_in, Some(PAUSE));
    assert_eq!(inflight.reserve(10, listener(0), 0).unwrap_err(), NoPermit::NotAccepting);
    advance(&now, PAUSE);
    let budget = inflight.claim_budget();
    assert_eq!(
        (budget.open, budget.changes_in, inflight.paused_listeners()),
        (vec![true], None, 0)
    );
}

#[test]
fn the_next_hot_event_is_the_probe() {
    let (inflight, now) = with_clock(LIMITS, ConcurrencyLimit::default());
    open(&inflight, 1);
    advance(&now, PAUSE);
    let first = inflight.reserve(10, listener(0), 0).unwrap();
    assert_eq!(
        inflight.reserve(10, listener(0), 0).unwrap_err(),
        NoPermit::NotAccepting,
        "one probe is enough"
    );
    assert_eq!(first.redeem(2, envelope(10)), Redeemed::InFlight);
    let probe = inflight.try_next().unwrap();
    assert_eq!(
        inflight.reserve(10, listener(0), 0).unwrap_err(),
        NoPermit::NotAccepting,
        "the probe runs"
    );
    assert_eq!(inflight.paused_listeners(), 1, "other events wait for its verdict");
    assert_eq!(inflight.finish(&probe, Verdict::Done), BreakerChange::Closed);
    assert_eq!(inflight.paused_listeners(), 0);
    admit_hot(&inflight, 3);
    assert_eq!(sequences(&start_all(&inflight)), [3]);
}

#[test]
fn no_large_backlog_is_claimed_for_a_probe() {
    let (inflight, now) =
        with_clock(Limits { cold: 80, batch: 50, ..LIMITS }, ConcurrencyLimit::default());
    open(&inflight, 1);
    advance(&now, PAUSE);
    assert_eq!(inflight.claim_budget().rows, 10, "an eighth of the queue");
    inflight
        .admit((2..=11).map(|sequence| (row(sequence, 1), listener(0))).collect(), inflight.now());
    assert_eq!(inflight.claim_budget().open, [false]);
    let probe = start_all(&inflight);
    assert_eq!(sequences(&probe), [2]);
    let change = end_unreachable(&inflight, &probe[0], |failures| PAUSE * failures);
    assert_eq!(change, BreakerChange::Opened { failures: 2 });
    assert_eq!((inflight.take_results(100).len(), inflight.depths()), (10, (0, 0)));
    assert_eq!(inflight.claim_budget().changes_in, Some(PAUSE * 2));
    advance(&now, PAUSE * 3);
    assert_eq!(inflight.claim_budget().rows, 80, "no backlog was found");
}

#[test]
fn after_a_probe_without_a_verdict_the_next_event_is_the_probe() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let event = inflight.try_next().unwrap();
    end_unreachable(&inflight, &event, |_| Duration::ZERO);
    inflight.recorded(inflight.take_results(10), &[]);
    admit(&inflight, 2..=4, listener(0));
    let probe = start_all(&inflight);
    inflight.finish(&probe[0], Verdict::Released);
    assert!(inflight.try_next().is_none(), "its settlement is not durable yet");
    inflight.recorded(inflight.take_results(10), &[]);
    let probe = start_all(&inflight);
    assert_eq!(sequences(&probe), [3], "the next event is the probe");
    // It is unknown whether its transaction was committed.
    assert_eq!(inflight.leave_to_lease(&probe[0]), ());
    assert_eq!(sequences(&start_all(&inflight)), [4]);
}

#[test]
fn an_event_that_is_settled_without_a_call_is_no_probe() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let event = inflight.try_next().unwrap();
    end_unreachable(&inflight, &event, |_| Duration::ZERO);
    inflight.recorded(inflight.take_results(10), &[]);
    // It is dead, because too many owners were lost with it.
    let dead = Verdict::Dead { attempts: 0, error: String::new() };
    inflight.settle(2, 1, dead, Instant::now());
    inflight.recorded(inflight.take_results(10), &[]);
    admit(&inflight, 3..=4, listener(0));
    assert_eq!(sequences(&start_all(&inflight)), [3], "the breaker is still half-open");
}

#[test]
fn an_older_call_does_not_change_the_result_of_a_probe() {
    let inflight = inflight(&[None]);
    admit(&inflight, 1..=2, listener(0));
    let calls = start_all(&inflight);
    end_unreachable(&inflight, &calls[1], |_| Duration::ZERO);
    inflight.recorded(inflight.take_results(10), &[]);
    // The first call still runs when the pause is over.
    admit(&inflight, [3], listener(0));
    let probe = inflight.try_next().unwrap();
    assert_eq!(
        inflight.finish(&calls[0], Verdict::Done),
        BreakerChange::Unchanged,
        "it started before the breaker opened"
    );
    assert_eq!(inflight.finish(&probe, Verdict::Done), BreakerChange::Closed);
}

#[test]
fn a_probe_counts_against_the_limit_of_its_listener() {
    let (inflight, now) = with_clock(LIMITS, ConcurrencyLimit { calls: Some(2), in_tx: false });
    inflight
        .admit((1..=2).map(|sequence| (row(sequence, 1), listener(0))).collect(), inflight.now());
    let calls = start_all(&inflight);
    assert_eq!(sequences(&calls), [1, 2]);
    end_unreachable(&inflight, &calls[0], |failures| PAUSE * failures);
    advance(&now, PAUSE);
    inflight
        .admit((3..=4).map(|sequence| (row(sequence, 1), listener(0))).collect(), inflight.now());
    assert_eq!(sequences(&start_all(&inflight)), [3], "one call still runs");
    inflight.enter(Phase::Draining);
    inflight.finish(&calls[1], Verdict::Done);
    assert!(inflight.try_next().is_none(), "the probe runs");
}
