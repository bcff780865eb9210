//! Random sequences of operations by several owners, compared with a model of the table.
//!
//! Time is moved by [`TestTable::age`] in steps of at least half a minute; the duration of the operations
//! themselves is negligible.

use std::collections::BTreeMap;
use std::time::Duration;

use outbox::event::Status;
use outbox::{Error, EventEnvelope};
use outbox_runtime::event::{Recipient, Verdict};
use outbox_runtime::store::{
    Completion, ExpandedRow, InitialState, NewRow, Renewal, Settlement, Store, Table, TypeFilter,
};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, lease};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::claim::request;
use super::dead::dead_events;
use super::expected_row::{Expected, apply, owns};

const STEPS: usize = 60;
const OWNERS: [&str; 3] = ["a", "b", "c"];
const LEASE: u64 = 30;

/// The subscriptions that rows are expanded for.
const NAMES: [&str; 2] = ["billing", "mail"];

/// Returns the number of sequences to run, in the short or the long run.
fn sequences(short: usize, long: usize) -> u64 {
    (if std::env::var_os("OUTBOX_TEST_LONG").is_some() { long } else { short }) as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    let db = Fresh::<sqlx::Sqlite>::new().await.expect("SQLite");
    run(&db, sequences(400, 5_000), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    if let Some(db) = Fresh::<sqlx::Postgres>::new().await {
        run(&db, sequences(30, 200), 4).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    if let Some(db) = Fresh::<sqlx::MySql>::new().await {
        run(&db, sequences(30, 200), 4).await;
    }
}

/// Runs sequences with seeds from 0, on several tables concurrently.
async fn run<DB: TestDatabase>(db: &Fresh<DB>, sequences: u64, tables: u64) {
    let runs = (0..tables).map(|index| async move {
        let table = Table::new(&format!("model_{index}")).unwrap();
        let store = db.store_of(&table).await;
        for seed in (index..sequences).step_by(usize::try_from(tables).unwrap()) {
            db.run(format!("DELETE FROM {table}")).await;
            Sequence::new(db, &store, seed).run().await;
        }
    });
    let mut runs: Vec<_> = runs.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        runs.retain_mut(|run| run.as_mut().poll(context).is_pending());
        if runs.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

struct Sequence<'a, DB: TestDatabase> {
    db: &'a Fresh<DB>,
    store: &'a Store<DB>,
    seed: u64,
    random: StdRng,
    now: u64,
    events: Vec<EventEnvelope>,
    rows: BTreeMap<i64, Expected>,
    /// Every claim that was ever made: a stalled owner may use any of them.
    claims: Vec<(i64, i64, &'static str)>,
    last: Option<(&'static str, Vec<Settlement>)>,
    log: Vec<String>,
}

impl<'a, DB: TestDatabase> Sequence<'a, DB> {
    fn new(db: &'a Fresh<DB>, store: &'a Store<DB>, seed: u64) -> Self {
        Self {
            db,
            store,
            seed,
            random: StdRng::seed_from_u64(seed),
            now: 1_000_000,
            events: (0..8).map(|_| event("A")).collect(),
            rows: BTreeMap::new(),
            claims: Vec::new(),
            last: None,
            log: Vec::new(),
        }
    }

    async fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.random_range(0..100) {
                0..20 => self.insert().await,
                20..45 => self.claim().await,
                45..52 => self.renew().await,
                52..56 => self.expand().await,
                56..74 => self.finish().await,
                74..80 => self.repeat().await,
                80..90 => self.pass_time().await,
                90..94 => self.replay().await,
                94..96 => self.edit().await,
                _ => self.purge().await,
            }
        }
        self.compare().await;
    }

    fn random_owner(&mut self) -> &'static str {
        OWNERS.choose(&mut self.random).expect("the list is not empty")
    }

    fn fail(&self, message: &str) -> ! {
        panic!("seed {}: {message}\n{}\n{:#?}", self.seed, self.log.join("\n"), self.rows)
    }

    async fn insert(&mut self) {
        let event = self.random.random_range(0..self.events.len());
        let owner = self.random_owner();
        let state = match self.random.random_range(0..9) {
            0..4 => InitialState::Due,
            4..8 => InitialState::Claimed(lease(owner)),
            _ => InitialState::Done,
        };
        let subscription =
            *["", "", "*", "*", NAMES[0], NAMES[1]].choose(&mut self.random).expect("one");
        self.log.push(format!("insert {event} {subscription} {state:?}"));
        let recipient = match subscription {
            "*" => Recipient::Unexpanded,
            name => Recipient::named(name),
        };
        let row = NewRow { envelope: &self.events[event], state, recipient: &recipient };
        let mut connection = self.db.pool.acquire().await.unwrap();
        let inserted = self.store.insert(&mut connection, &[row]).await.unwrap()[0];
        match self.row_of(event, subscription) {
            Some(sequence) => {
                if !inserted.duplicate || inserted.sequence != sequence {
                    self.fail("a duplicate was not recognised");
                }
            }
            None => {
                if inserted.duplicate {
                    self.fail("a new event was mistaken for a duplicate");
                }
                let claimed = matches!(state, InitialState::Claimed(_));
                let done = matches!(state, InitialState::Done);
                if claimed {
                    self.claims.push((inserted.sequence, 1, owner));
                }
                let row = Expected {
                    event,
                    subscription,
                    status: if done { Status::Done } else { Status::New },
                    attempts: 0,
                    due: if claimed { self.now + LEASE } else { self.now },
                    token: i64::from(claimed),
                    owner: claimed.then_some(owner),
                    takeovers: 0,
                    ended: if done { self.now } else { 0 },
                };
                self.rows.insert(inserted.sequence, row);
            }
        }
    }

    /// Returns the row of an event and a recipient. A row that is not expanded is that of the unnamed listener.
    fn row_of(&self, event: usize, subscription: &str) -> Option<i64> {
        let is_unnamed = |subscription: &str| matches!(subscription, "" | "*");
        let is_same = |row: &Expected| {
            row.subscription == subscription
                || is_unnamed(row.subscription) && is_unnamed(subscription)
        };
        let mut found = self.rows.iter().filter(|(_, row)| row.event == event && is_same(row));
        found.next().map(|(sequence, _)| *sequence)
    }

    /// Expands a row under a claim that may be stale.
    async fn expand(&mut self) {
        let Some(&(sequence, token, owner)) = self.claims.choose(&mut self.random) else { return };
        let is_named = |row: &Expected| NAMES.contains(&row.subscription);
        // Only rows without a name are expanded.
        if self.rows.get(&sequence).is_some_and(is_named) {
            return;
        }
        self.log.push(format!("expand {sequence} {token} {owner}"));
        let names = NAMES.map(str::to_owned).to_vec();
        let rows = [ExpandedRow { sequence, token, names }];
        let expanded = self.store.expand(owner, &rows).await.unwrap();
        let claimed = self.rows.get_mut(&sequence).filter(|row| owns(row, token, owner));
        if expanded != claimed.is_some() {
            self.fail("an expansion had the wrong result");
        }
        let Some(row) = claimed else { return };
        row.subscription = "";
        let event = row.event;
        for subscription in NAMES {
            if self.row_of(event, subscription).is_some() {
                continue;
            }
            let id = self.events[event].event_id();
            let sql = format!(
                "SELECT sequence FROM {} WHERE event_id = '{id}' AND subscription = '{subscription}'",
                self.store.table()
            );
            let copy = self.db.number(sql).await;
            let (status, due) = (Status::New, self.now);
            let (attempts, token, takeovers, ended) = (0, 0, 0, 0);
            let owner = None;
            self.rows.insert(
                copy,
                Expected {
                    event,
                    subscription,
                    status,
                    attempts,
                    due,
                    token,
                    owner,
                    takeovers,
                    ended,
                },
            );
        }
    }

    async fn claim(&mut self) {
        let owner = self.random_owner();
        self.log.push(format!("claim {owner}"));
        let claims = request(owner, &TypeFilter::ALL).claim(self.store).await.unwrap();
        let mut found: Vec<(i64, i64, u32, u32, bool)> = claims
            .rows
            .iter()
            .map(|row| (row.sequence, row.token, row.attempts, row.takeovers, row.taken_over))
            .collect();
        found.sort_unstable();
        let now = self.now;
        let mut expected = Vec::new();
        for (sequence, row) in &mut self.rows {
            if !row.status.is_terminal() && row.due <= now {
                row.token += 1;
                let taken_over = row.owner.is_some_and(|last| last != owner);
                row.owner = Some(owner);
                row.due = now + LEASE;
                expected.push((*sequence, row.token, row.attempts, row.takeovers, taken_over));
                self.claims.push((*sequence, row.token, owner));
            }
        }
        if found != expected {
            self.fail(&format!("claimed {found:?} instead of {expected:?}"));
        }
    }

    async fn renew(&mut self) {
        let Some(&(sequence, token, owner)) = self.claims.choose(&mut self.random) else { return };
        let takeovers = self.random.random_range(0..4);
        self.log.push(format!("renew {sequence} {token} {owner} {takeovers}"));
        let renewal = Renewal { sequence, token, takeovers };
        let renewed = self.store.renew(lease(owner), &[renewal]).await.unwrap();
        let now = self.now;
        let claimed = self.rows.get_mut(&sequence).filter(|row| owns(row, token, owner));
        let expected = claimed.is_some();
        if let Some(row) = claimed {
            row.due = now + LEASE;
            // A late renewal does not lower the recorded number.
            row.takeovers = row.takeovers.max(takeovers);
        }
        if expected == renewed.is_empty() {
            self.fail("a renewal had the wrong result");
        }
    }

    async fn finish(&mut self) {
        let Some(&(sequence, token, owner)) = self.claims.choose(&mut self.random) else { return };
        let attempts = self.rows.get(&sequence).map_or(1, |row| row.attempts + 1);
        let delay = Duration::from_secs([0, 1_000][self.random.random_range(0..2)]);
        let result = match self.random.random_range(0..7) {
            0 => Verdict::Done,
            1 => Verdict::Retry { attempts, delay, error: "x".to_owned() },
            2 => Verdict::Dead { attempts, error: "x".to_owned() },
            3 => Verdict::Deferred { delay },
            4 => Verdict::Cancelled,
            5 => Verdict::Postponed { delay },
            _ => Verdict::Released,
        };
        self.record(owner, vec![Settlement { sequence, token, verdict: result, history: None }])
            .await;
    }

    /// Sends the last settlement again, as if its acknowledgement was lost.
    async fn repeat(&mut self) {
        if let Some((owner, results)) = self.last.clone() {
            self.record(owner, results).await;
        }
    }

    async fn record(&mut self, owner: &'static str, results: Vec<Settlement>) {
        self.log.push(format!("finish {owner} {results:?}"));
        let stale = self.store.settle(owner, &results, Completion::Keep).await.unwrap().stale;
        let now = self.now;
        let mut expected = Vec::new();
        for Settlement { sequence, token, verdict: result, .. } in &results {
            match self.rows.get_mut(sequence) {
                Some(row) if owns(row, *token, owner) => apply(row, result, now),
                Some(row) if row.token == *token && row.owner.is_none() => {}
                _ => expected.push(*sequence),
            }
        }
        if stale != expected {
            self.fail(&format!("stale {stale:?} instead of {expected:?}"));
        }
        self.last = Some((owner, results));
    }

    async fn pass_time(&mut self) {
        let seconds = [31, 1_001][self.random.random_range(0..2)];
        self.log.push(format!("{seconds} s pass"));
        (self.db, self.store).age(Duration::from_secs(seconds)).await;
        self.now += seconds;
    }

    async fn replay(&mut self) {
        let event = self.random.random_range(0..self.events.len());
        let only = *["", NAMES[0], NAMES[1]].choose(&mut self.random).expect("one");
        let only = Some(only).filter(|_| self.random.random_bool(0.5));
        self.log.push(format!("replay {event} {only:?}"));
        let dead = dead_events(self.store);
        let dead = if let Some(only) = only { dead.of_subscription(only) } else { dead };
        let replayed = dead.replay(self.events[event].event_id()).await;
        let replayed = match replayed {
            Ok(()) => true,
            Err(Error::NoSuchEvent { .. } | Error::NotDead { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        let now = self.now;
        let is_meant = |row: &&mut Expected| {
            let name = if row.subscription == "*" { "" } else { row.subscription };
            row.event == event && row.status == Status::Dead && only.is_none_or(|only| only == name)
        };
        let mut expected = false;
        for row in self.rows.values_mut().filter(is_meant) {
            expected = true;
            row.status = Status::New;
            row.attempts = 0;
            row.takeovers = 0;
            row.due = now;
            row.token += 1;
            row.owner = None;
            row.ended = 0;
        }
        if replayed != expected {
            self.fail("a replay had the wrong result");
        }
    }

    /// Sets a row to dead with SQL, as an operator might, even if it is claimed.
    async fn edit(&mut self) {
        let sequences: Vec<i64> = self.rows.keys().copied().collect();
        let Some(sequence) = sequences.choose(&mut self.random) else { return };
        self.log.push(format!("edit {sequence}"));
        let table = self.store.table();
        let sql = format!("UPDATE {table} SET status = 3 WHERE sequence = {sequence}");
        self.db.run(sql).await;
        if let Some(row) = self.rows.get_mut(sequence) {
            row.status = Status::Dead;
        }
    }

    async fn purge(&mut self) {
        self.log.push("purge".to_owned());
        let purged =
            self.store.purge_done(Duration::from_secs(500), None, 100).await.unwrap().deleted;
        let (before, limit) = (self.rows.len(), self.now - 500);
        self.rows.retain(|_, row| row.status != Status::Done || row.ended > limit);
        if purged != (before - self.rows.len()) as u64 {
            self.fail(&format!("{purged} purged"));
        }
    }

    /// Compares the whole table, row by row.
    async fn compare(&mut self) {
        let wide = |column: &str| format!("CAST({column} AS {})", DB::WIDE);
        let columns = ["sequence", "status", "attempts", "claim_token", "takeovers"].map(wide);
        let ended = wide("CASE WHEN done_at IS NULL THEN 0 ELSE 1 END");
        let sql = format!(
            "SELECT {}, {ended}, locked_by, subscription FROM {} ORDER BY sequence",
            columns.join(", "),
            self.store.table()
        );
        let mut connection = self.db.pool.acquire().await.unwrap();
        let rows =
            DB::fetch(&mut connection, AssertSqlSafe(sql).into_sql_str(), vec![]).await.unwrap();
        let found: Vec<(Vec<i64>, Option<String>, Option<String>)> = rows
            .iter()
            .map(|row| {
                let numbers = (0..6).map(|column| DB::int(row, column).unwrap().unwrap()).collect();
                (numbers, DB::text(row, 6).unwrap(), DB::text(row, 7).unwrap())
            })
            .collect();
        let expected: Vec<(Vec<i64>, Option<String>, Option<String>)> = self
            .rows
            .iter()
            .map(|(sequence, row)| {
                let numbers = vec![
                    *sequence,
                    i64::from(row.status.code()),
                    i64::from(row.attempts),
                    row.token,
                    i64::from(row.takeovers),
                    i64::from(row.ended > 0),
                ];
                (numbers, row.owner.map(str::to_owned), Some(row.subscription.to_owned()))
            })
            .collect();
        if found != expected {
            self.fail(&format!("the table is\n{found:?}\ninstead of\n{expected:?}"));
        }
    }
}
