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
    /// Reads the subscriptions that a written event has rows for.
    ReadSubscriptions,
    /// Registers subscriptions, and reports itself as a running node.
    Register,
}

/// A table that privileges are needed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Table,
    Subscriptions,
    Nodes,
}

impl Target {
    /// Returns the name of a table that belongs to all outboxes.
    fn beside(self) -> Option<&'static str> {
        match self {
            Self::Table => None,
            Self::Subscriptions => Some("outbox_subscription"),
            Self::Nodes => Some("outbox_node"),
        }
    }
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
const SUBSCRIPTIONS: [&str; 4] = [
    "SELECT table_name, name, aggregate_type, event_type, paused FROM {subscriptions} WHERE 1 = 0",
    "EXPLAIN INSERT INTO {subscriptions} (table_name, name, aggregate_type, event_type, paused, first_seen, last_seen) \
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE 1 = 0",
    "EXPLAIN UPDATE {subscriptions} SET last_seen = NULL WHERE 1 = 0",
    "EXPLAIN DELETE FROM {subscriptions} WHERE 1 = 0",
];
const NODES: [&str; 4] = [
    "SELECT table_name, owner, seen_at FROM {nodes} WHERE 1 = 0",
    "EXPLAIN INSERT INTO {nodes} (table_name, owner, started_at, seen_at, state) \
        SELECT NULL, NULL, NULL, NULL, NULL WHERE 1 = 0",
    "EXPLAIN UPDATE {nodes} SET seen_at = NULL, state = NULL WHERE 1 = 0",
    "EXPLAIN DELETE FROM {nodes} WHERE 1 = 0",
];
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
    versions: SqlStr,
    /// For each privilege, in the order of [`Privilege`].
    table: [SqlStr; 4],
    subscriptions: [SqlStr; 4],
    nodes: [SqlStr; 4],
}

impl Sql {
    /// Returns `None` for a database without privileges.
    pub(super) fn new(dialect: &Dialect, sql: impl Fn(&str) -> SqlStr) -> Option<Self> {
        let rights = dialect.rights.as_ref()?;
        Some(Self {
            names: sql(rights.names),
            sequence: rights.sequence.map(&sql),
            versions: sql(VERSIONS),
            table: [&schema::select_nothing(columns::NAMES), INSERT, UPDATE, DELETE].map(&sql),
            subscriptions: SUBSCRIPTIONS.map(&sql),
            nodes: NODES.map(&sql),
        })
    }

    /// Returns a statement that needs the privilege and changes nothing.
    fn needing(&self, target: Target, privilege: Privilege) -> &SqlStr {
        let statements = match target {
            Target::Table => &self.table,
            Target::Subscriptions => &self.subscriptions,
            Target::Nodes => &self.nodes,
        };
        &statements[privilege as usize]
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
    /// Each with a remark.
    privileges: BTreeMap<(Target, Privilege), &'static str>,
    /// A sequence that it may not use.
    sequence: Option<String>,
    /// It may not read the table of the versions.
    versions: bool,
    /// The first error of the database.
    source: Option<sqlx::Error>,
}

impl Operation {
    fn privileges(self, rights: &Rights) -> Vec<(Target, Privilege, &'static str)> {
        use Privilege::{Delete, Insert, Select, Update};
        use Target::{Nodes, Subscriptions, Table};
        const FOR_PURGE: &str = "to purge, unless the purge is turned off";
        const TO_EXPAND: &str = "to write a row for each subscription at once";
        const TO_REGISTER: &str = "to register subscriptions";
        const TO_REPORT: &str = "to list running nodes";
        match self {
            Self::Read => vec![(Table, Select, "")],
            Self::Write => vec![(Table, Insert, "to write events")],
            Self::Deliver => vec![(Table, Update, "to deliver events")],
            Self::DeleteDelivered => vec![(Table, Delete, "to delete delivered events")],
            Self::Purge if rights.lock_requires_update => {
                vec![(Table, Update, FOR_PURGE), (Table, Delete, FOR_PURGE)]
            }
            Self::Purge => vec![(Table, Delete, FOR_PURGE)],
            Self::ReadSubscriptions => vec![(Subscriptions, Select, TO_EXPAND)],
            Self::Register => {
                let registration = [Select, Insert, Update];
                let registration = registration.map(|each| (Subscriptions, each, TO_REGISTER));
                let report = [Select, Insert, Update, Delete].map(|each| (Nodes, each, TO_REPORT));
                registration.into_iter().chain(report).collect()
            }
        }
    }
}

/// Returns the privileges that operations need. The first operation that needs one decides on its remark.
fn needed(
    operations: &[Operation],
    rights: &Rights,
) -> BTreeMap<(Target, Privilege), &'static str> {
    let mut needed = BTreeMap::new();
    for (target, privilege, remark) in operations.iter().flat_map(|each| each.privileges(rights)) {
        needed.entry((target, privilege)).or_insert(remark);
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
        if !lacking.privileges.keys().any(|(target, _)| *target == Target::Table) {
            // No statement gets as far as its privileges on the table: they may all be missing.
            lacking.privileges = needed(operations, rights);
            lacking.versions = true;
        }
        lacking.privileges.insert((Target::Table, Privilege::Select), "");
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
        for ((target, privilege), remark) in needed(operations, rights) {
            if let Some(error) = self.denied(sql.needing(target, privilege)).await? {
                lacking.privileges.insert((target, privilege), remark);
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
        let select = (Target::Table, Privilege::Select);
        let is_concealed = rights.conceals_tables && lacking.privileges.contains_key(&select);
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
    let on = |target: Target| {
        privileges
            .iter()
            .filter(move |((other, _), _)| *other == target)
            .map(|((_, privilege), remark)| (privilege.to_string(), *remark))
    };
    let list = |target| on(target).map(|(privilege, _)| privilege).collect::<Vec<_>>().join(", ");
    if on(Target::Table).next().is_some() {
        grant(format!("{} ON {}", list(Target::Table), names.table));
        missing.extend(on(Target::Table).map(|(privilege, remark)| match remark {
            "" => privilege,
            remark => format!("{privilege} ({remark})"),
        }));
    }
    if let Some(sequence) = sequence {
        grant(format!("USAGE ON SEQUENCE {sequence}"));
        missing.push(format!("USAGE on its sequence {sequence}"));
    }
    for target in [Target::Subscriptions, Target::Nodes] {
        let (Some(name), Some((_, remark))) = (target.beside(), on(target).next()) else {
            continue;
        };
        grant(format!("{} ON {}", list(target), names.beside(name)));
        missing.push(format!("{} on the table `{name}` ({remark})", list(target)));
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
    /// Returns the name of a table beside that of the versions.
    fn beside(&self, name: &str) -> String {
        let (before, after) =
            self.versions.rsplit_once("outbox_schema").unwrap_or((&self.versions, ""));
        format!("{before}{name}{after}")
    }

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
