use std::time::Duration;

use outbox::EventEnvelope;
use outbox::event::Status;
use outbox_runtime::event::Recipient;
use outbox_runtime::store::{InitialState, Inserted, Lease, NewRow, Store};

use crate::{Fresh, TestDatabase};

/// Returns an event of aggregate `Order`.
pub fn event(event_type: &str) -> EventEnvelope {
    EventEnvelope::builder(event_type)
        .aggregate_type("Order")
        .aggregate_id("7")
        .payload_json(r#"{"b": 1,  "a": 1.50}"#)
        .build()
        .expect("a valid event")
}

/// Returns an event of an `Order` with this aggregate id.
pub fn numbered(event_type: &str, number: u64) -> EventEnvelope {
    EventEnvelope::builder(event_type)
        .aggregate_type("Order")
        .aggregate_id(number.to_string())
        .payload_json("{}")
        .build()
        .expect("a valid event")
}

/// Returns a lease of 30 seconds.
pub fn lease(owner: &str) -> Lease<'_> {
    Lease { owner, length: Duration::from_secs(30) }
}

/// The delivery state of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The status.
    pub status: Status,
    /// Number of failed attempts.
    pub attempts: i64,
    /// The claim token.
    pub token: i64,
    /// Number of lost owners.
    pub takeovers: i64,
    /// The owner, if it is claimed.
    pub locked_by: Option<String>,
    /// The last error.
    pub last_error: Option<String>,
    /// Whether `done_at` is set.
    pub ended: bool,
}

/// Reads and changes the rows of a table directly, not through the store.
pub trait TestTable<DB: TestDatabase> {
    /// Returns the state of a row.
    fn row(&self, sequence: i64) -> impl Future<Output = Row> + Send;

    /// Returns the number of rows.
    fn count(&self) -> impl Future<Output = i64> + Send;

    /// Moves all times of the table into the past, as if time had passed.
    fn age(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Inserts events as due rows.
    fn insert_due(&self, events: &[EventEnvelope]) -> impl Future<Output = Vec<Inserted>> + Send;
}

impl<DB: TestDatabase> TestTable<DB> for (&Fresh<DB>, &Store<DB>) {
    async fn row(&self, sequence: i64) -> Row {
        let (db, store) = self;
        let table = store.table();
        let number = async |column: &str| {
            db.number(format!("SELECT {column} FROM {table} WHERE sequence = {sequence}")).await
        };
        let text = async |column: &str| {
            let mut connection = db.pool.acquire().await.expect("a connection");
            let sql = format!("SELECT {column} FROM {table} WHERE sequence = {sequence}");
            let sql = sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe(sql));
            let rows = DB::fetch(&mut connection, sql, vec![]).await.expect("the SQL is right");
            DB::text(&rows[0], 0).expect("a text")
        };
        // Cast to 64 bits, whatever type the column has.
        let wide = |column: &str| format!("CAST({column} AS {})", DB::WIDE);
        Row {
            status: Status::from_code(
                i16::try_from(number(&wide("status")).await).expect("a small number"),
            )
            .expect("a status"),
            attempts: number(&wide("attempts")).await,
            token: number(&wide("claim_token")).await,
            takeovers: number(&wide("takeovers")).await,
            locked_by: text("locked_by").await,
            last_error: text("last_error").await,
            ended: number(&wide("CASE WHEN done_at IS NULL THEN 0 ELSE 1 END")).await == 1,
        }
    }

    async fn count(&self) -> i64 {
        let (db, store) = self;
        db.number(format!("SELECT COUNT(*) FROM {}", store.table())).await
    }

    async fn age(&self, by: Duration) {
        let (db, store) = self;
        let sql = DB::AGE
            .replace("{table}", &store.table().to_string())
            .replace("{micros}", &by.as_micros().to_string());
        db.run(sql).await;
    }

    async fn insert_due(&self, events: &[EventEnvelope]) -> Vec<Inserted> {
        let (db, store) = self;
        let mut connection = db.pool.acquire().await.expect("a connection");
        let rows: Vec<NewRow<'_>> = events
            .iter()
            .map(|envelope| NewRow {
                envelope,
                state: InitialState::Due,
                recipient: &Recipient::Unnamed,
            })
            .collect();
        store.insert(&mut connection, &rows).await.expect("they are inserted")
    }
}
