use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use outbox_servers::{Server, fake_clock};
use outbox_tests::{Fresh, Proxy, TestTable, given_url};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};

use crate::database::FaultDatabase;
use crate::process::{Child, Role, Setting};

/// A database with a server and a network of its own, and processes that use it.
pub(crate) struct Arena<DB: FaultDatabase> {
    /// Past the network.
    pub(crate) db: Fresh<DB>,
    pub(crate) proxy: Option<Proxy>,
    server: Option<Server>,
    pub(crate) setting: Setting,
    nodes: u64,
    seed: u64,
}

/// A process whose results are not recorded for so long has none: it pauses for much less.
const AT_REST: Duration = Duration::from_secs(8);

/// How a server ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Killed,
    /// In good order: it tells its clients.
    Stopped,
}

/// What the processes of an arena do.
pub(crate) struct Habits {
    pub(crate) lease: Duration,
    /// Between two transactions of one writer.
    pub(crate) pace: Duration,
    /// How many calls of a thousand fail.
    pub(crate) failing: u64,
    pub(crate) seed: u64,
}

impl<DB: FaultDatabase> Arena<DB> {
    /// `None`, and a line that says so, if this run has no servers.
    pub(crate) async fn open(habits: Habits) -> Option<Self> {
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
        // On SQLite a process's clock is the database's.
        let clock = server.is_some().then(|| block_in_place(fake_clock).expect("a fake clock"));
        let setting = Setting {
            database: DB::SHORT_NAME,
            url: proxy.as_ref().map_or("", |proxy| proxy.url()).to_owned(),
            name: db.name().to_owned(),
            folder,
            lease: habits.lease,
            pace: habits.pace,
            failing: habits.failing,
            clock,
        };
        Some(Self { db, proxy, server, setting, nodes: 0, seed: habits.seed })
    }

    /// Starts a process that no other is mistaken for.
    pub(crate) fn start(&mut self, role: Role) -> Child {
        self.nodes += 1;
        Child::start(&self.setting, self.nodes, role, self.seed * 1_000 + self.nodes)
    }

    pub(crate) fn folder(&self) -> &PathBuf {
        &self.setting.folder
    }

    /// The events that a process has in hand; of all processes if none is named.
    pub(crate) async fn in_hand(&self, node: Option<u64>) -> HashSet<String> {
        let owner = node.map_or("%".to_owned(), |node| format!("n{node}-%"));
        let held = format!(
            "SELECT event_id FROM outbox_event WHERE status IN (0, 2) AND locked_by LIKE '{owner}'"
        );
        self.db.texts(held).await.into_iter().map(|[id]| id).collect()
    }

    /// Has the server ended, and started again after a while. Gives what was in hand all that time,
    /// and for how long nobody could reach it.
    pub(crate) async fn outage(
        &mut self,
        end: End,
        pause: Duration,
    ) -> (HashSet<String>, Duration) {
        let (Some(server), Some(proxy)) = (&mut self.server, &self.proxy) else {
            panic!("there is no server");
        };
        let begun = Instant::now();
        proxy.refuse(true);
        block_in_place(|| match end {
            End::Killed => server.kill(),
            End::Stopped => server.stop().expect("it stops"),
        });
        proxy.cut();
        sleep_until(begun + pause).await;
        block_in_place(|| server.start()).expect("it starts again");
        // Before anybody else is let in.
        let in_hand = self.in_hand(None).await;
        self.reopen();
        (in_hand, begun.elapsed())
    }

    /// Waits until everything is delivered. The leases of rows that nobody has in hand, because a
    /// commit was cut short, are ended early: that is as good as waiting.
    pub(crate) async fn deliver_all(&self) {
        let store = self.db.store().await;
        let (mut last, mut since) = (HashSet::new(), Instant::now());
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        while self.count("outbox_event WHERE status <> 1").await > 0 {
            ticks.tick().await;
            let in_hand = self.in_hand(None).await;
            if last != in_hand {
                (last, since) = (in_hand, Instant::now());
            } else if !last.is_empty() && since.elapsed() > AT_REST {
                (&self.db, &store).age(self.setting.lease).await;
            }
        }
    }

    fn reopen(&self) {
        if let Some(proxy) = &self.proxy {
            proxy.refuse(false);
        }
    }

    /// Has processes write no more, waits until all is delivered, and stops them.
    pub(crate) async fn settle(&self, mut children: Vec<Child>) {
        block_in_place(|| {
            children.iter_mut().for_each(Child::hush);
            children.iter_mut().for_each(Child::hushed);
        });
        let all = tokio::time::timeout(Duration::from_secs(60), self.deliver_all()).await;
        all.expect("everything is delivered");
        block_in_place(|| children.into_iter().for_each(Child::stop));
    }

    /// How many rows there are of a kind.
    pub(crate) async fn count(&self, what: &str) -> i64 {
        self.db.number(format!("SELECT COUNT(*) FROM {what}")).await
    }
}

impl<DB: FaultDatabase> Drop for Arena<DB> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what the processes said is in {}", self.setting.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.setting.folder);
        }
    }
}
