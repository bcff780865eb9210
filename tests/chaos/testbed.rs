use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use outbox_servers::{Server, fake_clock};
use outbox_tests::{Fresh, Proxy, TestTable, given_url};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};

use crate::database::FaultDatabase;
use crate::invariants::row_key;
use crate::process::{LedgerProcess, ProcessSettings, Role};

/// A database with its own server and network proxy, and processes that use it.
pub(crate) struct Testbed<DB: FaultDatabase> {
    /// Connected directly, not through the proxy.
    pub(crate) db: Fresh<DB>,
    pub(crate) proxy: Option<Proxy>,
    server: Option<Server>,
    pub(crate) settings: ProcessSettings,
    nodes: u64,
    seed: u64,
}

/// If no result was recorded for this long, none is outstanding: backoffs are much shorter.
const IDLE_AFTER: Duration = Duration::from_secs(8);

/// How a server is stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ServerExit {
    Killed,
    /// Gracefully: it notifies its clients.
    Stopped,
}

/// The workload of the processes.
pub(crate) struct Workload {
    pub(crate) lease: Duration,
    /// The time between two transactions of one writer.
    pub(crate) write_interval: Duration,
    /// Number of failing calls per thousand.
    pub(crate) failing: u64,
    pub(crate) seed: u64,
}

impl<DB: FaultDatabase> Testbed<DB> {
    /// Starts the server and creates the tables; `None`, with a message, if this run has no servers.
    pub(crate) async fn open(workload: Workload) -> Option<Self> {
        given_url::<DB>()?;
        let server = block_in_place(DB::server);
        let url = server.as_ref().map_or("", |server| server.url()).to_owned();
        let db = Fresh::<DB>::at(&url).await;
        db.store().await;
        db.run("CREATE TABLE business (event_id VARCHAR(36) PRIMARY KEY)").await;
        db.run("CREATE TABLE effect (event_id VARCHAR(36) NOT NULL)").await;
        let proxy = match &server {
            Some(_) => Some(Proxy::before(&url).await),
            None => None,
        };
        let folder = std::env::temp_dir().join(format!("{}_processes", db.name()));
        fs::create_dir(&folder).expect("a folder");
        // On SQLite the clock of a process is the clock of the database.
        let clock = server.is_some().then(|| block_in_place(fake_clock).expect("a fake clock"));
        let settings = ProcessSettings {
            database: DB::SHORT_NAME,
            url: proxy.as_ref().map_or("", |proxy| proxy.url()).to_owned(),
            name: db.name().to_owned(),
            folder,
            lease: workload.lease,
            write_interval: workload.write_interval,
            failing: workload.failing,
            fan_out: false,
            clock,
        };
        Some(Self { db, proxy, server, settings, nodes: 0, seed: workload.seed })
    }

    /// Starts a process with a unique node number.
    pub(crate) fn start(&mut self, role: Role) -> LedgerProcess {
        self.nodes += 1;
        LedgerProcess::start(&self.settings, self.nodes, role, self.seed * 1_000 + self.nodes)
    }

    pub(crate) fn folder(&self) -> &PathBuf {
        &self.settings.folder
    }

    /// Returns the keys of the rows that a process, or any process, has in flight.
    pub(crate) async fn in_flight(&self, node: Option<u64>) -> HashSet<String> {
        let owner = node.map_or("%".to_owned(), |node| format!("n{node}-%"));
        let query = format!(
            "SELECT event_id, subscription FROM outbox_event \
             WHERE status IN (0, 2) AND locked_by LIKE '{owner}'"
        );
        let rows = self.db.texts(query).await;
        rows.iter().map(|[id, subscription]| row_key(id, subscription)).collect()
    }

    /// Stops the server, and starts it again after a pause. Returns the events that were in flight during the
    /// outage, and its duration.
    pub(crate) async fn outage(
        &mut self,
        end: ServerExit,
        pause: Duration,
    ) -> (HashSet<String>, Duration) {
        let (Some(server), Some(proxy)) = (&mut self.server, &self.proxy) else {
            panic!("the database has no server");
        };
        let begun = Instant::now();
        proxy.refuse(true);
        block_in_place(|| match end {
            ServerExit::Killed => server.kill(),
            ServerExit::Stopped => server.stop().expect("it stops"),
        });
        proxy.cut();
        sleep_until(begun + pause).await;
        block_in_place(|| server.start()).expect("it starts again");
        // Before the proxy accepts other connections.
        let in_flight = self.in_flight(None).await;
        self.reopen();
        (in_flight, begun.elapsed())
    }

    /// Waits until everything is delivered. Leases of rows that are not in flight, because their commit was
    /// interrupted, are expired early instead of waiting for them.
    pub(crate) async fn deliver_all(&self) {
        let store = self.db.store().await;
        let (mut last, mut since) = (HashSet::new(), Instant::now());
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        while self.count("outbox_event WHERE status <> 1").await > 0 {
            ticks.tick().await;
            let in_flight = self.in_flight(None).await;
            if last != in_flight {
                (last, since) = (in_flight, Instant::now());
            } else if !last.is_empty() && since.elapsed() > IDLE_AFTER {
                (&self.db, &store).age(self.settings.lease).await;
            }
        }
    }

    fn reopen(&self) {
        if let Some(proxy) = &self.proxy {
            proxy.refuse(false);
        }
    }

    /// Stops the writers, waits until everything is delivered, and shuts the processes down.
    pub(crate) async fn settle(&self, mut processes: Vec<LedgerProcess>) {
        block_in_place(|| {
            processes.iter_mut().for_each(LedgerProcess::stop_writing);
            processes.iter_mut().for_each(LedgerProcess::wait_until_quiet);
        });
        let all = tokio::time::timeout(Duration::from_secs(60), self.deliver_all()).await;
        all.expect("everything is delivered");
        block_in_place(|| processes.into_iter().for_each(LedgerProcess::stop));
    }

    /// Returns the number of rows of a table, with an optional condition.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        self.db.number(format!("SELECT COUNT(*) FROM {table}")).await
    }
}

impl<DB: FaultDatabase> Drop for Testbed<DB> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the logs of the processes are in {}", self.settings.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.settings.folder);
        }
    }
}
