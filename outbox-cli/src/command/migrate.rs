use outbox_runtime::store::{
    Backend, DatabaseErrorKind, SchemaState, Table, migrate, migration_sql,
};
use serde::Serialize;

use crate::args::Migrate;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{Form, answer, document};

#[derive(Serialize)]
struct Report {
    table: String,
    /// `missing`, `older`, `current` or `unversioned`, before anything was done.
    found: &'static str,
    version: Option<i64>,
    to_do: bool,
    changed: bool,
}

/// Prints the SQL; the URL's scheme says for which database.
pub(crate) fn print<DB: Backend>(table: &Table, form: Form) -> Result<Exit, Fault> {
    #[derive(Serialize)]
    struct Sql {
        table: String,
        sql: String,
    }

    let sql = migration_sql::<DB>(table);
    match form {
        Form::People => answer(&sql)?,
        Form::Programs => document(&Sql { table: table.to_string(), sql })?,
    }
    Ok(Exit::Done)
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Migrate) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let table = session.table();
    let state = session.store.schema_state().await.map_err(fault)?;
    let (found, version, to_do) = match &state {
        // Nothing is known about a table that cannot be looked at, and one that is something else is not
        // to be made.
        SchemaState::Missing { source }
            if matches!(
                DatabaseErrorKind::from_error(source),
                DatabaseErrorKind::Rights | DatabaseErrorKind::NoColumn
            ) =>
        {
            return session.store.verify().await.map_err(fault).map(|()| Exit::Done);
        }
        SchemaState::Hidden { source } => {
            return Err(Fault::failed(
                format!("the version of table `{table}` cannot be read: {source}"),
                "use a user who may read the table `outbox_schema`",
            ));
        }
        SchemaState::Missing { .. } => ("missing", None, true),
        SchemaState::Older { found, .. } => ("older", Some(*found), true),
        SchemaState::Current { version } => ("current", Some(*version), false),
        SchemaState::Unversioned => ("unversioned", None, false),
        SchemaState::Newer { found, known } => {
            return Err(Fault::failed(
                format!(
                    "table `{table}` has version {found}, and this program knows up to {known}"
                ),
                "install the newer `outbox-cli`",
            ));
        }
    };
    let changed = to_do && !args.check;
    if changed {
        migrate(session.store.pool(), table).await.map_err(fault)?;
    }
    let told = if session.form == Form::Programs {
        document(&Report { table: table.to_string(), found, version, to_do, changed })
    } else {
        answer(&match (found, changed) {
            ("missing", true) => format!("table `{table}` was made"),
            ("missing", false) => format!("table `{table}` is to be made: run `outbox migrate`"),
            ("older", true) => format!("table `{table}` was brought up to date"),
            ("older", false) => format!("table `{table}` is to be migrated: run `outbox migrate`"),
            ("unversioned", _) => format!(
                "table `{table}` was made by hand and has every column; `outbox doctor` looks at its indexes"
            ),
            _ => format!("table `{table}` is up to date"),
        })
    };
    Fault::conclude(told, Ok(if to_do && args.check { Exit::No } else { Exit::Done }))
}
