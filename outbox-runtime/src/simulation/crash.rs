//! A crash at every point of a schedule.

use super::guards::Guards;
use super::random::tried;
use super::step::{Life, Step};
use super::{schedules, shrink};

#[test]
fn a_relay_may_crash_at_any_point() {
    for seed in 0..schedules(25, 2_000) {
        let steps = tried(1_000_000 + seed, Guards::ALL).steps;
        for (at, relay) in (0..=steps.len()).flat_map(|at| [(at, 0), (at, 1)]) {
            let mut crashed = steps.clone();
            crashed.insert(at, Step::Life(relay, Life::Crash));
            if let Some(violation) = shrink::violation(Guards::ALL, &crashed) {
                let report = shrink::report(Guards::ALL, crashed, &violation);
                panic!("schedule {seed}, crash of {relay} before step {at}: {report}");
            }
        }
    }
}
