use crate::{Fresh, TestDatabase};

/// The outbox table as the original Java framework creates and writes it, on the databases that it supports.
#[derive(Debug, Clone, Copy)]
pub struct JavaTable<'a>(pub &'a str);

impl Default for JavaTable<'_> {
    fn default() -> Self {
        Self("outbox_event")
    }
}

impl JavaTable<'_> {
    /// Creates the table and its index.
    pub async fn create<DB: TestDatabase>(self, db: &Fresh<DB>) {
        let (json, small, time) = match DB::SHORT_NAME {
            "postgres" => ("JSONB", "SMALLINT", "TIMESTAMPTZ"),
            _ => ("JSON", "TINYINT", "DATETIME(6)"),
        };
        let table = self.0;
        db.run(format!(
            "CREATE TABLE {table} (
              event_id VARCHAR(36) PRIMARY KEY,
              event_type VARCHAR(128) NOT NULL,
              aggregate_type VARCHAR(64),
              aggregate_id VARCHAR(128),
              tenant_id VARCHAR(64),
              payload {json} NOT NULL,
              headers {json},
              status {small} NOT NULL,
              attempts INT NOT NULL DEFAULT 0,
              available_at {time} NOT NULL,
              created_at {time} NOT NULL,
              done_at {time},
              last_error TEXT,
              locked_by VARCHAR(128),
              locked_at {time}
            )"
        ))
        .await;
        db.run(format!(
            "CREATE INDEX idx_status_available ON {table}(status, available_at, created_at)"
        ))
        .await;
    }

    /// Inserts an event of type `A` of an order with the statement of the framework's writer.
    pub async fn insert<DB: TestDatabase>(self, db: &Fresh<DB>, event_id: &str) {
        let (table, now) = (self.0, DB::NOW);
        let json = if DB::SHORT_NAME == "postgres" { "::jsonb" } else { "" };
        db.run(format!(
            "INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, \
               tenant_id, payload, headers, status, attempts, available_at, created_at) \
             VALUES ('{event_id}', 'A', 'Order', '7', NULL, '{{\"order\": 7}}'{json}, \
               '{{\"source\": \"api\"}}'{json}, 0, 0, {now}, {now})"
        ))
        .await;
    }
}
