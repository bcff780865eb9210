use std::time::Duration;

use outbox::{EventEnvelope, Status};
use outbox_runtime::store::{Inserted, Lease, NewRow, Seated, Store};

use crate::{Fresh, TestDatabase};

/// An event of aggregate `Order`.
pub fn event(event_type: &str) -> EventEnvelope {
    EventEnvelope::builder(event_type)
        .aggregate_type("Order")
        .aggregate_id("7")
        .payload_json(r#"{"b": 1,  "a": 1.50}"#)
        .build()
        .expect("a good event")
}

/// An event of an `Order` with this number.
pub fn numbered(event_type: &str, number: u64) -> EventEnvelope {
    EventEnvelope::builder(event_type)
        .aggregate_type("Order")
        .aggregate_id(number.to_string())
        .payload_json("{}")
        .build()
        .expect("a good event")
}

/// A lease of half a minute.
pub fn lease(owner: &str) -> Lease<'_> {
    Lease { owner, length: Duration::from_secs(30) }
}

/// What a row says of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its status.
    pub status: Status,
    /// How many attempts have failed.
    pub attempts: i64,
    /// Its token.
    pub token: i64,
    /// How many owners were lost.
    pub takeovers: i64,
    /// Who has it.
    pub locked_by: Option<String>,
    /// Why it failed.
    pub last_error: Option<String>,
    /// Whether it has an end.
    pub ended: bool,
}

/// Looking at rows, and changing them behind the store's back.
pub trait TestTable<DB: TestDatabase> {
    /// A row's state.
    fn row(&self, sequence: i64) -> impl Future<Output = Row> + Send;

    /// How many rows there are.
    fn count(&self) -> impl Future<Output = i64> + Send;

    /// Lets time pass.
    fn age(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Inserts events that are due.
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
        // Every database multiplies into 64 bits.
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
        let rows: Vec<NewRow<'_>> =
            events.iter().map(|envelope| NewRow { envelope, seated: Seated::No }).collect();
        store.insert(&mut connection, &rows).await.expect("they are inserted")
    }
}
