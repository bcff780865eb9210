//! Tables of another origin that can become outbox tables: what they are recognised by, and the statements.
//!
//! The statements lead to version 1, and the ordinary migrations continue from there. As those do, they show in the
//! catalog how far they came, so that an adoption that was interrupted is completed.

use std::collections::HashSet;

use super::Table;
use super::plan::{Effect, Found, statements};

/// A kind of table that another framework creates.
#[derive(Debug)]
pub(in crate::store) struct Origin {
    /// The statements that make such a table into one of version 1. A statement that the catalog does not show
    /// belongs to the next one that it shows, and must be possible to run twice until then.
    pub(in crate::store) sql: &'static str,
}

/// The columns of the table of the original Java framework: all of them are needed to recognise it, and its rows keep
/// them.
const COLUMNS: &[&str] = &[
    "event_id",
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "payload",
    "headers",
    "status",
    "attempts",
    "available_at",
    "created_at",
    "done_at",
    "last_error",
    "locked_by",
    "locked_at",
];

/// The index that the original Java framework creates beside its table.
pub(super) const OLD_INDEX: &str = "idx_status_available";

impl Origin {
    /// Returns whether a table has this origin. It may have more columns: those of an interrupted adoption, or of the
    /// application. With the effect of the last statement, it is an outbox table, even if it has lost a column since.
    pub(super) fn is_of(&self, table: &Table, found: &Found) -> bool {
        let statements = statements(self.sql);
        let is_adopted =
            statements.last().is_some_and(|last| Effect::new(last).is_there(table, found));
        !is_adopted && COLUMNS.iter().all(|column| found.columns.contains(*column))
    }

    /// Returns what the database shows of a table with this origin.
    pub(super) fn untouched() -> Found {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Found {
            no_versions: true,
            columns: owned(COLUMNS),
            indexes: HashSet::from([OLD_INDEX.to_owned()]),
            ..Found::default()
        }
    }

    /// Returns the statements that have not run yet.
    pub(super) fn unfinished(&self, table: &Table, found: &Found) -> Vec<String> {
        let mut is_needed = false;
        let mut unfinished = Vec::new();
        for statement in statements(self.sql).into_iter().rev() {
            match Effect::new(&statement) {
                Effect::Unknown => {}
                effect => is_needed = !effect.is_there(table, found),
            }
            if is_needed {
                unfinished.push(statement);
            }
        }
        unfinished.reverse();
        unfinished
    }
}

#[cfg(all(test, feature = "postgres", feature = "mysql"))]
mod tests {
    use super::*;
    use crate::store::schema::plan::{Migrations, indexes};
    use crate::store::{mysql, postgres};

    const POSTGRES: &Migrations = &postgres::DIALECT.migrations;
    const MYSQL: &Migrations = &mysql::DIALECT.migrations;

    fn templates(migrations: &Migrations, found: &Found) -> Vec<String> {
        let planned = migrations.plan(&Table::default(), found);
        planned.into_iter().map(|planned| planned.template).collect()
    }

    /// Runs the statements of a plan one by one on what the database shows, and checks that the rest of the plan is
    /// what is planned next.
    fn interrupt_after_each(migrations: &Migrations) {
        let mut found = Origin::untouched();
        found.no_versions = false;
        let table = Table::default();
        let mut plan = templates(migrations, &found);
        assert_eq!(migrations.visible(&table, &found), 0);
        while migrations.visible(&table, &found) == 0 {
            let statement = plan.remove(0);
            assert!(!statement.starts_with("CREATE TABLE"), "{statement}");
            for part in statement.split(",\n").map(str::trim) {
                let words: Vec<&str> = part.split_whitespace().collect();
                if let Some(place) = words.windows(2).position(|pair| pair == ["ADD", "COLUMN"]) {
                    found.columns.insert(words[place + 2].to_owned());
                }
                if part.starts_with("ADD UNIQUE KEY") {
                    found.indexes.extend(indexes(part).into_iter().map(|name| table.derived(name)));
                }
            }
            match Effect::new(&statement) {
                Effect::CreateIndex(name) => drop(found.indexes.insert(table.derived(name))),
                Effect::DropOldIndex => drop(found.indexes.remove(OLD_INDEX)),
                Effect::Unknown => continue,
                _ => {}
            }
            assert_eq!(templates(migrations, &found), plan, "after {statement}");
        }
        assert!(plan[0].starts_with("INSERT INTO {versions}"), "{plan:?}");
    }

    #[test]
    fn an_adoption_continues_where_it_was_interrupted() {
        interrupt_after_each(POSTGRES);
        interrupt_after_each(MYSQL);
    }

    #[test]
    fn another_table_is_not_adopted() {
        for column in COLUMNS {
            let mut found = Origin::untouched();
            found.columns.remove(*column);
            for migrations in [POSTGRES, MYSQL] {
                assert!(!migrations.is_adoptable(&Table::default(), &found), "without {column}");
            }
        }
    }

    #[test]
    fn an_outbox_table_that_has_lost_a_column_is_not_adopted() {
        let table = Table::default();
        for (migrations, last) in [(POSTGRES, "claim_token"), (MYSQL, "sequence")] {
            for lost in migrations.first_columns().into_iter().filter(|column| *column != last) {
                let mut found = migrations.at(&table, migrations.latest());
                found.columns.remove(lost);
                assert!(!migrations.is_adoptable(&table, &found), "without {lost}");
                assert_eq!(migrations.lacking(&table, &found), [lost]);
                assert_eq!(migrations.visible(&table, &found), 0, "without {lost}");
            }
        }
    }
}
