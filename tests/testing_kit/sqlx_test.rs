//! The kit in a `#[sqlx::test]`.

use std::process::Command;

use outbox_tests::given_url;
use sqlx::{PgPool, Postgres};

use crate::shop::{PAID, Printer, SHIPPED, commit, parcels, shop_on};

/// Tells this test that it has been started with `DATABASE_URL`.
const CHILD: &str = "OUTBOX_TEST_SQLX_TEST";

mod postgres {
    use super::*;

    /// `#[sqlx::test]` takes the URL of the server from `DATABASE_URL` only, which a test cannot set for its own
    /// process. So this one runs itself with it.
    #[test]
    #[expect(unnameable_test_items, reason = "the inner test is called by the outer one")]
    fn the_kit_works_in_a_sqlx_test() {
        #[sqlx::test(migrations = false)]
        async fn shipping_an_order_books_a_parcel(pool: PgPool) {
            assert_eq!(pool.options().get_max_connections(), 5);
            let printer = Printer::default();
            let outbox = shop_on(outbox::testing::outbox_on(pool), &printer).start().await;
            commit(&outbox, SHIPPED).await.unwrap();

            let mut tx = outbox.begin().await.unwrap();
            tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
            let report = outbox.drain().await;
            assert_eq!(report.delivered(), 2, "{report}");
            assert_eq!(parcels(&outbox).await, 1);
            tx.commit().await.unwrap();

            assert_eq!(outbox.drain().await.delivered(), 0);
            outbox.clock().advance(HOUR);
            assert_eq!(outbox.drain().await.delivered(), 1);
            assert_eq!(printer.printed(), ["shipped 7", "paid 7, 0 failed", "paid 7, 0 failed"]);
        }

        if std::env::var_os(CHILD).is_some() {
            return shipping_an_order_books_a_parcel();
        }
        let Some(url) = given_url::<Postgres>() else { return };
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "sqlx_test::postgres::the_kit_works_in_a_sqlx_test", "--nocapture"]);
        let output = test.env(CHILD, "1").env("DATABASE_URL", url).output().unwrap();
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        // Also at the end, when sqlx closes the pool and drops the database.
        assert!(!text.contains("held onto Pool"), "{text}");
    }
}

const HOUR: std::time::Duration = std::time::Duration::from_secs(3_600);
