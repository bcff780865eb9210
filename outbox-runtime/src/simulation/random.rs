//! Random schedules.

use std::collections::BTreeMap;
use std::time::Instant;

use super::call::Call;
use super::guards::Guards;
use super::ledger::Ledger;
use super::relay::StatementState;
use super::step::{
    AckStep, Ending, LateStep, LifecycleStep, StatementStep, Step, TimeSpan, WriteStep,
};
use super::world::World;
use super::writer::Stage;
use super::{EventKind, shrink, test_size};
use crate::inflight::Phase;
use crate::ordering::OnDead;

/// A generator of reproducible pseudo-random numbers (SplitMix64).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    /// Returns `true` once in `chance` times, on average.
    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// The properties of a schedule.
#[derive(Debug, Clone, Copy)]
struct ScheduleOptions {
    /// Whether there are crashes, lost responses and expired leases.
    faults: bool,
    /// The kind of all events, if they have the same.
    only_kind: Option<EventKind>,
    stall: Option<Stall>,
    steps: usize,
}

/// A part of a schedule in which one relay does nothing.
#[derive(Debug, Clone, Copy)]
struct Stall {
    relay: usize,
    from_step: usize,
    to_step: usize,
}

impl ScheduleOptions {
    fn new(random: &mut Random) -> Self {
        let steps = 12 + random.below(48);
        let stall = random.one_in(3).then(|| {
            let from_step = random.below(steps);
            let relay = random.below(2);
            Stall { relay, from_step, to_step: from_step + random.below(30) }
        });
        let only_kind = random.one_in(2).then(|| random.pick(&EventKind::ALL[..4]));
        Self { faults: !random.one_in(4), only_kind, stall, steps }
    }
}

/// A random schedule, and how it went.
#[derive(Debug)]
pub(super) struct RandomRun {
    pub(super) steps: Vec<Step>,
    pub(super) violation: Option<String>,
    /// Whether a fault has happened after which an event may be delivered twice.
    redelivery_allowed: bool,
}

/// Runs the schedule of a seed. Each step is chosen when the one before it was applied, so that every step of the
/// schedule is possible.
pub(super) fn run_random(seed: u64, guards: Guards) -> RandomRun {
    let mut random = Random::new(seed);
    let options = ScheduleOptions::new(&mut random);
    let mut world = World::new(guards, Instant::now());
    let mut steps = Vec::with_capacity(options.steps);
    while steps.len() < options.steps && world.is_valid() {
        let stall =
            options.stall.filter(|stall| (stall.from_step..stall.to_step).contains(&steps.len()));
        let relay = match stall {
            Some(stall) => 1 - stall.relay,
            None => random.below(2),
        };
        let step = candidate(&mut random, options, &world, relay);
        if world.apply(step) {
            steps.push(step);
        }
    }
    if world.is_valid() {
        world.quiesce(&mut |world, step| world.apply(step));
    }
    let Ledger { violation, redelivery_allowed, .. } = world.ledger;
    RandomRun { steps, violation, redelivery_allowed }
}

/// Returns a step that may be possible next.
fn candidate(random: &mut Random, options: ScheduleOptions, world: &World, relay: usize) -> Step {
    let node = &world.relays[relay];
    match random.below(100) {
        // A relay that is shutting down, or has ended, is not left like that for long.
        0..4 if !matches!(node.phase(), Some(Phase::Running | Phase::Paused)) => {
            Step::Lifecycle(relay, lifecycle(random, options, node.phase()))
        }
        0..16 => Step::Write(relay, write(random, options, node.writer.stage())),
        // A claim that finds no row is of little use.
        16..32
            if node.claim_state() == StatementState::NotSent
                && !world.is_due()
                && !random.one_in(20) =>
        {
            Step::Start(relay)
        }
        16..32 => Step::Poll(relay, statement(random, options, node.claim_state())),
        32..46 => Step::Start(relay),
        46..70 => call(random, options, relay, &node.calls),
        70..83 => Step::Record(relay, statement(random, options, node.settlement_state())),
        83..91 => Step::Renew(relay, statement(random, options, node.renewal_state())),
        91 => Step::ReleaseOverdue(relay),
        92..94 => Step::Advance(time_span(random, options)),
        94 => Step::Lifecycle(relay, lifecycle(random, options, node.phase())),
        95..97 => Step::Late(random.below(3), random.pick(&[LateStep::Execute, LateStep::Discard])),
        97..99 => Step::Replay(1 + i64::try_from(random.below(6)).unwrap_or_default()),
        _ => Step::Purge,
    }
}

fn write(random: &mut Random, options: ScheduleOptions, stage: Stage) -> WriteStep {
    let ending =
        if options.faults && random.one_in(2) { WriteStep::Lose } else { WriteStep::Rollback };
    match (stage, random.below(32)) {
        (Stage::Idle, _) => WriteStep::Begin,
        (Stage::Open | Stage::Committed, 0) => ending,
        (Stage::Open, 1..12) => {
            WriteStep::Reserve(options.only_kind.unwrap_or_else(|| random.pick(&EventKind::ALL)))
        }
        (Stage::Open, 12..24) => WriteStep::Insert,
        (Stage::Open, _) => WriteStep::Commit,
        (Stage::Committed, _) => WriteStep::Acknowledge,
    }
}

fn statement(
    random: &mut Random,
    options: ScheduleOptions,
    state: StatementState,
) -> StatementStep {
    match state {
        StatementState::NotSent => StatementStep::Send,
        _ if options.faults && random.one_in(6) => StatementStep::Lose,
        StatementState::Sent => StatementStep::Execute,
        StatementState::Executed if random.one_in(3) => StatementStep::Reread,
        StatementState::Executed => StatementStep::Receive,
    }
}

fn call(random: &mut Random, options: ScheduleOptions, relay: usize, calls: &[Call]) -> Step {
    let index = random.below(calls.len().max(1));
    let ack = calls.get(index).and_then(Call::next);
    if let Some(ack) = ack.filter(|ack| *ack != AckStep::Send || random.one_in(2)) {
        let lost = options.faults && random.one_in(8);
        return Step::Acknowledge(relay, index, if lost { AckStep::Lose } else { ack });
    }
    let ending = match random.below(16) {
        0..5 => Ending::Done,
        5..8 => Ending::Failed,
        8 => Ending::Permanent,
        9 => Ending::RetryAfter,
        10..12 => Ending::Unreachable,
        12 => Ending::Panicked,
        13 => Ending::Unavailable,
        _ => Ending::Cancelled,
    };
    Step::End(relay, index, ending)
}

fn time_span(random: &mut Random, options: ScheduleOptions) -> TimeSpan {
    match random.below(8) {
        0..4 => TimeSpan::Second,
        4..6 => TimeSpan::ThirdOfLease,
        _ if options.faults => TimeSpan::Lease,
        _ => TimeSpan::Second,
    }
}

fn lifecycle(random: &mut Random, options: ScheduleOptions, phase: Option<Phase>) -> LifecycleStep {
    match phase {
        None => LifecycleStep::Restart,
        Some(_) if options.faults && random.one_in(4) => LifecycleStep::Crash,
        Some(Phase::Running) => random.pick(&[LifecycleStep::Pause, LifecycleStep::Drain]),
        Some(Phase::Paused) => {
            random.pick(&[LifecycleStep::Resume, LifecycleStep::Resume, LifecycleStep::Drain])
        }
        Some(Phase::Draining) => LifecycleStep::Close,
        Some(Phase::Closed) => LifecycleStep::Restart,
    }
}

/// The number of different steps, without regard to the relay, the call and the row.
const KINDS_OF_STEP: usize = 52;

/// Returns the seed to start with.
fn first_seed() -> u64 {
    std::env::var("OUTBOX_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

#[test]
fn random_schedules_violate_no_invariant() {
    run_schedules(Guards::ALL, test_size(10_000, 1_000_000));
}

#[test]
fn random_schedules_violate_no_invariant_in_order() {
    for on_dead in [OnDead::Block, OnDead::Skip] {
        run_schedules(Guards::ordered(on_dead), test_size(5_000, 500_000));
    }
}

fn run_schedules(guards: Guards, count: u64) {
    let first = first_seed();
    let start = Instant::now();
    let (mut steps, mut exactly_once) = (0, 0);
    for seed in first..first + count {
        let run = run_random(seed, guards);
        steps += run.steps.len();
        exactly_once += u64::from(!run.redelivery_allowed);
        if let Some(violation) = run.violation {
            panic!("seed {seed}: {}", shrink::report(guards, run.steps, &violation));
        }
    }
    let rate = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / start.elapsed().as_secs_f64();
    println!(
        "{count} schedules ({exactly_once} exactly once), {steps} steps, {rate:.0} schedules/s"
    );
    assert!(exactly_once > count / 20, "only {exactly_once} schedules check exactly-once delivery");
}

#[test]
fn every_kind_of_step_is_applied() {
    let mut applied: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..3_000 {
        for step in run_random(seed, Guards::ALL).steps {
            *applied.entry(step.kind()).or_default() += 1;
        }
    }
    println!("{applied:#?}");
    assert_eq!(applied.len(), KINDS_OF_STEP, "some kind of step is never applied: {applied:#?}");
    let rare: Vec<_> = applied.iter().filter(|(_, times)| **times < 20).collect();
    assert!(rare.is_empty(), "{rare:?}");
}
