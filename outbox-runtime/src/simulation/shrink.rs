//! Shortens a failing schedule, and prints it step by step.

use std::fmt::Write;
use std::time::Instant;

use super::guards::Guards;
use super::step::Step;
use super::world::World;

/// Runs a schedule to its end, and returns the first violation.
pub(super) fn violation(guards: Guards, steps: &[Step]) -> Option<String> {
    let mut world = World::new(guards, Instant::now());
    for step in steps {
        world.apply(*step);
        if !world.is_valid() {
            return world.ledger.violation;
        }
    }
    world.quiesce(&mut |world, step| world.apply(step));
    world.ledger.violation
}

/// Returns the beginning of a violation without its numbers: the same for any row and any node.
fn category(violation: &str) -> String {
    const LENGTH: usize = 24;
    violation.chars().filter(|letter| !letter.is_ascii_digit()).take(LENGTH).collect()
}

/// Removes steps as long as the rest fails in the same way: many at a time first, then single ones.
fn shrink(guards: Guards, mut steps: Vec<Step>, expected: &str) -> Vec<Step> {
    let expected = category(expected);
    let mut size = steps.len() / 2;
    while size > 0 {
        let before = steps.len();
        let mut from = 0;
        while from < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(from..(from + size).min(steps.len()));
            if violation(guards, &fewer).is_some_and(|violation| category(&violation) == expected) {
                steps = fewer;
            } else {
                from += size;
            }
        }
        // A step that was needed before may be unnecessary now.
        if steps.len() == before || size > 1 {
            size /= 2;
        }
    }
    steps
}

/// Describes a schedule: a line for each step, with the rows that it has changed.
fn describe(guards: Guards, steps: &[Step]) -> String {
    let mut text = String::new();
    let mut world = World::new(guards, Instant::now());
    let mut apply = |world: &mut World, step: Step| {
        let before = world.table.rows.clone();
        let applied = world.apply(step);
        if applied {
            let _ = write!(text, "{:>8?}  {step}", world.elapsed());
            for (row, after) in &world.table.rows {
                if before.get(row) != Some(after) {
                    let _ = write!(text, "; row {row}: {after}");
                }
            }
            for row in before.keys().filter(|row| !world.table.rows.contains_key(row)) {
                let _ = write!(text, "; row {row}: deleted");
            }
            text.push('\n');
        }
        applied
    };
    for step in steps {
        if world.is_valid() {
            apply(&mut world, *step);
        }
    }
    if world.is_valid() {
        world.quiesce(&mut apply);
    }
    let violation = world.ledger.violation.unwrap_or_default();
    let _ = writeln!(text, "          ✗ {violation}");
    text
}

/// Returns a violation with the shortest schedule that leads to it.
pub(super) fn report(guards: Guards, steps: Vec<Step>, violation: &str) -> String {
    let all = steps.len();
    let steps = shrink(guards, steps, violation);
    let description = describe(guards, &steps);
    format!("{violation}\n{} of {all} steps are enough:\n{description}", steps.len())
}
