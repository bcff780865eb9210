//! Each guard is missed when it is gone: the simulation finds out.
//!
//! Some of them stand behind one another. A row that is marked has no owner any more, so that the owner
//! in a mark does most of what the token, the terminal status and the new token of a replay are for.
//! Those are tried without it.

use super::guards::Guards;
use super::random::{Tried, tried};
use super::shrink;
use super::step::Step;

/// How many schedules it may take.
const SCHEDULES: u64 = 20_000;

/// A schedule that goes wrong without some guards, made short and told.
fn found(guards: Guards) -> String {
    found_only(guards, |_| true)
}

/// One that goes wrong without some guards, and not if one of them is there.
fn found_without(guards: Guards, there: Guards) -> String {
    found_only(guards, |steps| shrink::violation(there, steps).is_none())
}

fn found_only(guards: Guards, wanted: impl Fn(&[Step]) -> bool) -> String {
    let failing = (0..SCHEDULES).find_map(|seed| match tried(seed, guards) {
        Tried { violation: Some(violation), steps, .. } if wanted(&steps) => {
            Some((seed, steps, violation))
        }
        _ => None,
    });
    let Some((seed, steps, violation)) = failing else {
        panic!("nothing is found within {SCHEDULES} schedules without {guards:?}")
    };
    let report = shrink::report(guards, steps, &violation);
    println!("seed {seed}: {report}");
    report
}

#[test]
fn marks_without_their_token() {
    found(Guards { token: false, ..Guards::ALL });
}

#[test]
fn marks_without_their_owner() {
    found(Guards { owner: false, ..Guards::ALL });
}

#[test]
fn marks_on_what_has_ended() {
    let no_owner = Guards { owner: false, ..Guards::ALL };
    found_without(Guards { terminal: false, ..no_owner }, no_owner);
}

#[test]
fn renewals_of_what_is_somebody_elses() {
    found(Guards { renewal: false, ..Guards::ALL });
}

#[test]
fn rows_with_a_seat_that_anybody_can_claim() {
    found(Guards { born_claimed: false, ..Guards::ALL });
}

#[test]
fn deliveries_before_the_commit() {
    let report = found(Guards { after_commit: false, ..Guards::ALL });
    assert!(report.contains("before its commit"), "{report}");
}

#[test]
fn attempts_that_are_counted_again_when_a_batch_is_sent_again() {
    let guards = Guards { attempts_by_value: false, owner: false, ..Guards::ALL };
    let twice = |violation: String| violation.contains("attempts went from 1 to 2 of 1");
    found_only(guards, |steps| shrink::violation(guards, steps).is_some_and(twice));
}

#[test]
fn replays_that_keep_the_token() {
    let no_owner = Guards { owner: false, ..Guards::ALL };
    found_without(Guards { replay_token: false, ..no_owner }, no_owner);
}

#[test]
fn claims_of_what_is_not_due() {
    found(Guards { due: false, ..Guards::ALL });
}

#[test]
fn a_failing_schedule_is_short_and_says_who_did_what_to_which_row() {
    let report = found(Guards { after_commit: false, ..Guards::ALL });
    let lines: Vec<&str> = report.lines().collect();
    assert!(lines.len() < 12, "{report}");
    for said in ["writer", "insert; row 1: NEW due", "a worker looks for work", "✗ row 1:"] {
        assert!(report.contains(said), "{said} is missing:\n{report}");
    }
}
