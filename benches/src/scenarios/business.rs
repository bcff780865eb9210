//! What one event adds to a transaction that changes a row of the application.

use std::time::Duration;

use outbox::Outbox;
use outbox::config::Mode;
use sqlx::{PgConnection, PgPool, Postgres};

use crate::Result;
use crate::bench::Bench;
use crate::database::{BenchDatabase, Fresh};
use crate::event::{RawRow, order_placed};
use crate::load::closed_loop;
use crate::report::Figure;

const TASKS: usize = 16;
const ACCOUNTS: u64 = 10_000;
const SLICE: Duration = Duration::from_millis(150);

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let (mut alone, mut raw, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        let fresh = Fresh::<Postgres>::create(TASKS).await?;
        fresh
            .execute(
                "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL); \
                 INSERT INTO account SELECT i, 0 FROM generate_series(0, 9999) AS i",
            )
            .await?;
        fresh.execute("VACUUM (ANALYZE) account").await?;
        let outbox = outbox::builder(fresh.pool.clone()).mode(Mode::WriterOnly).start().await?;
        with_outbox(&outbox).await?;
        let slices = bench.size.pick(4, 6, 20);
        let mut sums = [0.0; 3];
        for _ in 0..slices {
            sums[0] += without_event(&fresh.pool).await?;
            sums[1] += with_insert(&fresh.pool).await?;
            sums[2] += with_outbox(&outbox).await?;
        }
        for (rates, sum) in [&mut alone, &mut raw, &mut ours].into_iter().zip(sums) {
            rates.push(sum / f64::from(slices));
        }
        outbox.shutdown().await?;
        fresh.remove().await?;
        bench.step(format!("round {}", round + 1));
    }
    let unit = "commits/s";
    bench.add(Figure::rate("UPDATE and event, of UPDATE and INSERT", &ours, &raw).unit(unit));
    bench.add(Figure::rate("UPDATE and event, of UPDATE alone", &ours, &alone).unit(unit));
    bench.add(Figure::rate("UPDATE and INSERT, of UPDATE alone", &raw, &alone).unit(unit));
    Ok(())
}

async fn without_event(pool: &PgPool) -> Result<f64> {
    let pool = pool.clone();
    closed_loop(TASKS, SLICE, move |number| {
        let pool = pool.clone();
        async move {
            let mut tx = pool.begin().await?;
            pay(&mut tx, number).await?;
            Ok(tx.commit().await?)
        }
    })
    .await
}

async fn with_insert(pool: &PgPool) -> Result<f64> {
    let pool = pool.clone();
    closed_loop(TASKS, SLICE, move |number| {
        let pool = pool.clone();
        async move {
            let mut tx = pool.begin().await?;
            pay(&mut tx, number).await?;
            Postgres::raw_insert(&mut tx, vec![RawRow::typed(number)?]).await?;
            Ok(tx.commit().await?)
        }
    })
    .await
}

async fn with_outbox(outbox: &Outbox<Postgres>) -> Result<f64> {
    let outbox = outbox.clone();
    closed_loop(TASKS, SLICE, move |number| {
        let outbox = outbox.clone();
        async move {
            let mut tx = outbox.begin().await?;
            pay(&mut tx, number).await?;
            tx.write(order_placed(number))?;
            Ok(tx.commit().await?)
        }
    })
    .await
}

/// The work of the application. The tasks change different rows, because the first digits of the number are the task's.
async fn pay(connection: &mut PgConnection, number: u64) -> Result {
    let account = (number / 1_000_000 * (ACCOUNTS / TASKS as u64) + number % 600) % ACCOUNTS;
    sqlx::query("UPDATE account SET balance = balance + 1 WHERE id = $1")
        .bind(i64::try_from(account)?)
        .execute(connection)
        .await?;
    Ok(())
}
