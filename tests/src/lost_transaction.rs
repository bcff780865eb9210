use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, SqlSafeStr, Sqlite};

use crate::TestDatabase;

/// A database that can be made to end a transaction. Requires a table `business` with one column, its
/// primary key.
pub trait LoseTransaction: TestDatabase {
    /// Makes a statement on the connection fail so that the transaction is lost; returns that error.
    /// Callers with different numbers do not affect each other.
    fn lose(
        pool: &Pool<Self>,
        connection: &mut Self::Connection,
        number: u32,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;
}

async fn run<DB: TestDatabase>(connection: &mut DB::Connection, sql: String) -> sqlx::Result<()> {
    DB::run(connection, AssertSqlSafe(sql).into_sql_str()).await
}

impl LoseTransaction for Sqlite {
    async fn lose(
        _: &Pool<Self>,
        connection: &mut Self::Connection,
        number: u32,
    ) -> sqlx::Result<()> {
        let sql = format!("INSERT OR ROLLBACK INTO business VALUES ('{number}'), ('{number}')");
        run::<Self>(connection, sql).await
    }
}

impl LoseTransaction for Postgres {
    async fn lose(
        _: &Pool<Self>,
        connection: &mut Self::Connection,
        number: u32,
    ) -> sqlx::Result<()> {
        let sql = format!("INSERT INTO business VALUES ('{number}'), ('{number}')");
        run::<Self>(connection, sql).await
    }
}

impl LoseTransaction for MySql {
    /// Becomes the victim of a deadlock: it has changed fewer rows than the other transaction, so InnoDB
    /// rolls it back, whichever of the two waits last.
    #[expect(clippy::disallowed_methods, reason = "the task is awaited")]
    async fn lose(
        pool: &Pool<Self>,
        connection: &mut Self::Connection,
        number: u32,
    ) -> sqlx::Result<()> {
        let mut other = pool.acquire().await?;
        let create = "CREATE TABLE IF NOT EXISTS locks (id INT PRIMARY KEY, n INT)";
        run::<Self>(&mut other, create.to_owned()).await?;
        let [first, second, last] = [1, 2, 6].map(|row| number * 10 + row);
        let rows: Vec<String> = (first..=last).map(|row| format!("({row}, 0)")).collect();
        run::<Self>(&mut other, format!("REPLACE INTO locks VALUES {}", rows.join(", "))).await?;
        drop(other);
        let mut other = pool.begin().await?;
        let all_but_one = format!("id BETWEEN {second} AND {last}");
        let lock = |rows: &str| format!("UPDATE locks SET n = n + 1 WHERE {rows}");
        run::<Self>(&mut other, lock(&all_but_one)).await?;
        let only_one = format!("id = {first}");
        run::<Self>(connection, lock(&only_one)).await?;
        let wanted = lock(&only_one);
        let blocked = tokio::spawn(async move {
            // Waits until the deadlock is resolved.
            let waited = run::<Self>(&mut other, wanted).await;
            let _ = other.rollback().await;
            waited
        });
        let lost = run::<Self>(connection, lock(&format!("id = {second}"))).await;
        blocked.await.expect("no panic")?;
        lost
    }
}
