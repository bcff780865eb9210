//! A crash at every step of a schedule.

use super::guards::Guards;
use super::random::run_random;
use super::step::{LifecycleStep, Step};
use super::{shrink, test_size};

#[test]
fn a_crash_at_any_step_violates_no_invariant() {
    for seed in 0..test_size(25, 2_000) {
        let steps = run_random(1_000_000 + seed, Guards::ALL).steps;
        for (at, relay) in (0..=steps.len()).flat_map(|at| [(at, 0), (at, 1)]) {
            let mut crashed = steps.clone();
            crashed.insert(at, Step::Lifecycle(relay, LifecycleStep::Crash));
            if let Some(violation) = shrink::violation(Guards::ALL, &crashed) {
                let report = shrink::report(Guards::ALL, crashed, &violation);
                panic!("schedule {seed}, relay {relay} crashes before step {at}: {report}");
            }
        }
    }
}
