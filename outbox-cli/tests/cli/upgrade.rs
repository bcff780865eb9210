//! `outbox migrate` on a table of an older schema version, or of another framework.

use outbox_runtime::store::{Table, adoption_sql, migration_sql_from};
use outbox_tests::{
    Fresh, JavaTable, TestDatabase, VersionOne, on_every_database, on_every_server,
};

use crate::program::Program;

async fn an_older_table_is_migrated<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    let program = Program::on(&db);
    let missing = migration_sql_from::<DB>(&Table::default(), 1);
    let check = program.run("migrate --check").await;
    assert_eq!(check.code, 3, "{check}");
    assert!(check.stdout.contains("table `outbox_event` has version 1: run `outbox migrate`"));
    assert!(check.stdout.trim_end().ends_with(missing.trim_end()), "{check}");
    let check = program.run("migrate --check --json").await;
    assert_eq!((check.code, check.json()["sql"].as_str()), (3, Some(missing.as_str())), "{check}");
    let printed = program.run("migrate --sql --from 1").await;
    assert_eq!((printed.code, printed.stdout.trim_end()), (0, missing.trim_end()), "{printed}");
    let list = program.run("list").await;
    assert_eq!(list.code, 1, "{list}");
    assert!(list.stderr.contains("has version 1, and this program needs 3"), "{list}");
    let doctor = program.run("doctor").await;
    assert!(doctor.code == 3 && doctor.stdout.contains("run `outbox migrate`"), "{doctor}");
    let migrate = program.run("migrate").await;
    assert_eq!(migrate.code, 0, "{migrate}");
    assert!(migrate.stdout.contains("migrated table `outbox_event`"), "{migrate}");
    assert_eq!(program.run("migrate --check").await.code, 0);
    assert_eq!(program.run("list").await.code, 0);
}

async fn a_newer_table_can_permit_this_program<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    db.run("UPDATE outbox_schema SET version = 7, min_code = 3").await;
    let program = Program::on(&db);
    for line in ["migrate --check", "migrate", "list", "doctor"] {
        let ran = program.run(line).await;
        assert_eq!(ran.code, 0, "{ran}");
    }
    let check = program.run("migrate --check --json").await.json();
    assert_eq!((&check["found"], &check["version"]), (&"newer".into(), &7.into()), "{check}");
}

on_every_database!(an_older_table_is_migrated, a_newer_table_can_permit_this_program);

async fn a_table_of_the_java_framework_is_adopted<DB: TestDatabase>(db: Fresh<DB>) {
    JavaTable::default().create(&db).await;
    JavaTable::default().insert(&db, "java-1").await;
    let program = Program::on(&db);
    let adopt = adoption_sql::<DB>(&Table::default());
    let check = program.run("migrate --check").await;
    assert_eq!(check.code, 3, "{check}");
    assert!(check.stdout.contains("is one of the original Java framework: switch the relay"));
    assert!(check.stdout.trim_end().ends_with(adopt.trim_end()), "{check}");
    let printed = program.run("migrate --sql --adopt").await;
    assert_eq!((printed.code, printed.stdout.trim_end()), (0, adopt.trim_end()), "{printed}");
    let list = program.run("list").await;
    assert!(list.code == 1 && list.stderr.contains("run `outbox migrate`"), "{list}");
    let doctor = program.run("doctor").await;
    assert!(doctor.code == 3 && doctor.stdout.contains("which adopts the table"), "{doctor}");
    let migrate = program.run("migrate").await;
    assert_eq!(migrate.code, 0, "{migrate}");
    assert!(migrate.stdout.contains("adopted table `outbox_event`"), "{migrate}");
    assert_eq!(program.run("migrate --check").await.code, 0);
    let list = program.run("list").await;
    assert!(list.code == 0 && list.stdout.contains("java-1"), "{list}");
    let doctor = program.run("doctor --overdue 1h").await;
    assert_eq!(doctor.code, 0, "{doctor}");
}

#[tokio::test]
async fn sqlite_has_no_table_of_the_java_framework() {
    let ran = Program::at("sqlite:missing.db").run("migrate --sql --adopt").await;
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("has no table on SQLite"), "{ran}");
}

mod server {
    use super::*;

    on_every_server!(a_table_of_the_java_framework_is_adopted);
}
