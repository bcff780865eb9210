//! The rows of each subscription: how many there are, and the deletion of those of one that is dropped.

use std::collections::BTreeMap;
use std::time::SystemTime;

use sqlx::SqlStr;

use super::columns::{ints, text_and_ints};
use super::row::time;
use super::skip_locked::keys;
use super::{Backend, Node, Store};
use crate::Error;

const DOING: &str = "reading the subscriptions";

/// A row that is not expanded yet is counted for the unnamed listener.
const PENDING: &str = "\
    SELECT name, {int:COUNT(*)}, {micros:MIN(created_at)} \
    FROM (SELECT CASE WHEN subscription = '*' THEN '' ELSE subscription END AS name, created_at \
        FROM {table} {by:claim} WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped \
    GROUP BY name";
const DEAD: &str = "\
    SELECT name, {int:COUNT(*)} \
    FROM (SELECT CASE WHEN subscription = '*' THEN '' ELSE subscription END AS name \
        FROM {table} {by:dead} WHERE status = 3 LIMIT 100000) AS capped \
    GROUP BY name";
const PATTERNS: &str = "\
    SELECT name, aggregate_type, event_type, {int:paused}, {micros:first_seen}, {micros:last_seen} \
    FROM {subscriptions} WHERE table_name = '{bare}' ORDER BY name, aggregate_type, event_type";
/// Reads the next rows by primary key, because no index knows the subscription, and sequences do not change. Delivered
/// rows are left to the purge.
const NEXT: &str = "\
    SELECT {int:sequence}, {int:is_open} FROM (SELECT sequence, \
            CASE WHEN subscription = $1 AND status <> 1 THEN 1 ELSE 0 END AS is_open \
        FROM {table} WHERE sequence > $2 ORDER BY sequence LIMIT $3) AS following ORDER BY sequence";

/// A subscription of a table, from [`Admin::subscriptions`](crate::Admin::subscriptions): a named listener with its own
/// row for each event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Subscription {
    /// The name of the subscription; empty for the listeners without a name.
    pub name: String,
    /// Whether it is [paused](crate::Admin::pause).
    pub paused: bool,
    /// The events that it is registered for. Empty if it is not registered any more and has rows left.
    pub patterns: Vec<SubscriptionPattern>,
    /// The number of its events that are not delivered yet. Of all subscriptions together, up to 100,000 new and
    /// 100,000 retried events are considered.
    pub pending: u64,
    /// When the oldest of them was written.
    pub oldest: Option<SystemTime>,
    /// The number of its dead letters. Of all subscriptions together, up to 100,000 are considered.
    pub dead: u64,
    /// The running nodes that have a listener for it.
    pub nodes: Vec<String>,
}

/// The events that a [`Subscription`] is registered for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionPattern {
    /// The aggregate type; `None` for any.
    pub aggregate_type: Option<String>,
    /// The event type; `None` for any.
    pub event_type: Option<String>,
    /// When a node registered it for the first time: events that were written before have no row for it.
    pub first_seen: SystemTime,
    /// When a node registered it for the last time.
    pub last_seen: SystemTime,
}

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Sql {
    /// For new and for retried events.
    pending: [SqlStr; 2],
    dead: SqlStr,
    patterns: SqlStr,
    next: SqlStr,
    delete: SqlStr,
}

impl Sql {
    /// `delete` deletes the rows among some that are not delivered.
    pub(super) fn new(
        sql: impl Fn(&str) -> SqlStr,
        beside: impl Fn(&str) -> SqlStr,
        delete: SqlStr,
    ) -> Self {
        Self {
            pending: ["0", "2"].map(|status| sql(&PENDING.replace("{status}", status))),
            dead: sql(DEAD),
            patterns: beside(PATTERNS),
            next: sql(NEXT),
            delete,
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns the subscriptions that are registered or have rows, in the order of their names, each with the nodes that
    /// deliver it now. The listeners without a name are among them only if they are registered.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn subscriptions(&self) -> Result<Vec<Subscription>, Error> {
        let sql = &self.sql.subscription_rows;
        let mut all = BTreeMap::new();
        for row in self.rows(DOING, sql.patterns.clone(), vec![]).await? {
            read_pattern::<DB>(&row, &mut all).map_err(Error::database(DOING))?;
        }
        for pending in &sql.pending {
            for row in self.rows(DOING, pending.clone(), vec![]).await? {
                let Some((name, [count, oldest])) = text_and_ints::<DB, 2>(&row) else { continue };
                let Some(entry) = named(&mut all, name) else { continue };
                entry.pending += count.unwrap_or_default().unsigned_abs();
                let oldest = oldest.and_then(time);
                entry.oldest = entry.oldest.into_iter().chain(oldest).min();
            }
        }
        for row in self.rows(DOING, sql.dead.clone(), vec![]).await? {
            let Some((name, [count])) = text_and_ints::<DB, 1>(&row) else { continue };
            let Some(entry) = named(&mut all, name) else { continue };
            entry.dead = count.unwrap_or_default().unsigned_abs();
        }
        let nodes = self.described_nodes().await?;
        let mut all: Vec<Subscription> = all.into_values().collect();
        for each in &mut all {
            let delivering = nodes.iter().filter(|node: &&Node| node.delivers(&each.name));
            each.nodes = delivering.map(|node| node.owner.clone()).collect();
        }
        Ok(all)
    }

    /// Deletes the pending and dead rows of a subscription among the next rows after a sequence, claimed ones too.
    /// Returns how many, and the last sequence that was read; `None` if there was none.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn delete_of_subscription(
        &self,
        name: &str,
        after: i64,
        limit: u32,
    ) -> Result<(u64, Option<i64>), Error> {
        let doing = "deleting the events of a subscription";
        let sql = &self.sql.subscription_rows;
        let args = vec![name.into(), after.into(), i64::from(limit).into()];
        let rows = self.rows(doing, sql.next.clone(), args).await?;
        let rows: Vec<[Option<i64>; 2]> = rows.iter().map(ints::<DB, 2>).collect();
        let open = rows.iter().filter(|[_, is_open]| *is_open == Some(1));
        let open: Vec<i64> = open.filter_map(|[sequence, _]| *sequence).collect();
        let deleted = match open.is_empty() {
            true => 0,
            false => self.change(doing, &sql.delete, || keys(&open)).await?,
        };
        Ok((deleted, rows.last().and_then(|[sequence, _]| *sequence)))
    }
}

/// Returns the entry of a name that has rows.
fn named(all: &mut BTreeMap<String, Subscription>, name: String) -> Option<&mut Subscription> {
    if name.is_empty() {
        return all.get_mut(&name);
    }
    Some(
        all.entry(name.clone()).or_insert_with(|| Subscription { name, ..Subscription::default() }),
    )
}

fn read_pattern<DB: Backend>(
    row: &DB::Row,
    all: &mut BTreeMap<String, Subscription>,
) -> sqlx::Result<()> {
    let text = |column| DB::text(row, column).map(Option::unwrap_or_default);
    let at = |column| {
        let micros = DB::int(row, column)?.unwrap_or_default();
        Ok::<_, sqlx::Error>(time(micros).unwrap_or(SystemTime::UNIX_EPOCH))
    };
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let name = text(0)?;
    let entry = all.entry(name.clone()).or_default();
    entry.name = name;
    entry.paused |= DB::int(row, 3)?.unwrap_or_default() != 0;
    entry.patterns.push(SubscriptionPattern {
        aggregate_type: some(text(1)?),
        event_type: some(text(2)?),
        first_seen: at(4)?,
        last_seen: at(5)?,
    });
    Ok(())
}
