use outbox::Error;
use outbox::admin::{
    SchemaState, Table, adoption_sql, migrate, migrate_ordered, migration_sql_from,
    migration_sql_ordered,
};
use outbox::error::{DatabaseErrorKind, SchemaError};
use outbox::tx::Backend;
use serde::Serialize;

use crate::args::Migrate;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{Format, print_json, print_text};

#[derive(Serialize)]
struct Report<'a> {
    table: String,
    /// The state before the migration: `missing`, `older`, `current`, `newer` or `unversioned`.
    found: &'static str,
    version: Option<i64>,
    to_do: bool,
    changed: bool,
    /// The statements that the table needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    sql: Option<&'a str>,
}

/// Prints the SQL of a migration, for the database that the scheme of the URL names.
pub(crate) fn print<DB: Backend>(
    table: &Table,
    args: &Migrate,
    format: Format,
) -> Result<Exit, Fault> {
    #[derive(Serialize)]
    struct Sql {
        table: String,
        sql: String,
    }

    let sql = if args.adopt {
        adoption_sql::<DB>(table)
    } else if args.ordered {
        migration_sql_ordered::<DB>(table)
    } else {
        migration_sql_from::<DB>(table, args.from)
    };
    if args.adopt && sql.is_empty() {
        return Err(Fault::usage(
            format!("the original Java framework has no table on {}", DB::NAME),
            "use a URL that starts with `postgres://` or `mysql://`",
        ));
    }
    match format {
        Format::Text => print_text(&sql)?,
        Format::Json => print_json(&Sql { table: table.to_string(), sql })?,
    }
    Ok(Exit::Success)
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Migrate) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let table = session.table();
    let state = session.admin.schema_state().await.map_err(fault)?;
    let (found, version, is_pending) = match &state {
        // The state of a table that cannot be read is unknown, and a table that is not an outbox must not
        // be migrated.
        SchemaState::Missing { source }
            if DatabaseErrorKind::from_error(source) == DatabaseErrorKind::NoColumn =>
        {
            return session.admin.verify().await.map_err(fault).map(|()| Exit::Success);
        }
        SchemaState::Forbidden { .. } => {
            return session.admin.verify().await.map_err(fault).map(|()| Exit::Success);
        }
        SchemaState::Hidden { source } => {
            return Err(Fault::failed(
                format!("cannot read the version of table `{table}`: {source}"),
                "connect as a user who may read the table `outbox_schema`",
            ));
        }
        SchemaState::Missing { .. } => ("missing", None, true),
        SchemaState::Older { found, .. } => ("older", Some(*found), true),
        SchemaState::Current { version } => ("current", Some(*version), false),
        SchemaState::Compatible { found, .. } => ("newer", Some(*found), false),
        SchemaState::Unversioned => ("unversioned", None, false),
        SchemaState::Newer { found, known, .. } => {
            return Err(Fault::failed(
                format!(
                    "table `{table}` has version {found}, but this program supports at most {known}"
                ),
                "install a newer `outbox-cli`",
            ));
        }
        _ => return session.admin.verify().await.map_err(fault).map(|()| Exit::Success),
    };
    let order_sql = match args.ordered && !is_pending {
        true => missing_for_order(session).await?,
        false => None,
    };
    let sql = match &state {
        SchemaState::Older { sql, .. } => Some(sql.as_str()),
        _ => order_sql.as_deref(),
    };
    let to_do = is_pending || order_sql.is_some();
    let changed = to_do && !args.check;
    if changed && args.ordered {
        migrate_ordered(&session.pool, table).await.map_err(fault)?;
        session.admin.verify_ordered().await.map_err(fault)?;
    } else if changed {
        migrate(&session.pool, table).await.map_err(fault)?;
    }
    let printed = if session.format == Format::Json {
        print_json(&Report { table: table.to_string(), found, version, to_do, changed, sql })
    } else {
        print_text(&match (found, changed) {
            (_, true) if order_sql.is_some() => format!("added the order index to table `{table}`"),
            (_, false) if order_sql.is_some() => format!(
                "table `{table}` lacks the order index: run `outbox migrate --ordered`, or run this SQL:\n\n{}",
                sql.unwrap_or_default().trim_end()
            ),
            ("missing", true) => format!("created table `{table}`"),
            ("missing", false) => format!("table `{table}` does not exist: run `outbox migrate`"),
            ("older", true) if version == Some(0) => {
                format!(
                    "adopted table `{table}` of the original Java framework, with all of its events"
                )
            }
            ("older", true) => format!("migrated table `{table}` to the latest version"),
            ("older", false) if version == Some(0) => format!(
                "table `{table}` is one of the original Java framework: switch the relay of that framework off \
                 and run `outbox migrate`, or run this SQL:\n\n{}",
                sql.unwrap_or_default().trim_end()
            ),
            ("older", false) => format!(
                "table `{table}` has version {}: run `outbox migrate`, or run this SQL:\n\n{}",
                version.unwrap_or_default(),
                sql.unwrap_or_default().trim_end()
            ),
            ("newer", _) => format!(
                "table `{table}` has version {}, which is newer than this program and can be used by it",
                version.unwrap_or_default()
            ),
            ("unversioned", _) => format!(
                "table `{table}` was created manually and has every column; `outbox doctor` checks its indexes"
            ),
            _ => format!("table `{table}` is up to date"),
        })
    };
    Fault::conclude(printed, Ok(if to_do && args.check { Exit::Negative } else { Exit::Success }))
}

/// Returns the SQL that the table lacks for an ordered outbox.
async fn missing_for_order<DB: Backend>(session: &Session<DB>) -> Result<Option<String>, Fault> {
    match session.admin.verify_ordered().await {
        Ok(()) => Ok(None),
        Err(Error::Schema(SchemaError::NotOrdered { sql, .. })) => Ok(Some(sql)),
        Err(error) => Err(session.fault(error)),
    }
}
