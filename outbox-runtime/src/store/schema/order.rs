//! What an ordered outbox needs beside its table: an index, and a record that it is ordered.
//!
//! The record is in the table of the versions, in the column `ordered`: NULL, or what a dead letter does to the events
//! after it. Processes that deliver in order and processes that do not would break each other's promise, so a start
//! that changes the record is refused while events are in flight.

use super::plan::{Found, Migrations, Planned, Step};
use super::{inspect, plan, with_connection};
use crate::Error;
use crate::store::dialect::Dialect;
use crate::store::statements::of_schema;
use crate::store::{Backend, DatabaseErrorKind, OnDead, SchemaError, Store, Table};

/// The record of how the events of a table are ordered.
const RECORD_OF: &str = "SELECT ordered FROM {versions} WHERE table_name = '{bare}'";
const RECORD: &str = "UPDATE {versions} SET ordered = {ordered} WHERE table_name = '{bare}'";
const ADD_RECORD: &str = "ALTER TABLE {versions} ADD COLUMN ordered VARCHAR(16)";

/// Selects a node that has an event of some status in flight.
pub(in crate::store) const IN_FLIGHT: &str = "\
    SELECT locked_by FROM {table} {by:claim} WHERE {pending:{status}} AND available_at > {now} \
        AND locked_by IS NOT NULL ORDER BY available_at LIMIT 1";

/// Plans the statements that a table lacks for ordered claims.
pub(super) fn plan(dialect: &Dialect, table: &Table, found: &Found) -> Vec<Planned> {
    let step = Step { sql: dialect.order.schema, min_code: 1 };
    let missing = Migrations::missing_of(&step, table, found);
    let mut planned = Vec::new();
    if found.no_record {
        planned.push((
            format!("adding the column `ordered` to table `{}`", table.beside("outbox_schema")),
            ADD_RECORD.to_owned(),
            false,
        ));
    }
    let doing = format!("creating the order index of table `{table}`");
    planned.extend(missing.into_iter().map(|template| (doing.clone(), template, true)));
    let planned = planned.into_iter();
    planned.map(|(doing, template, alters)| Planned { doing, template, alters }).collect()
}

/// How the events of a table are ordered, for the record.
fn code(order: Option<OnDead>) -> &'static str {
    match order {
        None => "NULL",
        Some(OnDead::Block) => "'block'",
        Some(OnDead::Skip) => "'skip'",
    }
}

impl<DB: Backend> Store<DB> {
    /// Checks that the table can be used for ordered claims. Needs no privilege to change it.
    ///
    /// # Errors
    /// If it lacks something, with the SQL that it needs; or if the database fails.
    pub(crate) async fn verify_order(&self) -> Result<(), Error> {
        let found =
            with_connection!(self, connection => inspect::<DB>(connection, &self.table).await);
        let found = found.map_err(Error::database("checking the table"))?;
        let planned = plan(DB::DIALECT, &self.table, &found);
        if planned.is_empty() {
            return Ok(());
        }
        let sql = plan::print(DB::DIALECT, &self.table, &planned);
        Err(SchemaError::NotOrdered { table: self.table.clone(), sql, source: None }.into())
    }

    /// Returns how the events of the table are ordered, as the last start of a relay has recorded it; `None` if they
    /// are not, or if that is not recorded.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn recorded_order(&self) -> Result<Option<OnDead>, Error> {
        let doing = "reading how events are ordered";
        let found =
            with_connection!(self, connection => inspect::<DB>(connection, &self.table).await);
        let found = found.map_err(Error::database(doing))?;
        if found.no_versions || found.no_record {
            return Ok(None);
        }
        let sql = of_schema(DB::DIALECT, &self.table, RECORD_OF);
        let rows = match self.rows_once(sql, vec![]).await {
            Ok(rows) => rows,
            Err(error) if DatabaseErrorKind::from_error(&error) == DatabaseErrorKind::Rights => {
                return Ok(None);
            }
            Err(error) => return Err(Error::database(doing)(error)),
        };
        let code = rows.first().and_then(|row| DB::text(row, 0).ok().flatten());
        Ok(match code.as_deref() {
            Some("block") => Some(OnDead::Block),
            Some("skip") => Some(OnDead::Skip),
            _ => None,
        })
    }

    /// Records how the events of the table are ordered from now on. Returns a node that delivers them in another way at
    /// present, if there is one: nothing is recorded then.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn record_order(
        &self,
        order: Option<OnDead>,
    ) -> Result<Option<String>, Error> {
        let recorded = self.recorded_order().await?;
        if recorded == order {
            return Ok(None);
        }
        if recorded.is_some() != order.is_some() {
            for sql in &self.sql.in_flight {
                let rows = self.rows("looking for events in flight", sql.clone(), vec![]).await?;
                if let Some(owner) = rows.first().and_then(|row| DB::text(row, 0).ok().flatten()) {
                    return Ok(Some(owner));
                }
            }
        }
        let record = RECORD.replace("{ordered}", code(order));
        let sql = of_schema(DB::DIALECT, &self.table, &record);
        let doing = "recording how events are ordered";
        match self.change(doing, &sql, Vec::new).await {
            Ok(_) => Ok(None),
            Err(error) if error.database_error_kind() == DatabaseErrorKind::Rights => {
                tracing::warn!(
                    table = %self.table,
                    "this user may not record how events are ordered: other processes and the command line do not \
                     know it; grant UPDATE on table `outbox_schema`"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
