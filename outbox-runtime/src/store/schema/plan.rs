//! The embedded migrations, and the statements of them that a table still needs.
//!
//! Every statement has one effect that the catalog shows: a table, a column or an index is there, or is not. So a
//! table without a recorded version can be placed between the migrations, and a step that failed half-way (on
//! MySQL, where DDL is not transactional) is completed. What `migrate` runs and what is printed for a user with
//! more privileges is the same plan.

use std::collections::HashSet;

use super::super::Table;
use super::super::dialect::Dialect;
use super::render;
use crate::store::columns::NAMES;

/// The embedded migrations of a database. They are numbered and only go forward.
#[derive(Debug)]
pub(in crate::store) struct Migrations {
    /// The steps; the first leads to version 1.
    pub(in crate::store) steps: &'static [Step],
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
        let lines = self.sql.lines().filter(|line| !line.trim_start().starts_with("--"));
        let sql = lines.collect::<Vec<_>>().join("\n");
        let statements = sql.split(';').map(str::trim).filter(|statement| !statement.is_empty());
        statements.map(str::to_owned).collect()
    }
}

/// The effect of a statement, as the catalog shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect<'a> {
    CreateTable,
    AddColumn(&'a str),
    DropColumn(&'a str),
    CreateIndex(&'a str),
    DropIndex(&'a str),
    /// The catalog does not show whether the statement has run, so it must be possible to run it twice.
    Unknown,
}

impl<'a> Effect<'a> {
    fn new(statement: &'a str) -> Self {
        let index = |word: &'a str| {
            let index = word.strip_prefix("{index:").and_then(|word| word.strip_suffix('}'));
            index.unwrap_or_default()
        };
        let words: Vec<&str> = statement.split_whitespace().take(6).collect();
        match words.as_slice() {
            ["CREATE", "TABLE", "{table}", ..] => Self::CreateTable,
            ["ALTER", "TABLE", "{table}", "ADD", "COLUMN", name, ..] => Self::AddColumn(name),
            ["ALTER", "TABLE", "{table}", "DROP", "COLUMN", name, ..] => Self::DropColumn(name),
            ["CREATE", "INDEX", name, ..] | ["CREATE", "UNIQUE", "INDEX", name, ..] => {
                Self::CreateIndex(index(name))
            }
            ["DROP", "INDEX", name, ..] => Self::DropIndex(index(name)),
            _ => Self::Unknown,
        }
    }

    fn is_about_columns(self) -> bool {
        matches!(self, Self::CreateTable | Self::AddColumn(_) | Self::DropColumn(_))
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
    /// The columns of the table.
    pub(super) columns: HashSet<String>,
    /// The indexes of the table.
    pub(super) indexes: HashSet<String>,
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

    /// Returns the latest version whose effects are all there. Indexes of the first version do not count: a table
    /// that was created manually may have others.
    pub(super) fn visible(&self, table: &Table, found: &Found) -> i64 {
        let is_complete =
            |(step, version): &(&Step, i64)| self.missing(step, *version, table, found).is_empty();
        self.steps.iter().zip(1..).take_while(is_complete).count() as i64
    }

    /// Returns the statements of a step whose effects are not there.
    fn missing(&self, step: &Step, version: i64, table: &Table, found: &Found) -> Vec<String> {
        let is_there = |effect: Effect<'_>| match effect {
            Effect::CreateTable => {
                self.first_columns().iter().all(|column| found.columns.contains(*column))
            }
            Effect::AddColumn(name) => found.columns.contains(name),
            Effect::DropColumn(name) => !found.columns.contains(name),
            Effect::CreateIndex(name) => found.indexes.contains(&table.derived(name)),
            Effect::DropIndex(name) => !found.indexes.contains(&table.derived(name)),
            Effect::Unknown => false,
        };
        let mut statements = step.statements();
        if version == 1 {
            // All or nothing: a table with other columns is not an outbox table, and must not be changed.
            return if is_there(Effect::CreateTable) { Vec::new() } else { statements };
        }
        let is_recorded = found.version.is_some_and(|recorded| recorded >= version);
        statements.retain(|statement| {
            let effect = Effect::new(statement);
            // Where the step is recorded, only columns are compared: an index may have been replaced on purpose,
            // and `doctor` reports it.
            !is_there(effect) && (!is_recorded || effect.is_about_columns())
        });
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
                Effect::CreateTable | Effect::Unknown => {}
            }
        }
        found
    }

    /// Plans the statements that lead to the latest version.
    pub(super) fn plan(&self, table: &Table, found: &Found) -> Vec<Planned> {
        let versions = table.beside("outbox_schema");
        let exists = self.visible(table, found) > 0;
        let mut recorded = found.version;
        let mut planned = Vec::new();
        for (step, version) in self.steps.iter().zip(1..) {
            let is_recorded = recorded.is_some_and(|recorded| recorded >= version);
            let doing = match version {
                1 => format!("creating table `{table}` and its indexes"),
                _ => format!("running migration {version}"),
            };
            let statements = self.missing(step, version, table, found);
            planned.extend(statements.into_iter().map(|template| Planned {
                doing: doing.clone(),
                template,
                alters: exists,
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
mod tests {
    use super::*;
    use crate::store::sqlite;

    const MIGRATIONS: &Migrations = &sqlite::DIALECT.migrations;

    /// The real steps, and then two that are only about indexes.
    const WITH_INDEXES: Migrations = Migrations {
        steps: &[
            Step { sql: include_str!("sqlite/0001_create.sql"), min_code: 1 },
            Step { sql: include_str!("sqlite/0002_subscription.sql"), min_code: 1 },
            Step { sql: "CREATE INDEX {index:tenant} ON {name} (tenant_id);", min_code: 1 },
            Step { sql: "-- A comment; with a semicolon.\nDROP INDEX {index:purge};", min_code: 3 },
        ],
        ..sqlite::DIALECT.migrations
    };

    fn templates(migrations: &Migrations, found: &Found) -> Vec<String> {
        let planned = migrations.plan(&Table::default(), found);
        planned.into_iter().map(|planned| planned.template).collect()
    }

    fn set(version: i64) -> String {
        record(version, 1, true)
    }

    #[test]
    fn every_embedded_statement_has_a_known_effect() {
        let all: &[&Migrations] = &[
            MIGRATIONS,
            #[cfg(feature = "postgres")]
            &crate::store::postgres::DIALECT.migrations,
            #[cfg(feature = "mysql")]
            &crate::store::mysql::DIALECT.migrations,
        ];
        for migrations in all {
            for statement in migrations.steps.iter().flat_map(Step::statements) {
                assert_ne!(Effect::new(&statement), Effect::Unknown, "{statement}");
            }
            assert_eq!(migrations.latest(), MIGRATIONS.latest());
            assert_eq!(migrations.first_columns(), MIGRATIONS.first_columns());
            assert!(migrations.steps.is_sorted_by_key(|step| step.min_code));
        }
        assert_eq!(MIGRATIONS.first_columns().len() + 3, NAMES.len());
    }

    #[test]
    fn an_up_to_date_table_needs_nothing() {
        let table = Table::default();
        for migrations in [MIGRATIONS, &WITH_INDEXES] {
            let found = migrations.at(&table, migrations.latest());
            assert_eq!(migrations.plan(&table, &found), []);
            assert_eq!(migrations.visible(&table, &found), migrations.latest());
        }
    }

    #[test]
    fn a_step_that_failed_half_way_is_completed() {
        let table = Table::default();
        let mut found = MIGRATIONS.at(&table, 1);
        found.no_min_code = false;
        found.columns.insert("subscription".to_owned());
        found.columns.insert("history".to_owned());
        let expected = "ALTER TABLE {table} ADD COLUMN version INTEGER NOT NULL DEFAULT 1";
        assert_eq!(templates(MIGRATIONS, &found), [expected.to_owned(), set(2)]);
        found.columns.insert("version".to_owned());
        assert_eq!(templates(MIGRATIONS, &found), [set(2)], "only the version is not recorded");
    }

    #[test]
    fn a_step_that_is_only_about_indexes_is_recognised() {
        let table = Table::default();
        let mut found = WITH_INDEXES.at(&table, 2);
        let create = "CREATE INDEX {index:tenant} ON {name} (tenant_id)".to_owned();
        let remove = "DROP INDEX {index:purge}".to_owned();
        let last = record(4, 3, true);
        assert_eq!(
            templates(&WITH_INDEXES, &found),
            [create, set(3), remove.clone(), last.clone()]
        );
        found.indexes.insert(table.derived("tenant"));
        let expected = [set(3), remove, last.clone()];
        assert_eq!(templates(&WITH_INDEXES, &found), expected, "it has run");
        found.indexes.remove(&table.derived("purge"));
        assert_eq!(templates(&WITH_INDEXES, &found), [set(3), last]);
        // Without a recorded version, the indexes show it.
        found.version = None;
        assert_eq!(WITH_INDEXES.visible(&table, &found), 4);
        found.indexes.remove(&table.derived("tenant"));
        assert_eq!(WITH_INDEXES.visible(&table, &found), 2);
        // With one, it is believed.
        found.version = Some(4);
        assert_eq!(WITH_INDEXES.plan(&table, &found), []);
    }

    #[test]
    fn a_column_that_is_missing_is_added_whatever_is_recorded() {
        let table = Table::default();
        let mut found = MIGRATIONS.at(&table, 2);
        found.columns.remove("history");
        assert_eq!(templates(MIGRATIONS, &found), ["ALTER TABLE {table} ADD COLUMN history TEXT"]);
        assert_eq!(MIGRATIONS.visible(&table, &found), 1);
    }

    #[test]
    fn a_table_that_is_not_an_outbox_is_not_changed() {
        let found = Found { columns: HashSet::from(["event_id".to_owned()]), ..Found::default() };
        let planned = templates(MIGRATIONS, &found);
        assert!(planned[0].starts_with("CREATE TABLE {table}"), "it fails: {planned:?}");
    }
}
