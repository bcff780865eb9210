//! The running nodes, in the table `outbox_node`. Each writes its state regularly.

use std::time::{Duration, SystemTime};

use sqlx::SqlStr;

use super::row::{span, time};
use super::{Backend, Store};
use crate::Error;

const LEAVE: &str = "DELETE FROM {nodes} WHERE table_name = '{bare}' AND owner = $1";
const NODES: &str = "\
    SELECT owner, {micros:started_at}, {micros:seen_at}, {micros:{now}}, state FROM {nodes} \
    WHERE table_name = '{bare}' ORDER BY owner";
/// Read before they are deleted: the deletion alone would wait for the rows of all other nodes.
const LOST: &str = "\
    SELECT owner FROM {nodes} WHERE table_name = '{bare}' AND seen_at < {earlier:$1} ORDER BY owner";
const REMOVE_LOST: &str = "\
    DELETE FROM {nodes} WHERE table_name = '{bare}' AND owner = $1 AND seen_at < {earlier:$2}";

/// How long a node is listed after it was seen for the last time.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// A node as it has described itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// The id of the node, as in `locked_by`.
    pub owner: String,
    /// When it started.
    pub started_at: SystemTime,
    /// When it was seen for the last time.
    pub seen_at: SystemTime,
    /// How long ago that was, by the database's clock.
    pub age: Duration,
    /// What it has written about itself, as JSON.
    pub state: String,
}

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Sql {
    beat: SqlStr,
    leave: SqlStr,
    nodes: SqlStr,
    lost: SqlStr,
    remove_lost: SqlStr,
}

impl Sql {
    /// `beat` is that of the dialect.
    pub(super) fn new(beat: &str, sql: impl Fn(&str) -> SqlStr) -> Self {
        Self {
            beat: sql(beat),
            leave: sql(LEAVE),
            nodes: sql(NODES),
            lost: sql(LOST),
            remove_lost: sql(REMOVE_LOST),
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// Records that a node is running, and its state.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn beat(&self, owner: &str, state: &str) -> Result<(), Error> {
        let args = || vec![owner.into(), state.into()];
        self.change("reporting this node", &self.sql.node.beat, args).await.map(drop)
    }

    /// Removes the nodes of this table that have not been seen for a day.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn remove_lost_nodes(&self) -> Result<(), Error> {
        let sql = &self.sql.node;
        let doing = "looking for lost nodes";
        for row in self.rows(doing, sql.lost.clone(), vec![span(KEPT).into()]).await? {
            let Some(lost) = DB::text(&row, 0).map_err(Error::database(doing))? else { continue };
            let args = || vec![lost.as_str().into(), span(KEPT).into()];
            self.change("removing a lost node", &sql.remove_lost, args).await?;
        }
        Ok(())
    }

    /// Removes a node that shuts down.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn leave(&self, owner: &str) -> Result<(), Error> {
        let args = || vec![owner.into()];
        self.change("removing this node", &self.sql.node.leave, args).await.map(drop)
    }

    /// Returns the nodes of this table, ordered by owner. Those that were killed are among them for a day.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        let doing = "reading the nodes";
        let rows = self.rows(doing, self.sql.node.nodes.clone(), vec![]).await?;
        let read = |row: &DB::Row| {
            let text = |column| DB::text(row, column).map(Option::unwrap_or_default);
            let micros = |column| DB::int(row, column).map(Option::unwrap_or_default);
            let (seen, now) = (micros(2)?, micros(3)?);
            let at = |micros| time(micros).unwrap_or(SystemTime::UNIX_EPOCH);
            Ok(NodeRow {
                owner: text(0)?,
                started_at: at(micros(1)?),
                seen_at: at(seen),
                age: Duration::from_micros(u64::try_from(now - seen).unwrap_or_default()),
                state: text(4)?,
            })
        };
        let nodes: sqlx::Result<Vec<NodeRow>> = rows.iter().map(read).collect();
        nodes.map_err(Error::database(doing))
    }
}
