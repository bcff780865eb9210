//! The privileges that a process needs on the table, and the SQL that grants those it lacks.
//!
//! A statement is explained to find out whether it is permitted: that needs the same privileges, of the table or of
//! each column, and changes nothing.

use std::collections::BTreeMap;
use std::fmt;

use sqlx::{Connection, SqlStr};

use super::dialect::Dialect;
use super::{
    Backend, DatabaseErrorKind, Finding, SchemaError, SchemaState, Store, Table, columns, schema,
};
use crate::Error;

const DOING: &str = "checking the privileges";

/// Something that a process does with the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Reads rows, which every process does.
    Read,
    /// Inserts events.
    Write,
    /// Claims and settles events.
    Deliver,
    /// Deletes delivered events at once.
    DeleteDelivered,
    /// Deletes old events.
    Purge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Privilege {
    Select,
    Insert,
    Update,
    Delete,
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        })
    }
}

const INSERT: &str = "\
    EXPLAIN INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, \
        created_at, available_at, locked_by, locked_at, claim_token, status, attempts) \
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE 1 = 0";
const UPDATE: &str = "\
    EXPLAIN UPDATE {table} SET status = 0, attempts = 0, available_at = NULL, done_at = NULL, last_error = NULL, \
        takeovers = 0, locked_by = NULL, locked_at = NULL, claim_token = 0 WHERE 1 = 0";
const DELETE: &str = "EXPLAIN DELETE FROM {table} WHERE 1 = 0";
const VERSIONS: &str = "SELECT version FROM {versions} WHERE 1 = 0";

/// How a database manages privileges.
#[derive(Debug)]
pub(super) struct Rights {
    /// Returns the user, the table, its schema and the table of the versions, each as a GRANT names it, and 1 if the
    /// user may use the schema. No row if there is no such table.
    pub(super) names: &'static str,
    /// Returns the sequence that an INSERT uses, if the user lacks the privilege.
    pub(super) sequence: Option<&'static str>,
    /// Whether a lock on a row requires UPDATE. Otherwise DELETE suffices to lock a row and delete it.
    pub(super) lock_requires_update: bool,
    /// Whether a user without privileges is not told that a table is missing.
    pub(super) conceals_tables: bool,
}

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Sql {
    names: SqlStr,
    sequence: Option<SqlStr>,
    select: SqlStr,
    versions: SqlStr,
    insert: SqlStr,
    update: SqlStr,
    delete: SqlStr,
}

impl Sql {
    /// Returns `None` for a database without privileges.
    pub(super) fn new(dialect: &Dialect, sql: impl Fn(&str) -> SqlStr) -> Option<Self> {
        let rights = dialect.rights.as_ref()?;
        Some(Self {
            names: sql(rights.names),
            sequence: rights.sequence.map(&sql),
            select: sql(&schema::select_nothing(columns::NAMES)),
            versions: sql(VERSIONS),
            insert: sql(INSERT),
            update: sql(UPDATE),
            delete: sql(DELETE),
        })
    }
}

/// The names in a GRANT, quoted.
#[derive(Debug)]
struct Names {
    user: String,
    table: String,
    /// Empty where schemas have no privileges.
    schema: String,
    versions: String,
    may_use_schema: bool,
}

/// What a user may not do.
#[derive(Debug, Default)]
struct Lacking {
    /// On the table, each with a remark.
    privileges: BTreeMap<Privilege, &'static str>,
    /// A sequence that it may not use.
    sequence: Option<String>,
    /// It may not read the table of the versions.
    versions: bool,
    /// The first error of the database.
    source: Option<sqlx::Error>,
}

impl Operation {
    fn privileges(self, rights: &Rights) -> Vec<(Privilege, &'static str)> {
        const FOR_PURGE: &str = "to purge, unless the purge is turned off";
        match self {
            Self::Read => vec![(Privilege::Select, "")],
            Self::Write => vec![(Privilege::Insert, "to write events")],
            Self::Deliver => vec![(Privilege::Update, "to deliver events")],
            Self::DeleteDelivered => vec![(Privilege::Delete, "to delete delivered events")],
            Self::Purge if rights.lock_requires_update => {
                vec![(Privilege::Update, FOR_PURGE), (Privilege::Delete, FOR_PURGE)]
            }
            Self::Purge => vec![(Privilege::Delete, FOR_PURGE)],
        }
    }
}

/// Returns the privileges that operations need. The first operation that needs one decides on its remark.
fn needed(operations: &[Operation], rights: &Rights) -> BTreeMap<Privilege, &'static str> {
    let mut needed = BTreeMap::new();
    for (privilege, remark) in operations.iter().flat_map(|each| each.privileges(rights)) {
        needed.entry(privilege).or_insert(remark);
    }
    needed
}

impl<DB: Backend> Store<DB> {
    /// Checks that this user may do what a process does with the table.
    ///
    /// # Errors
    /// [`SchemaError::NotPermitted`] with everything that it may not do.
    pub(crate) async fn check_rights(&self, operations: &[Operation]) -> Result<(), Error> {
        let Some(rights) = &DB::DIALECT.rights else { return Ok(()) };
        let lacking = self.lacking(operations, rights).await?;
        if lacking.privileges.is_empty() && lacking.sequence.is_none() {
            return Ok(());
        }
        Err(self.not_permitted(lacking, rights).await.into())
    }

    /// Returns a finding if this user lacks privileges that a process may need, and can start without: for some of the
    /// operations, and to read the version of the table.
    pub(crate) async fn check_optional_rights(
        &self,
        operations: &[Operation],
    ) -> Result<Option<Finding>, Error> {
        let Some(rights) = &DB::DIALECT.rights else { return Ok(None) };
        let lacking = self.lacking(operations, rights).await?;
        if lacking.privileges.is_empty() && lacking.sequence.is_none() && !lacking.versions {
            return Ok(None);
        }
        let (missing, sql) = grants(&lacking, &self.names_or_refusal(&lacking).await);
        let missing = missing.join(", ");
        let what = format!("this user lacks privileges that this process may need: {missing}");
        let remedy = format!("to grant them, run: {}", sql.trim_end().replace('\n', " "));
        Ok(Some(Finding::warning("privileges", what, remedy)))
    }

    /// Returns the error for a table that this user may not read, with everything else that it may not do.
    pub(crate) async fn may_not_read(
        &self,
        operations: &[Operation],
        source: sqlx::Error,
    ) -> SchemaError {
        let Some(rights) = &DB::DIALECT.rights else {
            let (table, sql) = (self.table.clone(), super::migration_sql::<DB>(&self.table));
            return SchemaError::Missing { table, sql, source };
        };
        let mut lacking = self.lacking(operations, rights).await.unwrap_or_default();
        if lacking.privileges.is_empty() {
            // No statement gets as far as its privileges on the table: they may all be missing.
            lacking.privileges = needed(operations, rights);
            lacking.versions = true;
        }
        lacking.privileges.insert(Privilege::Select, "");
        self.not_permitted(Lacking { source: Some(source), ..lacking }, rights).await
    }

    /// Returns the state of a table that seems to be missing. On PostgreSQL, a schema that a user may not use is left
    /// out of the search path.
    pub(super) async fn missing_or_forbidden(&self, source: sqlx::Error) -> SchemaState {
        match self.names().await {
            Some(names) if !names.may_use_schema => SchemaState::Forbidden { source },
            _ => SchemaState::Missing { source },
        }
    }

    async fn lacking(&self, operations: &[Operation], rights: &Rights) -> Result<Lacking, Error> {
        let mut lacking = Lacking::default();
        let Some(sql) = &self.sql.rights else { return Ok(lacking) };
        for (privilege, remark) in needed(operations, rights) {
            let statement = match privilege {
                Privilege::Select => &sql.select,
                Privilege::Insert => &sql.insert,
                Privilege::Update => &sql.update,
                Privilege::Delete => &sql.delete,
            };
            if let Some(error) = self.denied(statement).await? {
                lacking.privileges.insert(privilege, remark);
                lacking.source.get_or_insert(error);
            }
        }
        if let (true, Some(sequence)) = (operations.contains(&Operation::Write), &sql.sequence)
            // It fails if the table cannot be used anyway.
            && let Ok(rows) = self.rows(DOING, sequence.clone(), vec![]).await
        {
            lacking.sequence = rows.first().and_then(|row| DB::text(row, 0).ok().flatten());
        }
        lacking.versions = self.denied(&sql.versions).await?.is_some();
        Ok(lacking)
    }

    /// Runs a statement that changes nothing; returns the error if it is not permitted.
    async fn denied(&self, sql: &SqlStr) -> Result<Option<sqlx::Error>, Error> {
        let Err(error) = self.attempt(sql).await else { return Ok(None) };
        match DatabaseErrorKind::from_error(&error) {
            DatabaseErrorKind::Rights => Ok(Some(error)),
            DatabaseErrorKind::Unreachable => Err(Error::database(DOING)(error)),
            // It is reported where the statement is needed: the server may be read-only.
            _ => Ok(None),
        }
    }

    async fn attempt(&self, sql: &SqlStr) -> sqlx::Result<()> {
        let mut connection = self.pool.acquire().await?;
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let result = DB::run(&mut work, sql.clone()).await;
        work.rollback().await?;
        result
    }

    async fn names(&self) -> Option<Names> {
        let sql = self.sql.rights.as_ref()?.names.clone();
        let rows = self.rows(DOING, sql, vec![]).await.ok()?;
        let row = rows.first()?;
        let text = |column| DB::text(row, column).ok().flatten();
        Some(Names {
            user: text(0)?,
            table: text(1)?,
            schema: text(2)?,
            versions: text(3)?,
            may_use_schema: DB::int(row, 4).ok().flatten() == Some(1),
        })
    }

    async fn names_or_refusal(&self, lacking: &Lacking) -> Names {
        match self.names().await {
            Some(names) => names,
            None => Names::from_refusal(lacking.source.as_ref(), &self.table, DB::DIALECT.quote),
        }
    }

    async fn not_permitted(&self, lacking: Lacking, rights: &Rights) -> SchemaError {
        let names = self.names_or_refusal(&lacking).await;
        let (missing, sql) = grants(&lacking, &names);
        let is_concealed =
            rights.conceals_tables && lacking.privileges.contains_key(&Privilege::Select);
        let (table, source) = (self.table.clone(), lacking.source.map(Box::new));
        SchemaError::NotPermitted { table, missing, is_concealed, sql, source }
    }
}

/// Returns the privileges that a user lacks in words, and the SQL that grants them.
fn grants(lacking: &Lacking, names: &Names) -> (Vec<String>, String) {
    let Lacking { privileges, sequence, versions, .. } = lacking;
    let (mut missing, mut sql) = (Vec::new(), String::new());
    let mut grant = |what: String| sql.push_str(&format!("GRANT {what} TO {};\n", names.user));
    if !names.may_use_schema {
        grant(format!("USAGE ON SCHEMA {}", names.schema));
    }
    if !privileges.is_empty() {
        let all: Vec<String> = privileges.keys().map(Privilege::to_string).collect();
        grant(format!("{} ON {}", all.join(", "), names.table));
        missing.extend(privileges.iter().map(|(privilege, remark)| match *remark {
            "" => privilege.to_string(),
            remark => format!("{privilege} ({remark})"),
        }));
    }
    if let Some(sequence) = sequence {
        grant(format!("USAGE ON SEQUENCE {sequence}"));
        missing.push(format!("USAGE on its sequence {sequence}"));
    }
    if *versions {
        grant(format!("SELECT ON {}", names.versions));
        missing.push("SELECT on the table `outbox_schema` (to check its version)".to_owned());
    }
    if !names.may_use_schema {
        // The others cannot be checked without it.
        missing = vec![format!("USAGE on its schema {}", names.schema)];
    }
    (missing, sql)
}

impl Names {
    /// Takes the names from the error of a server that refuses the connection, because the user has no privilege at
    /// all in the database: `Access denied for user 'app'@'%' to database 'shop'`.
    fn from_refusal(error: Option<&sqlx::Error>, table: &Table, quote: char) -> Self {
        let error = error.and_then(sqlx::Error::as_database_error);
        let names = error.and_then(|error| error.message().split_once("for user "));
        let names = names.and_then(|(_, names)| names.split_once(" to database "));
        let (user, table) = match names {
            Some((user, database)) => {
                let database = Table::new(&format!("{}.x", database.trim_matches('\'')));
                let table = database.map_or(table.clone(), |other| other.beside(table.name()));
                (user, table)
            }
            None => ("<the user of this process>", table.clone()),
        };
        Self {
            user: user.to_owned(),
            table: table.quoted(quote),
            schema: String::new(),
            versions: table.beside("outbox_schema").quoted(quote),
            may_use_schema: true,
        }
    }
}
