//! The statements of the migrations as text, for a user with more privileges than the application's.

use super::order;
use super::origin::Origin;
use super::plan::{self, Found};
use crate::store::{Backend, Table};

/// Returns the SQL that creates the table and its indexes, to be run manually.
///
/// Use it where the application's user may not create tables: add the output to the migrations of the application, or
/// give it to a database administrator. It also records the schema version in the table `outbox_schema`.
///
/// ```
/// use outbox::admin::{Table, migration_sql};
///
/// let sql = migration_sql::<sqlx::Postgres>(&Table::default());
/// assert!(sql.contains(r#"CREATE TABLE "outbox_event""#));
/// ```
pub fn migration_sql<DB: Backend>(table: &Table) -> String {
    let planned =
        DB::DIALECT.migrations.plan(table, &Found { no_versions: true, ..Found::default() });
    plan::print(DB::DIALECT, table, &planned)
}

/// Returns the SQL that creates the table and its indexes for an ordered outbox, to be run manually.
///
/// It is the SQL of [`migration_sql`] with an additional index; see [`migrate_ordered`](crate::store::migrate_ordered).
pub fn migration_sql_ordered<DB: Backend>(table: &Table) -> String {
    let found = Found { no_versions: true, no_record: true, ..Found::default() };
    let mut planned = DB::DIALECT.migrations.plan(table, &found);
    planned.extend(order::plan(DB::DIALECT, table, &found));
    plan::print(DB::DIALECT, table, &planned)
}

/// Returns the SQL that migrates the table from a version to the latest, to be run manually. Empty if the version is
/// the latest; the SQL of [`migration_sql`] if it is below 1.
///
/// [`Admin::schema_state`](crate::Admin::schema_state) returns the statements that an existing table needs.
pub fn migration_sql_from<DB: Backend>(table: &Table, version: i64) -> String {
    if version < 1 {
        return migration_sql::<DB>(table);
    }
    let migrations = &DB::DIALECT.migrations;
    let planned = migrations.plan(table, &migrations.at(table, version));
    plan::print(DB::DIALECT, table, &planned)
}

/// Returns the SQL that makes a table of the original Java framework into an outbox table of the latest version, to be
/// run manually. It keeps all rows. Empty on SQLite, for which that framework has no table.
///
/// Run it in one transaction on PostgreSQL, and in one session on MySQL and MariaDB.
/// [`Admin::schema_state`](crate::Admin::schema_state) returns the statements that an existing table needs.
///
/// ```
/// use outbox::admin::{Table, adoption_sql};
///
/// let sql = adoption_sql::<sqlx::Postgres>(&Table::default());
/// assert!(sql.contains(r#"ALTER TABLE "outbox_event" ADD COLUMN sequence"#));
/// ```
pub fn adoption_sql<DB: Backend>(table: &Table) -> String {
    let migrations = &DB::DIALECT.migrations;
    let found = Origin::untouched();
    if !migrations.is_adoptable(table, &found) {
        return String::new();
    }
    plan::print(DB::DIALECT, table, &migrations.plan(table, &found))
}
