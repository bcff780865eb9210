//! A listener that cannot reach what it talks to.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{
    LIMITS, admit, end_unreachable, event, inflight, listener, permit, row, sequences, startable,
};
use crate::clock::Clock;
use crate::event::Verdict;
use crate::inflight::{
    BreakerChange, ConcurrencyLimit, InFlight, Limits, NoPermit, Phase, Redeemed,
};
use crate::store::Settlement;

const PAUSE: Duration = Duration::from_secs(1);

/// A hand whose time is moved by hand.
fn timed(limits: Limits, share: ConcurrencyLimit) -> (Arc<InFlight>, Arc<Mutex<Instant>>) {
    let now = Arc::new(Mutex::new(Instant::now()));
    let inflight = InFlight::new(limits, &[share], Clock::Simulated(Arc::clone(&now)));
    (Arc::new(inflight), now)
}

fn pass(now: &Mutex<Instant>, time: Duration) {
    *now.lock().unwrap() += time;
}

/// Lets the breaker open with a call of this event, and the results be recorded.
fn open(inflight: &InFlight, sequence: i64) {
    inflight.admit(vec![(row(sequence, 1), listener(0))], inflight.now());
    let entry = inflight.try_next().unwrap();
    assert_eq!(entry.sequence, sequence);
    end_unreachable(inflight, &entry, |failures| PAUSE * failures);
    inflight.recorded(inflight.take_results(100), &[]);
}

#[test]
fn an_open_breaker_gives_everything_back_and_lets_one_try() {
    let inflight = inflight(&[None]);
    admit(&inflight, 1..=4, listener(0));
    let first = inflight.try_next().unwrap();
    let step = end_unreachable(&inflight, &first, |_| Duration::ZERO);
    assert_eq!(step, BreakerChange::Opened { failures: 1 });
    assert!(inflight.try_next().is_none());
    let batch = inflight.take_results(10);
    assert!(matches!(batch[0].verdict, Verdict::Deferred { .. }), "it was called");
    let waited = |finish: &Settlement| matches!(finish.verdict, Verdict::Postponed { .. });
    assert!(batch[1..].iter().all(waited), "the others were not");
    assert_eq!(batch.len(), 4);
    inflight.recorded(batch, &[]);
    admit(&inflight, 5..=6, listener(0));
    let probe = startable(&inflight);
    assert_eq!(sequences(&probe), [5], "only one tries");
    assert_eq!(inflight.claim_budget().open, [false], "nothing is claimed until its end");
    let step = end_unreachable(&inflight, &probe[0], |_| Duration::ZERO);
    assert_eq!(step, BreakerChange::Opened { failures: 2 });
    let batch = inflight.take_results(10);
    assert_eq!(batch.len(), 2, "the other one goes back with it");
    inflight.recorded(batch, &[]);
    admit(&inflight, 7..=9, listener(0));
    let probe = startable(&inflight);
    assert_eq!(sequences(&probe), [7]);
    assert_eq!(inflight.finish(&probe[0], Verdict::Done), BreakerChange::Closed);
    assert_eq!(sequences(&startable(&inflight)), [8, 9], "those that waited for it go on");
    assert_eq!(inflight.claim_budget().open, [true]);
}

#[test]
fn after_its_pause_a_listener_is_not_paused_and_nothing_is_due_to_happen() {
    let (inflight, now) = timed(LIMITS, ConcurrencyLimit::default());
    open(&inflight, 1);
    let budget = inflight.claim_budget();
    assert_eq!(
        (budget.open, budget.changes_in, inflight.paused_listeners()),
        (vec![false], Some(PAUSE), 1)
    );
    assert_eq!(budget.reopens_in, Some(PAUSE));
    assert_eq!(inflight.reserve(10, listener(0), 0).unwrap_err(), NoPermit::Closed);
    pass(&now, PAUSE);
    let budget = inflight.claim_budget();
    assert_eq!(
        (budget.open, budget.changes_in, inflight.paused_listeners()),
        (vec![true], None, 0)
    );
}

#[test]
fn the_next_hot_event_is_the_probe() {
    let (inflight, now) = timed(LIMITS, ConcurrencyLimit::default());
    open(&inflight, 1);
    pass(&now, PAUSE);
    let first = inflight.reserve(10, listener(0), 0).unwrap();
    assert_eq!(
        inflight.reserve(10, listener(0), 0).unwrap_err(),
        NoPermit::Closed,
        "one is enough"
    );
    assert_eq!(first.redeem(2, event(10)), Redeemed::InFlight);
    let probe = inflight.try_next().unwrap();
    assert_eq!(
        inflight.reserve(10, listener(0), 0).unwrap_err(),
        NoPermit::Closed,
        "it is being tried"
    );
    assert_eq!(inflight.paused_listeners(), 1, "others wait for its verdict");
    assert_eq!(inflight.finish(&probe, Verdict::Done), BreakerChange::Closed);
    assert_eq!(inflight.paused_listeners(), 0);
    permit(&inflight, 3);
    assert_eq!(sequences(&startable(&inflight)), [3]);
}

#[test]
fn a_large_backlog_is_not_claimed_for_a_probe() {
    let (inflight, now) =
        timed(Limits { cold: 80, batch: 50, ..LIMITS }, ConcurrencyLimit::default());
    open(&inflight, 1);
    pass(&now, PAUSE);
    assert_eq!(inflight.claim_budget().rows, 10, "an eighth of the queue");
    inflight
        .admit((2..=11).map(|sequence| (row(sequence, 1), listener(0))).collect(), inflight.now());
    assert_eq!(inflight.claim_budget().open, [false]);
    let probe = startable(&inflight);
    assert_eq!(sequences(&probe), [2]);
    let step = end_unreachable(&inflight, &probe[0], |failures| PAUSE * failures);
    assert_eq!(step, BreakerChange::Opened { failures: 2 });
    assert_eq!((inflight.take_results(100).len(), inflight.depths()), (10, (0, 0)));
    assert_eq!(inflight.claim_budget().changes_in, Some(PAUSE * 2));
    pass(&now, PAUSE * 3);
    assert_eq!(inflight.claim_budget().rows, 80, "no backlog was found");
}

#[test]
fn a_probe_that_vanishes_leaves_it_to_the_next() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let entry = inflight.try_next().unwrap();
    end_unreachable(&inflight, &entry, |_| Duration::ZERO);
    inflight.recorded(inflight.take_results(10), &[]);
    admit(&inflight, 2..=4, listener(0));
    let probe = startable(&inflight);
    inflight.finish(&probe[0], Verdict::Released);
    assert!(inflight.try_next().is_none(), "not before that is recorded");
    inflight.recorded(inflight.take_results(10), &[]);
    let probe = startable(&inflight);
    assert_eq!(sequences(&probe), [3], "another one must try");
    // Whether its transaction was committed is not known.
    assert_eq!(inflight.leave_to_lease(&probe[0]), ());
    assert_eq!(sequences(&startable(&inflight)), [4]);
}

#[test]
fn what_is_settled_unseen_is_no_probe() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1], listener(0));
    let entry = inflight.try_next().unwrap();
    end_unreachable(&inflight, &entry, |_| Duration::ZERO);
    inflight.recorded(inflight.take_results(10), &[]);
    // It turns out to have lost too many owners.
    let dead = Verdict::Dead { attempts: 0, error: String::new() };
    inflight.settle(2, 1, dead, Instant::now());
    inflight.recorded(inflight.take_results(10), &[]);
    admit(&inflight, 3..=4, listener(0));
    assert_eq!(sequences(&startable(&inflight)), [3], "the breaker is still half-open");
}

#[test]
fn a_hung_call_does_not_keep_a_probe_from_its_verdict() {
    let inflight = inflight(&[None]);
    admit(&inflight, 1..=2, listener(0));
    let calls = startable(&inflight);
    end_unreachable(&inflight, &calls[1], |_| Duration::ZERO);
    inflight.recorded(inflight.take_results(10), &[]);
    // The first call still runs when the pause is over.
    admit(&inflight, [3], listener(0));
    let probe = inflight.try_next().unwrap();
    assert_eq!(
        inflight.finish(&calls[0], Verdict::Done),
        BreakerChange::Unchanged,
        "it says nothing"
    );
    assert_eq!(inflight.finish(&probe, Verdict::Done), BreakerChange::Closed);
}

#[test]
fn a_probe_keeps_to_the_limit_of_its_listener() {
    let (inflight, now) = timed(LIMITS, ConcurrencyLimit { calls: Some(2), in_tx: false });
    inflight
        .admit((1..=2).map(|sequence| (row(sequence, 1), listener(0))).collect(), inflight.now());
    let calls = startable(&inflight);
    assert_eq!(sequences(&calls), [1, 2]);
    end_unreachable(&inflight, &calls[0], |failures| PAUSE * failures);
    pass(&now, PAUSE);
    inflight
        .admit((3..=4).map(|sequence| (row(sequence, 1), listener(0))).collect(), inflight.now());
    assert_eq!(sequences(&startable(&inflight)), [3], "one call still runs");
    inflight.enter(Phase::Draining);
    inflight.finish(&calls[1], Verdict::Done);
    assert!(inflight.try_next().is_none(), "and one probes");
}
