//! Every order of a few steps, for one row and two relays.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use super::guards::Guards;
use super::step::{Ack, Ending, Exchange, Late, Life, Span, Step, Write};
use super::world::World;
use super::{Kind, schedules, shrink};

/// What has been found out.
#[derive(Debug, Default)]
struct Explored {
    states: usize,
    /// So many steps are complete.
    depth: usize,
    violation: Option<String>,
}

/// Takes all steps in every order, from where a prefix leads, until so many states are known. Each of
/// them is left to settle as well. What leads to a state that is known is not followed any further.
fn explore(guards: Guards, prefix: &[Step], steps: &[Step], most: usize) -> Explored {
    let began = Instant::now();
    let mut explored = Explored::default();
    let mut known: HashSet<u64> = HashSet::new();
    let mut edge: Vec<Vec<Step>> = vec![prefix.to_vec()];
    while !edge.is_empty() && known.len() < most {
        let mut next = Vec::new();
        for path in &edge {
            let mut world = None;
            for step in steps {
                // A step that makes no sense leaves the world to the next one.
                let mut here = world.take().unwrap_or_else(|| follow(guards, path, began));
                if !here.take(*step) {
                    world = Some(here);
                    continue;
                }
                if known.len() >= most || !known.insert(here.fingerprint()) {
                    continue;
                }
                let longer: Vec<Step> = path.iter().copied().chain([*step]).collect();
                if here.sound() {
                    here.settle(&mut |world, step| world.take(step));
                }
                if let Some(violation) = here.ledger.violation {
                    explored.violation = Some(shrink::report(guards, longer, &violation));
                    return explored;
                }
                next.push(longer);
            }
        }
        edge = next;
        explored.depth += usize::from(known.len() < most);
        explored.states = known.len();
    }
    explored
}

fn follow(guards: Guards, path: &[Step], began: Instant) -> World {
    let mut world = World::new(guards, began);
    for step in path {
        world.take(*step);
    }
    world
}

impl World {
    /// A number that differs if anything does.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.table.rows.hash(&mut hasher);
        self.table.now.hash(&mut hasher);
        self.ledger.stories().hash(&mut hasher);
        self.ledger.disturbed.hash(&mut hasher);
        format!("{:?}", self.late).hash(&mut hasher);
        self.relays.iter().for_each(|relay| relay.portrait().hash(&mut hasher));
        hasher.finish()
    }
}

/// A row that is written by the first relay's process, with a seat.
fn written(kind: Kind) -> [Step; 3] {
    [Write::Begin, Write::Reserve(kind), Write::Insert].map(|write| Step::Write(0, write))
}

/// What both relays can do.
fn of_both(steps: impl Fn(usize) -> Vec<Step>) -> Vec<Step> {
    (0..2).flat_map(steps).collect()
}

/// Claims, results and a call that ends in one of some ways.
fn deliveries(relay: usize, endings: &[Ending]) -> Vec<Step> {
    let exchanges = [Exchange::Send, Exchange::Execute, Exchange::Answer, Exchange::Lose];
    let mut steps: Vec<Step> =
        exchanges.iter().map(|exchange| Step::Poll(relay, *exchange)).collect();
    steps.extend(exchanges.map(|exchange| Step::Record(relay, exchange)));
    steps.extend(endings.iter().map(|ending| Step::End(relay, 0, *ending)));
    steps.extend([Step::Record(relay, Exchange::Reread), Step::Start(relay)]);
    steps
}

fn check(what: &str, prefix: &[Step], steps: &[Step]) {
    let most = usize::try_from(schedules(2_500, 250_000)).unwrap();
    let Explored { states, depth, violation } = explore(Guards::ALL, prefix, steps, most);
    println!("{what}: {states} states, complete to {depth} steps, {} kinds of step", steps.len());
    if let Some(violation) = violation {
        panic!("{what}: {violation}");
    }
}

#[test]
fn leases_that_end_in_every_order() {
    let mut steps = of_both(|relay| deliveries(relay, &[Ending::Done, Ending::Failed]));
    steps.extend([Write::Commit, Write::Acknowledge].map(|write| Step::Write(0, write)));
    steps.extend([Step::Pass(Span::Lease), Step::Late(0, Late::Happens)]);
    check("leases", &written(Kind::Plain), &steps);
}

#[test]
fn crashes_and_renewals_in_every_order() {
    let mut steps = of_both(|relay| {
        let renewals = [Exchange::Send, Exchange::Execute, Exchange::Answer, Exchange::Lose];
        let mut steps: Vec<Step> =
            renewals.iter().map(|exchange| Step::Renew(relay, *exchange)).collect();
        steps.extend(renewals[..3].iter().map(|exchange| Step::Poll(relay, *exchange)));
        steps.extend([Life::Crash, Life::Restart].map(|life| Step::Life(relay, life)));
        steps.extend([Step::Start(relay), Step::Overdue(relay)]);
        steps
    });
    steps.extend([Span::Third, Span::Lease].map(Step::Pass));
    let committed = [Step::Write(0, Write::Commit), Step::Write(0, Write::Acknowledge)];
    check("renewals", &[&written(Kind::Plain)[..], &committed].concat(), &steps);
}

#[test]
fn transactions_of_listeners_in_every_order() {
    let mut steps = of_both(|relay| {
        let mut steps = deliveries(relay, &[Ending::Failed]);
        let acks = [Ack::Send, Ack::Mark, Ack::Commit, Ack::Answer, Ack::Lose];
        steps.extend(acks.map(|ack| Step::Acknowledge(relay, 0, ack)));
        steps
    });
    steps.extend([Late::Happens, Late::Never].map(|late| Step::Late(0, late)));
    steps.push(Step::Pass(Span::Lease));
    let committed = [Step::Write(0, Write::Commit), Step::Write(0, Write::Acknowledge)];
    check("transactions", &[&written(Kind::InTx)[..], &committed].concat(), &steps);
}

#[test]
fn deaths_and_replays_in_every_order() {
    let mut steps = deliveries(0, &[Ending::Permanent, Ending::Done]);
    steps.extend([Step::Replay(1), Step::Pass(Span::Lease), Step::Late(0, Late::Happens)]);
    steps.extend(
        [Life::Pause, Life::Resume, Life::Drain, Life::Close, Life::Restart]
            .map(|life| Step::Life(0, life)),
    );
    let committed = [Step::Write(0, Write::Commit), Step::Write(0, Write::Acknowledge)];
    check("replays", &[&written(Kind::Plain)[..], &committed].concat(), &steps);
}
