use crate::{Fresh, TestDatabase};

/// The outbox table as programs of schema version 1 created and used it.
#[derive(Debug)]
pub struct VersionOne;

impl VersionOne {
    /// Creates the default table with the first migration only, and records version 1.
    pub async fn create<DB: TestDatabase>(db: &Fresh<DB>) {
        Self::create_table(db).await;
        db.run(
            "CREATE TABLE outbox_schema (table_name VARCHAR(63) PRIMARY KEY, version INT NOT NULL)",
        )
        .await;
        db.run("INSERT INTO outbox_schema (version, table_name) VALUES (1, 'outbox_event')").await;
    }

    /// Creates the default table with the first migration only, and records no version.
    pub async fn create_table<DB: TestDatabase>(db: &Fresh<DB>) {
        let template = match DB::SHORT_NAME {
            "postgres" => {
                include_str!("../../outbox-runtime/src/store/schema/postgres/0001_create.sql")
            }
            "mysql" => include_str!("../../outbox-runtime/src/store/schema/mysql/0001_create.sql"),
            _ => include_str!("../../outbox-runtime/src/store/schema/sqlite/0001_create.sql"),
        };
        let sql = template.replace("{table}", "outbox_event").replace("{name}", "outbox_event");
        db.run(sql.replace("{index:", "outbox_event_").replace('}', "")).await;
    }

    /// Inserts a due event as a program in another language does: with the columns of version 1.
    pub async fn insert<DB: TestDatabase>(db: &Fresh<DB>, event_id: &str) -> sqlx::Result<()> {
        Self::insert_or(db, event_id, "").await
    }

    /// Inserts a due event with the statement of programs of schema versions 1 and 2.
    pub async fn insert_as_program<DB: TestDatabase>(
        db: &Fresh<DB>,
        event_id: &str,
    ) -> sqlx::Result<()> {
        let on_conflict = match DB::SHORT_NAME {
            "mysql" => "",
            _ => " ON CONFLICT (event_id) DO NOTHING",
        };
        Self::insert_or(db, event_id, on_conflict).await
    }

    async fn insert_or<DB: TestDatabase>(
        db: &Fresh<DB>,
        event_id: &str,
        on_conflict: &str,
    ) -> sqlx::Result<()> {
        let now = DB::NOW;
        db.try_run(format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
                headers, created_at, available_at, locked_by, locked_at, claim_token, status, attempts) \
             VALUES ('{event_id}', 'A', 'Order', NULL, NULL, '{{}}', NULL, {now}, {now}, NULL, NULL, 0, 0, 0)\
             {on_conflict}"
        ))
        .await
    }
}
