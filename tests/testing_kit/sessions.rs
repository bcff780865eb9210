//! Sessions that the application has set up in its own way.

use outbox::testing::outbox_on;
use outbox_tests::Fresh;
use sqlx::{Executor, MySql};

use crate::shop::{Printer, SHIPPED, commit, shop_on};

mod mysql {
    use super::*;

    /// Without a commit, the connections would go back to the pool with open transactions.
    #[tokio::test]
    async fn sessions_without_autocommit_are_left_without_a_transaction() {
        let Some(db) = Fresh::<MySql>::new().await else { return };
        let options = sqlx::mysql::MySqlPoolOptions::new().max_connections(2);
        let options = options.after_connect(|connection, _| {
            Box::pin(async move { connection.execute("SET autocommit = 0").await.map(drop) })
        });
        let options = options.connect_with((*db.pool.connect_options()).clone());
        let shop = shop_on(outbox_on(options.await.unwrap()), &Printer::default());
        let outbox = shop.start().await;
        commit(&outbox, SHIPPED).await.unwrap();
        assert_eq!(outbox.drain().await.delivered(), 2);
        let settled = "SELECT CAST(COUNT(*) AS SIGNED) FROM outbox_event WHERE status = 1";
        assert_eq!(db.number(settled).await, 2, "seen by another connection");
        assert_eq!(db.number("SELECT COUNT(*) FROM parcels").await, 1);
        outbox.clear().await;
        assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event").await, 0);
    }
}
