//! Schedules by chance.

use std::collections::BTreeMap;
use std::time::Instant;

use super::guards::Guards;
use super::ledger::Ledger;
use super::listen::Call;
use super::relay::Flight;
use super::step::{Ack, Ending, Exchange, Late, Life, Span, Step, Write};
use super::world::World;
use super::writer::Stage;
use super::{Kind, schedules, shrink};
use crate::inflight::Phase;

/// Numbers that look random and can be had again (SplitMix64).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.roll() % end).unwrap_or_default()
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// What a schedule is like.
#[derive(Debug, Clone, Copy)]
struct Mood {
    /// Crashes, lost answers and leases that end.
    faults: bool,
    /// Only events of this kind.
    only: Option<Kind>,
    /// This relay does nothing in this part of the schedule: between two numbers of steps.
    frozen: Option<(usize, usize, usize)>,
    steps: usize,
}

impl Mood {
    fn of(dice: &mut Dice) -> Self {
        let steps = 12 + dice.below(48);
        let frozen = dice.one_in(3).then(|| {
            let from = dice.below(steps);
            (dice.below(2), from, from + dice.below(30))
        });
        let only = dice.one_in(2).then(|| dice.pick(&Kind::ALL[..4]));
        Self { faults: !dice.one_in(4), only, frozen, steps }
    }
}

/// A schedule and what was wrong with it, if anything.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) steps: Vec<Step>,
    pub(super) violation: Option<String>,
    /// Something happened after which an event may be delivered twice.
    disturbed: bool,
}

/// Makes up a schedule while it runs, so that every step of it makes sense.
pub(super) fn tried(seed: u64, guards: Guards) -> Tried {
    let mut dice = Dice::new(seed);
    let mood = Mood::of(&mut dice);
    let mut world = World::new(guards, Instant::now());
    let mut steps = Vec::with_capacity(mood.steps);
    while steps.len() < mood.steps && world.sound() {
        let frozen = mood.frozen.filter(|(_, from, to)| (*from..*to).contains(&steps.len()));
        let relay = match frozen {
            Some((relay, ..)) => 1 - relay,
            None => dice.below(2),
        };
        let step = candidate(&mut dice, mood, &world, relay);
        if world.take(step) {
            steps.push(step);
        }
    }
    if world.sound() {
        world.settle(&mut |world, step| world.take(step));
    }
    let Ledger { violation, disturbed, .. } = world.ledger;
    Tried { steps, violation, disturbed }
}

/// Something that might happen next.
fn candidate(dice: &mut Dice, mood: Mood, world: &World, relay: usize) -> Step {
    let node = &world.relays[relay];
    match dice.below(100) {
        // Whoever is about to leave, or has left, does not stay like that for long.
        0..4 if !matches!(node.phase(), Some(Phase::Running | Phase::Paused)) => {
            Step::Life(relay, life(dice, mood, node.phase()))
        }
        0..16 => Step::Write(relay, write(dice, mood, node.writer.stage())),
        // A claim that finds nothing teaches little.
        16..32 if node.polling() == Flight::None && !world.is_due() && !dice.one_in(20) => {
            Step::Start(relay)
        }
        16..32 => Step::Poll(relay, exchange(dice, mood, node.polling())),
        32..46 => Step::Start(relay),
        46..70 => call(dice, mood, relay, &node.calls),
        70..83 => Step::Record(relay, exchange(dice, mood, node.recording())),
        83..91 => Step::Renew(relay, exchange(dice, mood, node.renewing())),
        91 => Step::Overdue(relay),
        92..94 => Step::Pass(span(dice, mood)),
        94 => Step::Life(relay, life(dice, mood, node.phase())),
        95..97 => Step::Late(dice.below(3), dice.pick(&[Late::Happens, Late::Never])),
        97..99 => Step::Replay(1 + i64::try_from(dice.below(6)).unwrap_or_default()),
        _ => Step::Purge,
    }
}

fn write(dice: &mut Dice, mood: Mood, stage: Stage) -> Write {
    let ending = if mood.faults && dice.one_in(2) { Write::Lose } else { Write::Rollback };
    match (stage, dice.below(32)) {
        (Stage::Idle, _) => Write::Begin,
        (Stage::Open | Stage::Committed, 0) => ending,
        (Stage::Open, 1..12) => Write::Reserve(mood.only.unwrap_or_else(|| dice.pick(&Kind::ALL))),
        (Stage::Open, 12..24) => Write::Insert,
        (Stage::Open, _) => Write::Commit,
        (Stage::Committed, _) => Write::Acknowledge,
    }
}

fn exchange(dice: &mut Dice, mood: Mood, flight: Flight) -> Exchange {
    match flight {
        Flight::None => Exchange::Send,
        _ if mood.faults && dice.one_in(6) => Exchange::Lose,
        Flight::Sent => Exchange::Execute,
        Flight::Executed if dice.one_in(3) => Exchange::Reread,
        Flight::Executed => Exchange::Answer,
    }
}

fn call(dice: &mut Dice, mood: Mood, relay: usize, calls: &[Call]) -> Step {
    let which = dice.below(calls.len().max(1));
    let ack = calls.get(which).and_then(Call::next);
    if let Some(ack) = ack.filter(|ack| *ack != Ack::Send || dice.one_in(2)) {
        let lost = mood.faults && dice.one_in(8);
        return Step::Acknowledge(relay, which, if lost { Ack::Lose } else { ack });
    }
    let ending = match dice.below(16) {
        0..5 => Ending::Done,
        5..8 => Ending::Failed,
        8 => Ending::Permanent,
        9 => Ending::Later,
        10..12 => Ending::Unreachable,
        12 => Ending::Panicked,
        13 => Ending::Unavailable,
        _ => Ending::Cancelled,
    };
    Step::End(relay, which, ending)
}

fn span(dice: &mut Dice, mood: Mood) -> Span {
    match dice.below(8) {
        0..4 => Span::Second,
        4..6 => Span::Third,
        _ if mood.faults => Span::Lease,
        _ => Span::Second,
    }
}

fn life(dice: &mut Dice, mood: Mood, phase: Option<Phase>) -> Life {
    match phase {
        None => Life::Restart,
        Some(_) if mood.faults && dice.one_in(4) => Life::Crash,
        Some(Phase::Running) => dice.pick(&[Life::Pause, Life::Drain]),
        Some(Phase::Paused) => dice.pick(&[Life::Resume, Life::Resume, Life::Drain]),
        Some(Phase::Draining) => Life::Close,
        Some(Phase::Closed) => Life::Restart,
    }
}

/// As the coverage test counts them: whatever the relay, the call or the row.
const KINDS_OF_STEP: usize = 52;

/// The seed to begin with.
fn first_seed() -> u64 {
    std::env::var("OUTBOX_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

#[test]
fn nothing_goes_wrong_in_any_schedule() {
    let first = first_seed();
    let began = Instant::now();
    let (mut steps, mut peaceful) = (0, 0);
    let count = schedules(10_000, 1_000_000);
    for seed in first..first + count {
        let tried = tried(seed, Guards::ALL);
        steps += tried.steps.len();
        peaceful += u64::from(!tried.disturbed);
        if let Some(violation) = tried.violation {
            panic!("seed {seed}: {}", shrink::report(Guards::ALL, tried.steps, &violation));
        }
    }
    let rate = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / began.elapsed().as_secs_f64();
    println!("{count} schedules ({peaceful} peaceful), {steps} steps, {rate:.0} schedules/s");
    assert!(peaceful > count / 20, "only {peaceful} schedules promise one delivery each");
}

#[test]
fn every_kind_of_step_is_taken() {
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..3_000 {
        for step in tried(seed, Guards::ALL).steps {
            *taken.entry(step.kind()).or_default() += 1;
        }
    }
    println!("{taken:#?}");
    assert_eq!(taken.len(), KINDS_OF_STEP, "some kind of step is never taken: {taken:#?}");
    let rare: Vec<_> = taken.iter().filter(|(_, times)| **times < 20).collect();
    assert!(rare.is_empty(), "{rare:?}");
}
