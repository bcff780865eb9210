//! Each guard is needed: without it, the simulation finds a violation.
//!
//! Some guards back each other up. A settled row has no owner, so the owner in a settlement does most of what the
//! token, the terminal status and the new token of a replay are for. Those are tested without the owner.

use std::ops::Range;

use super::guards::Guards;
use super::random::{RandomRun, run_random};
use super::shrink;
use super::step::Step;
use crate::ordering::OnDead;

/// The maximum number of schedules that a violation may take to be found.
const SCHEDULES: u64 = 20_000;

/// Finds a schedule that fails with these guards, and returns its report.
fn find_violation(guards: Guards) -> String {
    find_violation_where(guards, |_| true)
}

/// Finds a schedule that fails with these guards and not with the `sufficient` ones, and returns its report.
fn find_violation_unless(guards: Guards, sufficient: Guards) -> String {
    find_violation_where(guards, |steps| shrink::violation(sufficient, steps).is_none())
}

fn find_violation_where(guards: Guards, matches: impl Fn(&[Step]) -> bool) -> String {
    find_violation_in(0..SCHEDULES, guards, matches)
}

fn find_violation_in(
    seeds: Range<u64>,
    guards: Guards,
    matches: impl Fn(&[Step]) -> bool,
) -> String {
    let failing = seeds.clone().find_map(|seed| match run_random(seed, guards) {
        RandomRun { violation: Some(violation), steps, .. } if matches(&steps) => {
            Some((seed, steps, violation))
        }
        _ => None,
    });
    let Some((seed, steps, violation)) = failing else {
        panic!("the schedules of seeds {seeds:?} have no violation with {guards:?}")
    };
    let report = shrink::report(guards, steps, &violation);
    println!("seed {seed}: {report}");
    report
}

#[test]
fn settling_needs_the_token() {
    find_violation(Guards { token: false, ..Guards::ALL });
}

#[test]
fn settling_needs_the_owner() {
    find_violation(Guards { owner: false, ..Guards::ALL });
}

#[test]
fn settling_must_not_change_terminal_rows() {
    let no_owner = Guards { owner: false, ..Guards::ALL };
    find_violation_unless(Guards { terminal: false, ..no_owner }, no_owner);
}

#[test]
fn renewing_needs_the_token_and_the_owner() {
    find_violation(Guards { renewal: false, ..Guards::ALL });
}

#[test]
fn rows_with_a_permit_must_be_inserted_claimed() {
    find_violation(Guards { inserted_claimed: false, ..Guards::ALL });
}

#[test]
fn permits_must_be_redeemed_after_the_commit() {
    let report = find_violation(Guards { redeemed_after_commit: false, ..Guards::ALL });
    assert!(report.contains("before its commit"), "{report}");
}

#[test]
fn attempts_must_not_be_incremented_by_a_repeated_batch() {
    let guards = Guards { absolute_attempts: false, owner: false, ..Guards::ALL };
    let counted_twice =
        |violation: String| violation.contains("attempts went from 1 to 2 after 1 failed");
    find_violation_where(guards, |steps| {
        shrink::violation(guards, steps).is_some_and(counted_twice)
    });
}

#[test]
fn replaying_must_raise_the_token() {
    let no_owner = Guards { owner: false, ..Guards::ALL };
    find_violation_unless(Guards { replay_token: false, ..no_owner }, no_owner);
}

#[test]
fn claiming_must_skip_rows_that_are_not_due() {
    find_violation(Guards { due: false, ..Guards::ALL });
}

#[test]
fn an_ordered_claim_must_begin_with_the_head() {
    let report = find_violation(Guards { head: false, ..Guards::ordered(OnDead::Block) });
    assert!(report.contains("has passed"), "{report}");
}

#[test]
fn an_ordered_claim_must_leave_an_aggregate_in_flight_alone() {
    find_violation(Guards { one_claim: false, ..Guards::ordered(OnDead::Block) });
}

#[test]
fn an_ordered_claim_must_take_over_all_rows_of_a_lost_owner() {
    // Rare: one in 60,000 schedules. The first one that is known is near the beginning of the range.
    let guards = Guards { whole_takeover: false, ..Guards::ordered(OnDead::Skip) };
    find_violation_in(56_000..456_000, guards, |_| true);
}

#[test]
fn a_failing_schedule_is_shortened_and_described() {
    let report = find_violation(Guards { redeemed_after_commit: false, ..Guards::ALL });
    let lines: Vec<&str> = report.lines().collect();
    assert!(lines.len() < 12, "{report}");
    for expected in ["writer", "insert; row 1: NEW due", "a worker looks for work", "✗ row 1:"] {
        assert!(report.contains(expected), "{expected} is missing:\n{report}");
    }
}
