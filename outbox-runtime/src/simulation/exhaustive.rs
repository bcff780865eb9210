//! Every order of a few steps, for one row and two relays.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use super::guards::Guards;
use super::step::{
    AckStep, Ending, LateStep, LifecycleStep, StatementStep, Step, TimeSpan, WriteStep,
};
use super::world::World;
use super::{EventKind, shrink, test_size};

/// The result of an exploration.
#[derive(Debug, Default)]
struct Explored {
    states: usize,
    /// The number of steps up to which every order was explored.
    depth: usize,
    violation: Option<String>,
}

/// Applies all steps in every order after a prefix, until `max_states` are known. Each state is also run to its
/// end. A path that leads to a known state is not continued.
fn explore(guards: Guards, prefix: &[Step], steps: &[Step], max_states: usize) -> Explored {
    let start = Instant::now();
    let mut explored = Explored::default();
    let mut known: HashSet<u64> = HashSet::new();
    let mut frontier: Vec<Vec<Step>> = vec![prefix.to_vec()];
    while !frontier.is_empty() && known.len() < max_states {
        let mut next = Vec::new();
        for path in &frontier {
            let mut unchanged = None;
            for step in steps {
                // A step that is not possible leaves the world unchanged for the next one.
                let mut world = unchanged.take().unwrap_or_else(|| run(guards, path, start));
                if !world.apply(*step) {
                    unchanged = Some(world);
                    continue;
                }
                if known.len() >= max_states || !known.insert(world.fingerprint()) {
                    continue;
                }
                let longer: Vec<Step> = path.iter().copied().chain([*step]).collect();
                if world.is_valid() {
                    world.quiesce(&mut |world, step| world.apply(step));
                }
                if let Some(violation) = world.ledger.violation {
                    explored.violation = Some(shrink::report(guards, longer, &violation));
                    return explored;
                }
                next.push(longer);
            }
        }
        frontier = next;
        explored.depth += usize::from(known.len() < max_states);
        explored.states = known.len();
    }
    explored
}

fn run(guards: Guards, path: &[Step], start: Instant) -> World {
    let mut world = World::new(guards, start);
    for step in path {
        world.apply(*step);
    }
    world
}

impl World {
    /// Returns a hash of the whole state.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.table.rows.hash(&mut hasher);
        self.table.now.hash(&mut hasher);
        self.ledger.histories().hash(&mut hasher);
        self.ledger.redelivery_allowed.hash(&mut hasher);
        format!("{:?}", self.late).hash(&mut hasher);
        self.relays.iter().for_each(|relay| relay.snapshot().hash(&mut hasher));
        hasher.finish()
    }
}

/// Inserts a row with a permit, in the process of the first relay.
fn insert(kind: EventKind) -> [Step; 3] {
    [WriteStep::Begin, WriteStep::Reserve(kind), WriteStep::Insert].map(|step| Step::Write(0, step))
}

/// Commits the inserted row, and redeems its permit.
const COMMIT: [Step; 2] =
    [Step::Write(0, WriteStep::Commit), Step::Write(0, WriteStep::Acknowledge)];

/// A statement whose response is received, or lost.
const STATEMENT: [StatementStep; 4] =
    [StatementStep::Send, StatementStep::Execute, StatementStep::Receive, StatementStep::Lose];

/// Returns the steps of both relays.
fn both_relays(steps: impl Fn(usize) -> Vec<Step>) -> Vec<Step> {
    (0..2).flat_map(steps).collect()
}

/// Returns the steps of claims, settlements and calls that end in one of these ways.
fn deliveries(relay: usize, endings: &[Ending]) -> Vec<Step> {
    let mut steps: Vec<Step> = STATEMENT.map(|step| Step::Poll(relay, step)).to_vec();
    steps.extend(STATEMENT.map(|step| Step::Record(relay, step)));
    steps.extend(endings.iter().map(|ending| Step::End(relay, 0, *ending)));
    steps.extend([Step::Record(relay, StatementStep::Reread), Step::Start(relay)]);
    steps
}

fn check(name: &str, prefix: &[Step], steps: &[Step]) {
    let max_states = usize::try_from(test_size(2_500, 250_000)).unwrap();
    let Explored { states, depth, violation } = explore(Guards::ALL, prefix, steps, max_states);
    println!("{name}: {states} states, complete to {depth} steps, {} kinds of step", steps.len());
    if let Some(violation) = violation {
        panic!("{name}: {violation}");
    }
}

#[test]
fn expired_leases_in_every_order() {
    let mut steps = both_relays(|relay| deliveries(relay, &[Ending::Done, Ending::Failed]));
    steps.extend(COMMIT);
    steps.extend([Step::Advance(TimeSpan::Lease), Step::Late(0, LateStep::Execute)]);
    check("leases", &insert(EventKind::Plain), &steps);
}

#[test]
fn crashes_and_renewals_in_every_order() {
    let mut steps = both_relays(|relay| {
        let mut steps: Vec<Step> = STATEMENT.map(|step| Step::Renew(relay, step)).to_vec();
        steps.extend(STATEMENT[..3].iter().map(|step| Step::Poll(relay, *step)));
        let lifecycle = [LifecycleStep::Crash, LifecycleStep::Restart];
        steps.extend(lifecycle.map(|step| Step::Lifecycle(relay, step)));
        steps.extend([Step::Start(relay), Step::ReleaseOverdue(relay)]);
        steps
    });
    steps.extend([TimeSpan::ThirdOfLease, TimeSpan::Lease].map(Step::Advance));
    check("renewals", &[&insert(EventKind::Plain)[..], &COMMIT].concat(), &steps);
}

#[test]
fn listener_transactions_in_every_order() {
    let mut steps = both_relays(|relay| {
        let mut steps = deliveries(relay, &[Ending::Failed]);
        let ack =
            [AckStep::Send, AckStep::Settle, AckStep::Commit, AckStep::Receive, AckStep::Lose];
        steps.extend(ack.map(|step| Step::Acknowledge(relay, 0, step)));
        steps
    });
    steps.extend([LateStep::Execute, LateStep::Discard].map(|step| Step::Late(0, step)));
    steps.push(Step::Advance(TimeSpan::Lease));
    check("transactions", &[&insert(EventKind::InTx)[..], &COMMIT].concat(), &steps);
}

#[test]
fn dead_events_and_replays_in_every_order() {
    let mut steps = deliveries(0, &[Ending::Permanent, Ending::Done]);
    let lease = Step::Advance(TimeSpan::Lease);
    steps.extend([Step::Replay(1), lease, Step::Late(0, LateStep::Execute)]);
    let lifecycle = [
        LifecycleStep::Pause,
        LifecycleStep::Resume,
        LifecycleStep::Drain,
        LifecycleStep::Close,
        LifecycleStep::Restart,
    ];
    steps.extend(lifecycle.map(|step| Step::Lifecycle(0, step)));
    check("replays", &[&insert(EventKind::Plain)[..], &COMMIT].concat(), &steps);
}
