//! A node that stands by, or whose right to deliver has ended.

use std::sync::Mutex;

use super::*;

#[test]
fn a_standby_takes_no_event_and_gives_back_those_that_wait() {
    let inflight = inflight(&[None]);
    admit(&inflight, [1, 2], listener(0));
    let running = inflight.try_next().unwrap();
    assert!(inflight.stand_by());
    assert!(!inflight.stand_by(), "it stands by already");
    assert!(inflight.try_next().is_none());
    assert_eq!(inflight.reserve(1, listener(0), 0).unwrap_err(), NoPermit::NotAccepting);
    assert_eq!(inflight.claim_budget().free_places, 0);
    let given_back = inflight.take_results(10);
    assert_eq!(given_back.len(), 1);
    assert_eq!((given_back[0].sequence, &given_back[0].verdict), (2, &Verdict::Released));
    // The call that runs is completed.
    inflight.finish(&running, Verdict::Done);
    assert_eq!(inflight.take_results(10)[0].verdict, Verdict::Done);
}

#[test]
fn nothing_starts_after_the_right_to_deliver_has_ended() {
    let now = Arc::new(Mutex::new(Instant::now()));
    let clock = Clock::Simulated(Arc::clone(&now));
    let inflight = Arc::new(InFlight::new(LIMITS, &[ConcurrencyLimit::default()], clock));
    let second = Duration::from_secs(1);
    inflight.stand_by();
    assert!(inflight.activate(inflight.now() + second));
    assert!(!inflight.activate(inflight.now() + second), "it is active already");
    admit(&inflight, [1, 2], listener(0));
    assert_eq!(inflight.try_next().unwrap().sequence, 1);
    let permit = inflight.reserve(1, listener(0), 0).unwrap();
    // As if the process had been stopped: nothing tells it so.
    *now.lock().unwrap() += second;
    assert!(inflight.try_next().is_none());
    assert_eq!(inflight.claim_budget().free_places, 0);
    admit(&inflight, [3], listener(0));
    assert_eq!(permit.redeem(4, envelope(2)), Redeemed::InFlight);
    let given_back = inflight.take_results(10);
    let given_back: Vec<i64> = given_back.iter().map(|settlement| settlement.sequence).collect();
    assert_eq!(given_back, [3, 4], "what comes in later is given back");
    inflight.activate(inflight.now() + second);
    assert_eq!(inflight.try_next().unwrap().sequence, 2);
}

#[test]
fn in_sequence_no_event_overtakes_a_suspect() {
    let limits = Limits { in_sequence: true, workers: 1, suspects: 1, ..LIMITS };
    let inflight = InFlight::new(limits, &[ConcurrencyLimit::default()], Clock::System);
    inflight.admit(vec![suspect(1, 0), (row(2, 1), listener(0))], Instant::now());
    assert!(inflight.try_next().is_none(), "its start is not recorded yet");
    assert!(inflight.try_next().is_none());
    assert_eq!(renew(&inflight), [(1, 1)]);
    assert_eq!(inflight.try_next().unwrap().sequence, 1);
    assert_eq!(inflight.try_next().unwrap().sequence, 2);
}
