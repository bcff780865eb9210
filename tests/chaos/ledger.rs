//! Writers and relays in separate processes, all faults in random order, and a ledger of every call outside
//! of the database.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use outbox_tests::{eventually, uptime};
use sqlx::{MySql, Postgres, Sqlite};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};

use crate::database::FaultDatabase;
use crate::invariants::Invariants;
use crate::process::{LedgerProcess, Role};
use crate::schedule::{Fault, Schedule};
use crate::testbed::{ServerExit, Testbed, Workload};

const LEASE: Duration = Duration::from_secs(3);

/// A pause that leaves enough time to renew a lease that is half over.
const SHORT_PAUSE: Duration = Duration::from_millis(600);

/// The file size limit of a process: more than its ledger, and less than the database.
const FILE_LIMIT: u64 = 1024 * 1024;

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct Size {
    events: i64,
    kills: u32,
}

/// The end of a fault that lasts for a while.
#[derive(Debug, Clone, Copy)]
enum FaultEnd {
    Resume { index: usize, node: u64 },
    LiftFileLimit { index: usize, node: u64 },
    EndDelay,
    GiveUpFrozen,
}

struct Run<DB: FaultDatabase> {
    testbed: Testbed<DB>,
    processes: Vec<LedgerProcess>,
    fault_ends: Vec<(Instant, FaultEnd)>,
    /// The time until which no other fault may use up lease time.
    recovered_at: Instant,
    /// Events that may be delivered more than once, and the number of additional deliveries.
    allowed_repeats: HashMap<String, usize>,
    faults: BTreeMap<&'static str, u32>,
    kills_with_claims: u32,
    history: Vec<String>,
}

impl<DB: FaultDatabase> Run<DB> {
    fn new(mut testbed: Testbed<DB>, roles: &[Role]) -> Self {
        let processes = roles.iter().map(|role| testbed.start(*role)).collect();
        Self {
            testbed,
            processes,
            fault_ends: Vec::new(),
            recovered_at: Instant::now(),
            allowed_repeats: HashMap::new(),
            faults: BTreeMap::new(),
            kills_with_claims: 0,
            history: Vec::new(),
        }
    }

    fn log(&mut self, text: String) {
        self.history.push(format!("{:>10} {text}", uptime().as_millis()));
    }

    /// Waits, and ends faults that have lasted long enough.
    async fn wait_until(&mut self, until: Instant) {
        while let Some(next) =
            self.fault_ends.iter().map(|(at, _)| *at).min().filter(|at| *at <= until)
        {
            sleep_until(next).await;
            let (due, remaining) = self.fault_ends.iter().partition(|(at, _)| *at <= next);
            self.fault_ends = remaining;
            let due: Vec<(Instant, FaultEnd)> = due;
            due.into_iter().for_each(|(_, fault_end)| self.end(fault_end));
        }
        sleep_until(until).await;
    }

    fn end(&mut self, fault_end: FaultEnd) {
        self.log(format!("{fault_end:?}"));
        match fault_end {
            // The process may have been killed in the meantime.
            FaultEnd::Resume { index, node } if self.processes[index].node == node => {
                self.processes[index].resume();
            }
            FaultEnd::LiftFileLimit { index, node } if self.processes[index].node == node => {
                self.processes[index].limit_files(None);
            }
            FaultEnd::Resume { .. } | FaultEnd::LiftFileLimit { .. } => {}
            FaultEnd::EndDelay => self.proxy(|proxy| proxy.delay(Duration::ZERO)),
            FaultEnd::GiveUpFrozen => self.proxy(|proxy| proxy.give_up_frozen()),
        }
    }

    fn proxy(&self, change: impl FnOnce(&outbox_tests::Proxy)) {
        change(self.testbed.proxy.as_ref().expect("a network"));
    }

    fn end_after(&mut self, duration: Duration, fault_end: FaultEnd) {
        self.fault_ends.push((Instant::now() + duration, fault_end));
    }

    async fn inject(&mut self, fault: Fault) {
        self.processes.iter_mut().for_each(LedgerProcess::check);
        *self.faults.entry(fault.name()).or_default() += 1;
        self.log(format!("{fault:?}"));
        let mut duration = Duration::ZERO;
        match fault {
            Fault::Kill { index, with_claims } => self.kill(index, with_claims).await,
            Fault::ShortPause { index } => {
                duration = SHORT_PAUSE;
                self.pause(index, duration);
            }
            Fault::LongPause { index } => self.long_pause(index).await,
            Fault::Restart => self.outage(Duration::ZERO).await,
            Fault::Outage => self.outage(LEASE + LEASE / 4).await,
            Fault::Terminate => DB::terminate(&self.testbed.db).await,
            Fault::Delay(delay) => {
                duration = LEASE;
                self.proxy(|proxy| proxy.delay(delay));
                self.end_after(duration, FaultEnd::EndDelay);
            }
            Fault::Cut => self.proxy(|proxy| proxy.cut()),
            Fault::HalfOpen => {
                duration = LEASE;
                self.proxy(|proxy| proxy.freeze());
                self.end_after(duration, FaultEnd::GiveUpFrozen);
            }
            Fault::ClockStep { index, seconds } => self.processes[index].step_clock(seconds),
            Fault::FullDisk { index } => {
                duration = SHORT_PAUSE;
                let process = &self.processes[index];
                process.limit_files(Some(FILE_LIMIT));
                let node = process.node;
                self.end_after(duration, FaultEnd::LiftFileLimit { index, node });
            }
        }
        if fault.uses_lease_time() {
            self.reserve_recovery_time(duration);
        }
    }

    fn allow_repeats(&mut self, in_flight: HashSet<String>) {
        for event in in_flight {
            *self.allowed_repeats.entry(event).or_default() += 1;
        }
    }

    /// Reserves enough time after a fault to renew all leases.
    fn reserve_recovery_time(&mut self, duration: Duration) {
        self.recovered_at = self.recovered_at.max(Instant::now() + duration + LEASE / 2);
    }

    async fn kill(&mut self, index: usize, with_claims: bool) {
        let node = self.processes[index].node;
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while with_claims && begun.elapsed() < LEASE / 4 {
            if !self.testbed.in_flight(Some(node)).await.is_empty() {
                break;
            }
            ticks.tick().await;
        }
        self.processes[index].kill();
        let in_flight = self.testbed.in_flight(Some(node)).await;
        self.kills_with_claims += u32::from(!in_flight.is_empty());
        self.log(format!("  process {node} had {} in flight", in_flight.len()));
        self.allow_repeats(in_flight);
        let role = self.processes[index].role;
        self.processes[index] = self.testbed.start(role);
    }

    fn pause(&mut self, index: usize, duration: Duration) {
        self.processes[index].pause();
        let node = self.processes[index].node;
        self.end_after(duration, FaultEnd::Resume { index, node });
    }

    async fn long_pause(&mut self, index: usize) {
        let duration = LEASE + LEASE / 3;
        self.pause(index, duration);
        let node = self.processes[index].node;
        let stalls_all = DB::is_locked(&self.testbed.db).await;
        let in_flight = self.testbed.in_flight((!stalls_all).then_some(node)).await;
        self.log(format!(
            "  process {node} had {} in flight, stalls all: {stalls_all}",
            in_flight.len()
        ));
        self.allow_repeats(in_flight);
        if stalls_all {
            // It holds the only write lock of SQLite, so no process can renew a lease.
            self.reserve_recovery_time(duration);
        }
    }

    async fn outage(&mut self, pause: Duration) {
        let (in_flight, lasted) = self.testbed.outage(ServerExit::Killed, pause).await;
        self.log(format!("  {} in flight, outage of {lasted:?}", in_flight.len()));
        // Some leases are half over, and the rest must also cover the recovery.
        if lasted > LEASE * 2 / 5 {
            self.allow_repeats(in_flight);
        }
    }

    /// Ends all faults, and waits until all processes have stopped writing.
    async fn settle(&mut self) {
        let fault_ends = std::mem::take(&mut self.fault_ends);
        fault_ends.into_iter().for_each(|(_, fault_end)| self.end(fault_end));
        block_in_place(|| {
            self.processes.iter_mut().for_each(LedgerProcess::stop_writing);
            self.processes.iter_mut().for_each(LedgerProcess::wait_until_quiet);
        });
        self.log("quiet".to_owned());
    }
}

/// Returns two busy writers with a small hot queue, one with a large one, and three processes that only deliver.
fn roles(tasks: u64) -> Vec<Role> {
    let relay = Role { writers: 0, hot_capacity: 1, exhausts_pool: false, own_clock: false };
    let small_queue =
        Role { writers: tasks, hot_capacity: 8, exhausts_pool: false, own_clock: true };
    vec![
        small_queue,
        Role { hot_capacity: 1_000, own_clock: false, ..small_queue },
        Role { exhausts_pool: true, own_clock: false, ..small_queue },
        relay,
        relay,
        Role { own_clock: true, ..relay },
    ]
}

async fn every_committed_event_is_delivered_and_no_other<DB: FaultDatabase>(
    size: Size,
    tasks: u64,
) {
    let _exclusive = crate::exclusive().await;
    let seed = match std::env::var("OUTBOX_TEST_SEED") {
        Ok(seed) => seed.parse().expect("OUTBOX_TEST_SEED is a number"),
        Err(_) => rand::random_range(0..1_000_000_u64),
    };
    println!("{}: OUTBOX_TEST_SEED={seed}", DB::SHORT_NAME);
    let write_interval = Duration::from_millis(10);
    let workload = Workload { lease: LEASE, write_interval, failing: 5, seed };
    let Some(testbed) = Testbed::<DB>::open(workload).await else { return };
    let roles = roles(tasks);
    let own_clocks = (0..roles.len()).filter(|index| roles[*index].own_clock).collect();
    let mut schedule = Schedule::new(seed, roles.len(), own_clocks, testbed.proxy.is_some());
    let mut run = Run::new(testbed, &roles);
    let begun = Instant::now();
    let kills = |run: &Run<DB>| run.faults.get("kill").copied().unwrap_or_default();
    while kills(&run) < size.kills || run.testbed.count("business").await < size.events {
        let (wait, fault) = schedule.next();
        run.wait_until(Instant::now() + wait).await;
        if fault.uses_lease_time() {
            run.wait_until(run.recovered_at).await;
        }
        run.inject(fault).await;
    }
    run.settle().await;
    let (written, lasted) = (run.testbed.count("business").await, begun.elapsed());
    eventually("everything is delivered", async || {
        run.testbed.count("outbox_event WHERE status <> 1").await == 0
    })
    .await;
    let drained = begun.elapsed() - lasted;
    block_in_place(|| std::mem::take(&mut run.processes).into_iter().for_each(LedgerProcess::stop));
    let invariants = Invariants::check(&run.testbed, &run.allowed_repeats).await;
    println!(
        "{}: {} events ({} with exactly one effect), {} calls ({} failed), {} kills, {} of them with claims, \
         {} events in flight at a kill, long pause or outage, {} delivered more than once, \
         {:.0} events/s for {:.0} s, {:.1} s to the last one\n{:?}",
        DB::SHORT_NAME,
        invariants.events,
        invariants.in_tx,
        invariants.calls,
        invariants.failed_calls,
        kills(&run),
        run.kills_with_claims,
        run.allowed_repeats.len(),
        invariants.repeated,
        written as f64 / lasted.as_secs_f64(),
        lasted.as_secs_f64(),
        drained.as_secs_f64(),
        run.faults,
    );
    invariants.assert_hold(&run.history);
    assert!(invariants.events as i64 >= size.events && kills(&run) >= size.kills);
    assert!(run.kills_with_claims >= size.kills / 2, "{} with claims", run.kills_with_claims);
    assert!(invariants.failed_calls > 0, "no listener failed");
    assert!(invariants.in_tx > invariants.events / 8, "{} in transactions", invariants.in_tx);
}

/// The usual size, or that of a long run.
fn size(long: Size) -> Size {
    let usual = Size { events: 20_000, kills: 30 };
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { long } else { usual }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let size = size(Size { events: 1_000_000, kills: 1_000 });
    every_committed_event_is_delivered_and_no_other::<Postgres>(size, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    let size = size(Size { events: 300_000, kills: 300 });
    every_committed_event_is_delivered_and_no_other::<MySql>(size, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    let size = size(Size { events: 200_000, kills: 200 });
    every_committed_event_is_delivered_and_no_other::<Sqlite>(size, 2).await;
}
