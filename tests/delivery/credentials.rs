//! Credentials that change while an outbox runs.

use std::time::Duration;

use outbox_tests::{CallLog, Fresh, Proxy, TestDatabase, event, eventually, on_every_server};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};

use super::harness::{recording_listeners, with_status, write};

/// Creates a user with a password and all privileges, and returns the URL with this user.
pub(crate) async fn create_user<DB: TestDatabase>(db: &Fresh<DB>, url: &str, name: &str) -> String {
    let sql = match DB::SHORT_NAME {
        "postgres" => format!("CREATE ROLE {name} LOGIN SUPERUSER"),
        _ => {
            format!("CREATE USER {name}@'%' IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO {name}@'%'")
        }
    };
    db.run(sql).await;
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, server) = rest.rsplit_once('@').unwrap();
    format!("{scheme}://{name}:secret@{server}")
}

/// Drops a user; the server is shared with other tests.
pub(crate) async fn drop_user<DB: TestDatabase>(db: &Fresh<DB>, name: &str) {
    let mut admin = DB::Connection::connect_with(&db.pool.connect_options()).await.unwrap();
    let drop = match DB::SHORT_NAME {
        "postgres" => format!("DROP ROLE {name}"),
        _ => format!("DROP USER {name}@'%'"),
    };
    let _ = DB::run(&mut admin, AssertSqlSafe(drop).into_sql_str()).await;
}

/// Refuses new logins of a user and closes every connection, as when a token has expired and the server
/// fails over.
async fn expire<DB: TestDatabase>(db: &Fresh<DB>, name: &str, proxy: &Proxy) {
    let sql = match DB::SHORT_NAME {
        "postgres" => format!("ALTER ROLE {name} NOLOGIN"),
        _ => format!("ALTER USER {name}@'%' ACCOUNT LOCK"),
    };
    db.run(sql).await;
    proxy.cut();
}

async fn the_relay_uses_the_pools_new_credentials<DB: TestDatabase>(db: Fresh<DB>) {
    let proxy = Proxy::before(&db.url()).await;
    let [old, new] = ["old", "new"].map(|name| format!("{name}_{}", rand::random::<u32>()));
    let first = create_user(&db, proxy.url(), &old).await;
    let second = create_user(&db, proxy.url(), &new).await;
    let pool = PoolOptions::<DB>::new()
        .acquire_timeout(Duration::from_secs(5))
        .connect_with(DB::named(&first, db.name()))
        .await
        .unwrap();
    let received = CallLog::default();
    let builder = outbox::builder(pool.clone()).listeners(recording_listeners(&received));
    let outbox = builder.poll_interval(Duration::from_millis(100)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("the first is recorded", async || with_status(&db, 1).await == 1).await;

    pool.set_connect_options(DB::named(&second, db.name()));
    expire(&db, &old, &proxy).await;
    // Written by the pool with its new credentials.
    let mut written = false;
    while !written {
        let tx = outbox.begin().await;
        if let Ok(mut tx) = tx {
            tx.write(event("A")).unwrap();
            written = tx.commit().await.is_ok();
        }
    }
    received.wait_for(2).await;
    eventually("the relay records again", async || {
        with_status(&db, 1).await == db.number("SELECT COUNT(*) FROM outbox_event").await
    })
    .await;
    outbox.shutdown().await.unwrap();
    for name in [old, new] {
        drop_user(&db, &name).await;
    }
}

on_every_server!(the_relay_uses_the_pools_new_credentials);
