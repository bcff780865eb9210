//! A failing schedule made short, and told.

use std::fmt::Write;
use std::time::Instant;

use super::guards::Guards;
use super::step::Step;
use super::world::World;

/// Runs a schedule, lets it settle, and gives what was wrong.
pub(super) fn violation(guards: Guards, steps: &[Step]) -> Option<String> {
    let mut world = World::new(guards, Instant::now());
    for step in steps {
        world.take(*step);
        if !world.sound() {
            return world.ledger.violation;
        }
    }
    world.settle(&mut |world, step| world.take(step));
    world.ledger.violation
}

/// What is wrong, whichever rows and numbers it is about.
fn kind(violation: &str) -> String {
    const ENOUGH: usize = 24;
    violation.chars().filter(|letter| !letter.is_ascii_digit()).take(ENOUGH).collect()
}

/// The fewest steps that still fail in the same way: leaves out as many at a time as it can, down to
/// single ones.
fn shrunk(guards: Guards, mut steps: Vec<Step>, wrong: &str) -> Vec<Step> {
    let wrong = kind(wrong);
    let mut size = steps.len() / 2;
    while size > 0 {
        let before = steps.len();
        let mut from = 0;
        while from < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(from..(from + size).min(steps.len()));
            if violation(guards, &fewer).is_some_and(|violation| kind(&violation) == wrong) {
                steps = fewer;
            } else {
                from += size;
            }
        }
        // What could not be left out before may be superfluous now.
        if steps.len() == before || size > 1 {
            size /= 2;
        }
    }
    steps
}

/// What happened, a line for each step, with the rows that it has changed.
fn tell(guards: Guards, steps: &[Step]) -> String {
    let mut told = String::new();
    let mut world = World::new(guards, Instant::now());
    let mut take = |world: &mut World, step: Step| {
        let before = world.table.rows.clone();
        let taken = world.take(step);
        if taken {
            let _ = write!(told, "{:>8?}  {step}", world.elapsed());
            for (row, after) in &world.table.rows {
                if before.get(row) != Some(after) {
                    let _ = write!(told, "; row {row}: {after}");
                }
            }
            for row in before.keys().filter(|row| !world.table.rows.contains_key(row)) {
                let _ = write!(told, "; row {row}: gone");
            }
            told.push('\n');
        }
        taken
    };
    for step in steps {
        if world.sound() {
            take(&mut world, *step);
        }
    }
    if world.sound() {
        world.settle(&mut take);
    }
    let violation = world.ledger.violation.unwrap_or_default();
    let _ = writeln!(told, "          ✗ {violation}");
    told
}

/// A failing schedule as people want to read it.
pub(super) fn report(guards: Guards, steps: Vec<Step>, violation: &str) -> String {
    let all = steps.len();
    let steps = shrunk(guards, steps, violation);
    let told = tell(guards, &steps);
    format!("{violation}\n{} of {all} steps are enough:\n{told}", steps.len())
}
