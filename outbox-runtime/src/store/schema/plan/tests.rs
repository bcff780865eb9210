use super::*;
use crate::store::sqlite;

const MIGRATIONS: &Migrations = &sqlite::DIALECT.migrations;

/// The first two steps, which are about columns.
const COLUMNS: Migrations = Migrations {
    steps: &[
        Step { sql: include_str!("../sqlite/0001_create.sql"), min_code: 1 },
        Step { sql: include_str!("../sqlite/0002_subscription.sql"), min_code: 1 },
    ],
    ..sqlite::DIALECT.migrations
};

/// The first two steps, and then two that are only about indexes.
const WITH_INDEXES: Migrations = Migrations {
    steps: &[
        Step { sql: include_str!("../sqlite/0001_create.sql"), min_code: 1 },
        Step { sql: include_str!("../sqlite/0002_subscription.sql"), min_code: 1 },
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
    let mut found = COLUMNS.at(&table, 1);
    found.no_min_code = false;
    found.columns.insert("subscription".to_owned());
    found.columns.insert("history".to_owned());
    let expected = "ALTER TABLE {table} ADD COLUMN version INTEGER NOT NULL DEFAULT 1";
    assert_eq!(templates(&COLUMNS, &found), [expected.to_owned(), set(2)]);
    found.columns.insert("version".to_owned());
    assert_eq!(templates(&COLUMNS, &found), [set(2)], "only the version is not recorded");
}

#[test]
fn a_step_that_is_only_about_indexes_is_recognised() {
    let table = Table::default();
    let mut found = WITH_INDEXES.at(&table, 2);
    let create = "CREATE INDEX {index:tenant} ON {name} (tenant_id)".to_owned();
    let remove = "DROP INDEX {index:purge}".to_owned();
    let last = record(4, 3, true);
    assert_eq!(templates(&WITH_INDEXES, &found), [create, set(3), remove.clone(), last.clone()]);
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
    let mut found = COLUMNS.at(&table, 2);
    found.columns.remove("history");
    assert_eq!(templates(&COLUMNS, &found), ["ALTER TABLE {table} ADD COLUMN history TEXT"]);
    assert_eq!(COLUMNS.visible(&table, &found), 1);
}

/// Returns the first words of each statement.
fn beginnings(migrations: &Migrations, found: &Found) -> Vec<String> {
    let words =
        |template: String| template.split_whitespace().take(6).collect::<Vec<_>>().join(" ");
    templates(migrations, found).into_iter().map(words).collect()
}

const SUBSCRIPTIONS: &str = "CREATE TABLE IF NOT EXISTS {subscriptions}";
const NODES: &str = "CREATE TABLE IF NOT EXISTS {nodes}";
const UNIQUE: &str = "CREATE UNIQUE INDEX {index:subscription} ON {name}";
const DROP: &str = "DROP INDEX {schema}{index:event_id}";

#[test]
fn tables_beside_are_created_once_for_all_outboxes() {
    let table = Table::default();
    let mut found = MIGRATIONS.at(&table, 2);
    let version = "UPDATE {versions} SET version = 3,";
    assert_eq!(beginnings(MIGRATIONS, &found), [SUBSCRIPTIONS, NODES, UNIQUE, DROP, version]);
    found.beside.extend(["outbox_subscription", "outbox_node"]);
    assert_eq!(beginnings(MIGRATIONS, &found), [UNIQUE, DROP, version]);
    found.indexes.insert(table.derived("subscription"));
    assert_eq!(beginnings(MIGRATIONS, &found), [DROP, version]);
    found.indexes.remove(&table.derived("event_id"));
    assert_eq!(beginnings(MIGRATIONS, &found), [version]);
    assert_eq!(MIGRATIONS.visible(&table, &found), 3);
}

#[test]
fn a_table_beside_that_is_missing_is_created_whatever_is_recorded() {
    let table = Table::default();
    let mut found = MIGRATIONS.at(&table, 3);
    found.beside.remove("outbox_node");
    assert_eq!(beginnings(MIGRATIONS, &found), [NODES]);
    assert_eq!(MIGRATIONS.visible(&table, &found), 2);
}

#[test]
fn tables_that_a_user_may_not_see_exist_if_the_rest_of_their_step_has_run() {
    let table = Table::default();
    let mut found = MIGRATIONS.at(&table, 3);
    found.version = None;
    found.concealed = std::mem::take(&mut found.beside);
    assert_eq!(MIGRATIONS.visible(&table, &found), 3);
    found.indexes.insert(table.derived("event_id"));
    assert_eq!(MIGRATIONS.visible(&table, &found), 2);
    assert!(beginnings(MIGRATIONS, &found).contains(&SUBSCRIPTIONS.to_owned()));
}

/// The first step creates the index that a later one drops.
#[test]
fn a_new_table_loses_the_index_that_a_later_step_replaces() {
    let found = Found { no_versions: true, ..Found::default() };
    let all: &[&Migrations] = &[
        MIGRATIONS,
        #[cfg(feature = "postgres")]
        &crate::store::postgres::DIALECT.migrations,
        #[cfg(feature = "mysql")]
        &crate::store::mysql::DIALECT.migrations,
    ];
    for migrations in all {
        let (new, old) = (templates(migrations, &found), migrations.at(&Table::default(), 2));
        let drops = |templates: &[String]| {
            templates.iter().filter(|sql| sql.starts_with("DROP INDEX")).count()
        };
        assert_eq!(drops(&new), 1, "{new:?}");
        assert_eq!(drops(&templates(migrations, &old)), 1);
    }
}

#[test]
fn a_table_that_is_not_an_outbox_is_not_changed() {
    let found = Found { columns: HashSet::from(["event_id".to_owned()]), ..Found::default() };
    let planned = templates(MIGRATIONS, &found);
    assert!(planned[0].starts_with("CREATE TABLE {table}"), "it fails: {planned:?}");
}
