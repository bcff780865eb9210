//! Writers and relays in processes of their own, all faults in random order, and a ledger outside of
//! the database of every call.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use outbox_tests::{eventually, uptime};
use sqlx::{MySql, Postgres, Sqlite};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};

use crate::database::FaultDatabase;
use crate::invariants::Verdict;
use crate::process::{Child, Role};
use crate::schedule::{Fault, Schedule};
use crate::testbed::{Arena, End, Habits};

const LEASE: Duration = Duration::from_secs(3);

/// A pause that leaves time enough to renew a lease of which half is over.
const SHORT: Duration = Duration::from_millis(600);

/// Files of a process must not grow past this: more than its ledger, and less than the database.
const FULL: u64 = 1024 * 1024;

/// How much is asked for.
#[derive(Debug, Clone, Copy)]
struct Size {
    events: i64,
    kills: u32,
}

/// A fault that lasts, and how it ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Resume { place: usize, node: u64 },
    Lift { place: usize, node: u64 },
    FastAgain,
    GiveUpFrozen,
}

struct Run<DB: FaultDatabase> {
    arena: Arena<DB>,
    children: Vec<Child>,
    endings: Vec<(Instant, Ending)>,
    /// Until when no other fault may use up time of the leases.
    calm_from: Instant,
    /// Events that may be delivered more than once, and how often more.
    excused: HashMap<String, usize>,
    faults: BTreeMap<&'static str, u32>,
    kills_with_claims: u32,
    story: Vec<String>,
}

impl<DB: FaultDatabase> Run<DB> {
    fn new(mut arena: Arena<DB>, roles: &[Role]) -> Self {
        let children = roles.iter().map(|role| arena.start(*role)).collect();
        Self {
            arena,
            children,
            endings: Vec::new(),
            calm_from: Instant::now(),
            excused: HashMap::new(),
            faults: BTreeMap::new(),
            kills_with_claims: 0,
            story: Vec::new(),
        }
    }

    fn tell(&mut self, what: String) {
        self.story.push(format!("{:>10} {what}", uptime().as_millis()));
    }

    /// Waits, and ends what has lasted long enough.
    async fn rest(&mut self, until: Instant) {
        while let Some(next) =
            self.endings.iter().map(|(at, _)| *at).min().filter(|at| *at <= until)
        {
            sleep_until(next).await;
            let (due, later) = self.endings.iter().partition(|(at, _)| *at <= next);
            self.endings = later;
            let due: Vec<(Instant, Ending)> = due;
            due.into_iter().for_each(|(_, ending)| self.end(ending));
        }
        sleep_until(until).await;
    }

    fn end(&mut self, ending: Ending) {
        self.tell(format!("{ending:?}"));
        match ending {
            // It may have been killed meanwhile.
            Ending::Resume { place, node } if self.children[place].node == node => {
                self.children[place].resume();
            }
            Ending::Lift { place, node } if self.children[place].node == node => {
                self.children[place].limit_files(None);
            }
            Ending::Resume { .. } | Ending::Lift { .. } => {}
            Ending::FastAgain => self.proxy(|proxy| proxy.delay(Duration::ZERO)),
            Ending::GiveUpFrozen => self.proxy(|proxy| proxy.give_up_frozen()),
        }
    }

    fn proxy(&self, change: impl FnOnce(&outbox_tests::Proxy)) {
        change(self.arena.proxy.as_ref().expect("a network"));
    }

    fn later(&mut self, lasts: Duration, ending: Ending) {
        self.endings.push((Instant::now() + lasts, ending));
    }

    async fn make(&mut self, fault: Fault) {
        self.children.iter_mut().for_each(Child::check);
        *self.faults.entry(fault.name()).or_default() += 1;
        self.tell(format!("{fault:?}"));
        let mut lasts = Duration::ZERO;
        match fault {
            Fault::Kill { place, holding } => self.kill(place, holding).await,
            Fault::ShortPause { place } => {
                lasts = SHORT;
                self.pause(place, lasts);
            }
            Fault::LongPause { place } => self.long_pause(place).await,
            Fault::Restart => self.outage(Duration::ZERO).await,
            Fault::Outage => self.outage(LEASE + LEASE / 4).await,
            Fault::Terminate => DB::terminate(&self.arena.db).await,
            Fault::Delay(delay) => {
                lasts = LEASE;
                self.proxy(|proxy| proxy.delay(delay));
                self.later(lasts, Ending::FastAgain);
            }
            Fault::Cut => self.proxy(|proxy| proxy.cut()),
            Fault::HalfOpen => {
                lasts = LEASE;
                self.proxy(|proxy| proxy.freeze());
                self.later(lasts, Ending::GiveUpFrozen);
            }
            Fault::ClockStep { place, seconds } => self.children[place].step_clock(seconds),
            Fault::FullDisk { place } => {
                lasts = SHORT;
                let child = &self.children[place];
                child.limit_files(Some(FULL));
                let node = child.node;
                self.later(lasts, Ending::Lift { place, node });
            }
        }
        if fault.takes_time() {
            self.be_calm(lasts);
        }
    }

    fn excuse(&mut self, in_hand: HashSet<String>) {
        for event in in_hand {
            *self.excused.entry(event).or_default() += 1;
        }
    }

    /// Time enough to renew everything, after something that lasts.
    fn be_calm(&mut self, lasts: Duration) {
        self.calm_from = self.calm_from.max(Instant::now() + lasts + LEASE / 2);
    }

    async fn kill(&mut self, place: usize, holding: bool) {
        let node = self.children[place].node;
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while holding && begun.elapsed() < LEASE / 4 {
            if !self.arena.in_hand(Some(node)).await.is_empty() {
                break;
            }
            ticks.tick().await;
        }
        self.children[place].kill();
        let in_hand = self.arena.in_hand(Some(node)).await;
        self.kills_with_claims += u32::from(!in_hand.is_empty());
        self.tell(format!("  process {node} had {}", in_hand.len()));
        self.excuse(in_hand);
        let role = self.children[place].role;
        self.children[place] = self.arena.start(role);
    }

    fn pause(&mut self, place: usize, lasts: Duration) {
        self.children[place].pause();
        let node = self.children[place].node;
        self.later(lasts, Ending::Resume { place, node });
    }

    async fn long_pause(&mut self, place: usize) {
        let lasts = LEASE + LEASE / 3;
        self.pause(place, lasts);
        let node = self.children[place].node;
        let stalls_all = DB::is_locked(&self.arena.db).await;
        let in_hand = self.arena.in_hand((!stalls_all).then_some(node)).await;
        self.tell(format!("  process {node} had {}, stalls all: {stalls_all}", in_hand.len()));
        self.excuse(in_hand);
        if stalls_all {
            // It holds the only write lock of SQLite, so nobody can renew a lease.
            self.be_calm(lasts);
        }
    }

    async fn outage(&mut self, pause: Duration) {
        let (in_hand, lasted) = self.arena.outage(End::Killed, pause).await;
        self.tell(format!("  {} in hand, away for {lasted:?}", in_hand.len()));
        // Of some leases half is over already, and what is left must do for coming back as well.
        if lasted > LEASE * 2 / 5 {
            self.excuse(in_hand);
        }
    }

    /// Ends all faults and all writing.
    async fn settle(&mut self) {
        let endings = std::mem::take(&mut self.endings);
        endings.into_iter().for_each(|(_, ending)| self.end(ending));
        block_in_place(|| {
            self.children.iter_mut().for_each(Child::hush);
            self.children.iter_mut().for_each(Child::hushed);
        });
        self.tell("quiet".to_owned());
    }
}

/// Two busy writers with few seats, one with many, and three processes that only deliver.
fn roles(tasks: u64) -> Vec<Role> {
    let relay = Role { writers: 0, seats: 1, exhausts: false, own_clock: false };
    let few_seats = Role { writers: tasks, seats: 8, exhausts: false, own_clock: true };
    vec![
        few_seats,
        Role { seats: 1_000, own_clock: false, ..few_seats },
        Role { exhausts: true, own_clock: false, ..few_seats },
        relay,
        relay,
        Role { own_clock: true, ..relay },
    ]
}

async fn every_committed_event_and_no_other<DB: FaultDatabase>(size: Size, tasks: u64) {
    let _alone = crate::alone().await;
    let seed = match std::env::var("OUTBOX_TEST_SEED") {
        Ok(seed) => seed.parse().expect("OUTBOX_TEST_SEED is a number"),
        Err(_) => rand::random_range(0..1_000_000_u64),
    };
    println!("{}: OUTBOX_TEST_SEED={seed}", DB::SHORT_NAME);
    let pace = Duration::from_millis(10);
    let habits = Habits { lease: LEASE, pace, failing: 5, seed };
    let Some(arena) = Arena::<DB>::open(habits).await else { return };
    let roles = roles(tasks);
    let own_clocks = (0..roles.len()).filter(|place| roles[*place].own_clock).collect();
    let mut schedule = Schedule::new(seed, roles.len(), own_clocks, arena.proxy.is_some());
    let mut run = Run::new(arena, &roles);
    let begun = Instant::now();
    let kills = |run: &Run<DB>| run.faults.get("kill").copied().unwrap_or_default();
    while kills(&run) < size.kills || run.arena.count("business").await < size.events {
        let (wait, fault) = schedule.next();
        run.rest(Instant::now() + wait).await;
        if fault.takes_time() {
            run.rest(run.calm_from).await;
        }
        run.make(fault).await;
    }
    run.settle().await;
    let (written, lasted) = (run.arena.count("business").await, begun.elapsed());
    eventually("everything is delivered", async || {
        run.arena.count("outbox_event WHERE status <> 1").await == 0
    })
    .await;
    let drained = begun.elapsed() - lasted;
    block_in_place(|| std::mem::take(&mut run.children).into_iter().for_each(Child::stop));
    let verdict = Verdict::of(&run.arena, &run.excused).await;
    println!(
        "{}: {} events ({} with exactly one effect), {} calls ({} failed), {} kills, {} of them with claims, \
         {} events in hand at a kill, long pause or outage, {} delivered more than once, \
         {:.0} events/s for {:.0} s, {:.1} s to the last one\n{:?}",
        DB::SHORT_NAME,
        verdict.events,
        verdict.in_tx,
        verdict.calls,
        verdict.failed_calls,
        kills(&run),
        run.kills_with_claims,
        run.excused.len(),
        verdict.repeated,
        written as f64 / lasted.as_secs_f64(),
        lasted.as_secs_f64(),
        drained.as_secs_f64(),
        run.faults,
    );
    verdict.assert_right(&run.story);
    assert!(verdict.events as i64 >= size.events && kills(&run) >= size.kills);
    assert!(run.kills_with_claims >= size.kills / 2, "{} with claims", run.kills_with_claims);
    assert!(verdict.failed_calls > 0, "no listener has failed");
    assert!(verdict.in_tx > verdict.events / 8, "{} in transactions", verdict.in_tx);
}

/// The usual size, or that of a long run.
fn size(long: Size) -> Size {
    let usual = Size { events: 20_000, kills: 30 };
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { long } else { usual }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let size = size(Size { events: 1_000_000, kills: 1_000 });
    every_committed_event_and_no_other::<Postgres>(size, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    let size = size(Size { events: 300_000, kills: 300 });
    every_committed_event_and_no_other::<MySql>(size, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    let size = size(Size { events: 200_000, kills: 200 });
    every_committed_event_and_no_other::<Sqlite>(size, 2).await;
}
