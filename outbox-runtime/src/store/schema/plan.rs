//! The embedded migrations, and the statements of them that a table still needs.
//!
//! Every statement has one effect that the catalog shows: a table, a column or an index is there, or is not. So a
//! table without a recorded version can be placed between the migrations, and a step that failed half-way (on
//! MySQL, where DDL is not transactional) is completed. What `migrate` runs and what is printed for a user with
//! more privileges is the same plan.

use std::collections::HashSet;

use super::super::Table;
use super::super::dialect::Dialect;
use super::origin::{OLD_INDEX, Origin};
use super::{BESIDE, render};
use crate::store::columns::NAMES;

/// The embedded migrations of a database. They are numbered and only go forward.
#[derive(Debug)]
pub(in crate::store) struct Migrations {
    /// The steps; the first leads to version 1.
    pub(in crate::store) steps: &'static [Step],
    /// Other tables than version 1 to begin with; `None` if there are none on this database.
    pub(in crate::store) origin: Option<Origin>,
    /// Creates the table of the versions.
    pub(in crate::store) versions: &'static str,
    /// Adds the column `min_code` to a table of the versions that has none, as the first ones.
    pub(in crate::store) add_min_code: &'static str,
    /// Sets up the database.
    pub(in crate::store) setup: &'static str,
    /// Limits how long a statement waits for its lock on an existing table to a second; empty if it does not
    /// wait. All other statements on the table queue behind one that waits for an exclusive lock.
    pub(in crate::store) lock_timeout: &'static str,
    /// Whether a failed step leaves nothing behind.
    pub(in crate::store) transactional: bool,
}

/// A migration from one version to the next.
#[derive(Debug)]
pub(in crate::store) struct Step {
    /// Statements of the forms that [`Effect`] knows.
    pub(in crate::store) sql: &'static str,
    /// The oldest program that can use the table after this step, by the latest schema version that it knows.
    pub(in crate::store) min_code: i64,
}

impl Step {
    fn statements(&self) -> Vec<String> {
        statements(self.sql)
    }
}

/// Returns the statements of an embedded file.
pub(in crate::store) fn statements(sql: &str) -> Vec<String> {
    let lines = sql.lines().filter(|line| !line.trim_start().starts_with("--"));
    let sql = lines.collect::<Vec<_>>().join("\n");
    let statements = sql.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    statements.map(str::to_owned).collect()
}

/// Returns the indexes that a statement names.
pub(super) fn indexes(statement: &str) -> Vec<&str> {
    let names = statement.split("{index:").skip(1);
    names.filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

/// The effect of a statement, as the catalog shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect<'a> {
    CreateTable,
    AddColumn(&'a str),
    DropColumn(&'a str),
    CreateIndex(&'a str),
    DropIndex(&'a str),
    /// Creates one of the tables that belong to all outboxes of a schema, unless it exists.
    CreateBeside(&'static str),
    /// Drops the index of the table's [`Origin`].
    DropOldIndex,
    /// The catalog does not show whether the statement has run, so it must be possible to run it twice.
    Unknown,
}

impl<'a> Effect<'a> {
    pub(super) fn new(statement: &'a str) -> Self {
        let index = |word: &'a str| {
            let word = word.strip_prefix("{schema}").unwrap_or(word);
            let index = word.strip_prefix("{index:").and_then(|word| word.strip_suffix('}'));
            index.unwrap_or_default()
        };
        let beside = |placeholder: &str| {
            let known = BESIDE.iter().find(|(of_table, _)| *of_table == placeholder);
            known.map_or(Self::Unknown, |(_, name)| Self::CreateBeside(name))
        };
        let words: Vec<&str> = statement.split_whitespace().take(6).collect();
        match words.as_slice() {
            ["CREATE", "TABLE", "{table}", ..] => Self::CreateTable,
            ["CREATE", "TABLE", "IF", "NOT", "EXISTS", name] => beside(name),
            ["ALTER", "TABLE", "{table}", "ADD", "COLUMN", name, ..] => Self::AddColumn(name),
            ["ALTER", "TABLE", "{table}", "DROP", "COLUMN", name, ..] => Self::DropColumn(name),
            ["CREATE", "INDEX", name, ..] | ["CREATE", "UNIQUE", "INDEX", name, ..] => {
                Self::CreateIndex(index(name))
            }
            ["DROP", "INDEX", OLD_INDEX | "{old_index}", ..] => Self::DropOldIndex,
            ["DROP", "INDEX", name, ..] => Self::DropIndex(index(name)),
            _ => Self::Unknown,
        }
    }

    /// Returns whether the database shows the effect. Whether the table is there depends on the migrations.
    pub(super) fn is_there(self, table: &Table, found: &Found) -> bool {
        match self {
            Self::AddColumn(name) => found.columns.contains(name),
            Self::DropColumn(name) => !found.columns.contains(name),
            Self::CreateIndex(name) => found.indexes.contains(&table.derived(name)),
            Self::DropIndex(name) => !found.indexes.contains(&table.derived(name)),
            Self::CreateBeside(name) => found.beside.contains(name),
            Self::DropOldIndex => !found.indexes.contains(OLD_INDEX),
            Self::CreateTable | Self::Unknown => false,
        }
    }

    /// Returns whether no program works without the effect. An index may have been replaced on purpose, and `doctor`
    /// reports it.
    fn is_indispensable(self) -> bool {
        match self {
            Self::CreateTable
            | Self::AddColumn(_)
            | Self::DropColumn(_)
            | Self::CreateBeside(_) => true,
            Self::CreateIndex(_) | Self::DropIndex(_) | Self::DropOldIndex | Self::Unknown => false,
        }
    }
}

/// What the database shows of a table.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// The recorded version.
    pub(super) version: Option<i64>,
    /// Whether the table of the versions has to be created.
    pub(super) no_versions: bool,
    /// Whether the table of the versions lacks the column `min_code`.
    pub(super) no_min_code: bool,
    /// Whether the table of the versions lacks the column `ordered`.
    pub(super) no_record: bool,
    /// The columns of the table.
    pub(super) columns: HashSet<String>,
    /// The indexes of the table.
    pub(super) indexes: HashSet<String>,
    /// The tables of [`BESIDE`] that exist.
    pub(super) beside: HashSet<&'static str>,
    /// Those of which the database does not tell this user whether they exist.
    pub(super) concealed: HashSet<&'static str>,
}

/// A statement to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    /// For messages: "while creating ..".
    pub(super) doing: String,
    pub(super) template: String,
    /// Whether it changes an existing outbox table, which others may be using.
    pub(super) alters: bool,
}

impl Migrations {
    /// Returns the latest version.
    pub(super) fn latest(&self) -> i64 {
        self.steps.len() as i64
    }

    /// Returns the columns of the first version: those that no later step adds.
    pub(super) fn first_columns(&self) -> Vec<&'static str> {
        let later: Vec<String> = self.steps.iter().skip(1).flat_map(Step::statements).collect();
        let added = |column: &str| {
            later.iter().any(|statement| Effect::new(statement) == Effect::AddColumn(column))
        };
        NAMES.iter().copied().filter(|column| !added(column)).collect()
    }

    fn has_first_columns(&self, found: &Found) -> bool {
        self.first_columns().iter().all(|column| found.columns.contains(*column))
    }

    /// Returns whether the table is of another origin, and can become an outbox table.
    pub(super) fn is_adoptable(&self, table: &Table, found: &Found) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.is_of(table, found))
    }

    /// Returns the columns that an existing table lacks to be an outbox table; empty if it is one, can become one, or
    /// does not exist.
    pub(super) fn lacking(&self, table: &Table, found: &Found) -> Vec<String> {
        if found.columns.is_empty() || self.is_adoptable(table, found) {
            return Vec::new();
        }
        let lacking =
            self.first_columns().into_iter().filter(|name| !found.columns.contains(*name));
        lacking.map(str::to_owned).collect()
    }

    /// Returns the latest version whose effects are all there. Indexes of the first version do not count: a table
    /// that was created manually may have others.
    pub(super) fn visible(&self, table: &Table, found: &Found) -> i64 {
        let is_complete = |(step, version): &(&Step, i64)| {
            self.missing(step, *version, table, found, &[]).is_empty()
        };
        self.steps.iter().zip(1..).take_while(is_complete).count() as i64
    }

    /// Returns the statements of a step that has no version, and whose effects are not there.
    pub(super) fn missing_of(step: &Step, table: &Table, found: &Found) -> Vec<String> {
        let mut statements = step.statements();
        statements.retain(|statement| !Effect::new(statement).is_there(table, found));
        statements
    }

    /// Returns the statements of a step whose effects are not there, or not after `earlier` statements.
    fn missing(
        &self,
        step: &Step,
        version: i64,
        table: &Table,
        found: &Found,
        earlier: &[Planned],
    ) -> Vec<String> {
        let mut statements = step.statements();
        if version == 1 {
            // All or nothing: a table with other columns is not an outbox table, and must not be changed.
            return match &self.origin {
                _ if self.has_first_columns(found) => Vec::new(),
                Some(origin) if origin.is_of(table, found) => origin.unfinished(table, found),
                _ => statements,
            };
        }
        let is_recorded = found.version.is_some_and(|recorded| recorded >= version);
        statements.retain(|statement| {
            let effect = Effect::new(statement);
            let is_undone = match effect {
                Effect::DropIndex(name) => {
                    let index = format!("{{index:{name}}}");
                    earlier.iter().any(|planned| planned.template.contains(&index))
                }
                _ => false,
            };
            let is_there = effect.is_there(table, found) && !is_undone;
            !is_there && (!is_recorded || effect.is_indispensable())
        });
        // If everything else has run, tables that this user may not see exist as well.
        let is_concealed = |statement: &String| match Effect::new(statement) {
            Effect::CreateBeside(name) => found.concealed.contains(name),
            _ => false,
        };
        if statements.iter().all(is_concealed) {
            return Vec::new();
        }
        statements
    }

    /// Returns what the database shows of a table of a version.
    pub(super) fn at(&self, table: &Table, version: i64) -> Found {
        let mut found =
            Found { version: Some(version), no_min_code: version < 2, ..Found::default() };
        found.columns.extend(self.first_columns().into_iter().map(str::to_owned));
        let steps = self.steps.iter().zip(1..).filter(|(_, of_step)| *of_step <= version);
        for statement in steps.flat_map(|(step, _)| step.statements()) {
            match Effect::new(&statement) {
                Effect::AddColumn(name) => drop(found.columns.insert(name.to_owned())),
                Effect::DropColumn(name) => drop(found.columns.remove(name)),
                Effect::CreateIndex(name) => drop(found.indexes.insert(table.derived(name))),
                Effect::DropIndex(name) => drop(found.indexes.remove(&table.derived(name))),
                Effect::CreateBeside(name) => drop(found.beside.insert(name)),
                Effect::CreateTable => found
                    .indexes
                    .extend(indexes(&statement).into_iter().map(|name| table.derived(name))),
                Effect::DropOldIndex | Effect::Unknown => {}
            }
        }
        found
    }

    /// Plans the statements that lead to the latest version.
    pub(super) fn plan(&self, table: &Table, found: &Found) -> Vec<Planned> {
        let versions = table.beside("outbox_schema");
        let is_adoptable = self.is_adoptable(table, found);
        let exists = is_adoptable || self.visible(table, found) > 0;
        let mut recorded = found.version;
        let mut planned = Vec::new();
        for (step, version) in self.steps.iter().zip(1..) {
            let is_recorded = recorded.is_some_and(|recorded| recorded >= version);
            let doing = match version {
                1 if is_adoptable => format!("adopting table `{table}`"),
                1 => format!("creating table `{table}` and its indexes"),
                _ => format!("running migration {version}"),
            };
            let statements = self.missing(step, version, table, found, &planned);
            planned.extend(statements.into_iter().map(|template| {
                let alters = exists && !matches!(Effect::new(&template), Effect::CreateBeside(_));
                Planned { doing: doing.clone(), template, alters }
            }));
            if is_recorded {
                continue;
            }
            planned.push(Planned {
                doing: format!("writing version {version} to table `{versions}`"),
                template: record(version, step.min_code, recorded.is_some()),
                alters: false,
            });
            recorded = Some(version);
        }
        if found.no_min_code && !planned.is_empty() {
            let doing = format!("adding the column `min_code` to table `{versions}`");
            let template = self.add_min_code.to_owned();
            planned.insert(0, Planned { doing, template, alters: false });
        }
        if found.no_versions && !planned.is_empty() {
            let doing = format!("creating table `{versions}`");
            let template = self.versions.to_owned();
            planned.insert(0, Planned { doing, template, alters: false });
        }
        planned
    }
}

/// Returns the template that records a version. Without `min_code` where that is 1, its default: this works on a
/// table of the versions without the column, too.
fn record(version: i64, min_code: i64, exists: bool) -> String {
    match (exists, min_code) {
        (true, 1) => {
            format!("UPDATE {{versions}} SET version = {version} WHERE table_name = '{{bare}}'")
        }
        (true, _) => format!(
            "UPDATE {{versions}} SET version = {version}, min_code = {min_code} WHERE table_name = '{{bare}}'"
        ),
        (false, 1) => {
            format!("INSERT INTO {{versions}} (version, table_name) VALUES ({version}, '{{bare}}')")
        }
        (false, _) => format!(
            "INSERT INTO {{versions}} (version, min_code, table_name) \
             VALUES ({version}, {min_code}, '{{bare}}')"
        ),
    }
}

/// Renders a plan as SQL to be run manually.
pub(super) fn print(dialect: &Dialect, table: &Table, planned: &[Planned]) -> String {
    let statements = planned.iter().map(|planned| render(dialect, table, &planned.template));
    let mut sql = statements.collect::<Vec<_>>().join(";\n\n");
    if !sql.is_empty() {
        sql.push_str(";\n");
    }
    sql
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
