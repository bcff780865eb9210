//! The application under test: a small shop whose listeners have scripted results. It runs on every database.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
use outbox::testing::{TestBuilder, TestOutbox};
use outbox::{
    AggregateType, EventType, ListenerError, Meta, Outcome, State, Tx, listener, testing,
};
use outbox_tests::{Fresh, TestDatabase};
use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr, Sqlite};

#[derive(AggregateType)]
pub(crate) struct Order;

#[derive(EventType, Clone)]
#[outbox(aggregate = Order)]
pub(crate) enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: i64,
        total_cents: u64,
    },
    Paid {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
    /// Its listener is transactional, on the database of the test.
    Shipped {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
    /// Its listener is transactional, on PostgreSQL only.
    Returned {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
    /// It has no listener, though it needs one.
    Lost,
    #[outbox(no_listener)]
    Archived,
}

pub(crate) const PAID: OrderEvent = OrderEvent::Paid { order_id: 7 };
pub(crate) const SHIPPED: OrderEvent = OrderEvent::Shipped { order_id: 7 };
pub(crate) const RETURNED: OrderEvent = OrderEvent::Returned { order_id: 7 };

/// A database for the shop.
pub(crate) trait Setup: Sized + Send + Sync + 'static {
    type DB: TestDatabase;

    /// Returns the builder of an outbox with the linked listeners.
    fn outbox(&self) -> TestBuilder<Self::DB>;

    /// Returns the builder of a shop with this printer.
    fn shop(&self, printer: &Printer) -> TestBuilder<Self::DB> {
        shop_on(self.outbox(), printer)
    }

    /// Starts a shop with this printer.
    async fn start(&self, printer: &Printer) -> TestOutbox<Self::DB> {
        self.shop(printer).start().await
    }

    /// Starts a shop with one committed event.
    async fn with_event(&self, printer: &Printer, event: OrderEvent) -> TestOutbox<Self::DB> {
        let outbox = self.start(printer).await;
        commit(&outbox, event).await.unwrap();
        outbox
    }
}

/// SQLite in memory, with one connection.
pub(crate) struct InMemory;

impl Setup for InMemory {
    type DB = Sqlite;

    fn outbox(&self) -> TestBuilder {
        testing::outbox()
    }
}

/// A fresh database with several connections.
impl<DB: TestDatabase> Setup for Fresh<DB> {
    type DB = DB;

    fn outbox(&self) -> TestBuilder<DB> {
        testing::outbox_on(self.pool.clone())
    }
}

/// Runs generic tests `async fn test(setup: impl Setup)` in memory and on every database.
macro_rules! on_every_setup {
    ($($test:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::shop::InMemory).await;
            })*
        }

        outbox_tests::on_every_database! { $($test),* }
    };
}

pub(crate) use on_every_setup;

/// The scripted answers of the listeners, and a record of their calls.
#[derive(Clone, Default)]
pub(crate) struct Printer {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    printed: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Fail,
    Permanent,
    Unreachable,
    Later(Duration),
    Panic,
}

impl Printer {
    /// Returns a printer with these answers in order, and `Ok` afterwards.
    pub(crate) fn with(answers: impl IntoIterator<Item = Answer>) -> Self {
        let printer = Self::default();
        printer.answers.lock().unwrap().extend(answers);
        printer
    }

    pub(crate) fn printed(&self) -> Vec<String> {
        self.printed.lock().unwrap().clone()
    }

    fn print(&self, text: String) -> outbox::ListenerResult<Outcome> {
        self.printed.lock().unwrap().push(text);
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            None => Ok(Outcome::Done),
            Some(Answer::Fail) => Err("the printer jams".into()),
            Some(Answer::Permanent) => Err(ListenerError::permanent("the printer burns")),
            Some(Answer::Unreachable) => Err(ListenerError::unreachable("the printer is gone")),
            Some(Answer::Later(delay)) => Ok(Outcome::RetryAfter(delay)),
            Some(Answer::Panic) => panic!("the printer explodes"),
        }
    }
}

/// A state that only the listener on PostgreSQL asks for, and that is given there only.
pub(crate) struct Refunds;

#[listener(event = OrderEvent::Placed)]
async fn confirm(
    placed: OrderEventPlaced,
    printer: State<Printer>,
) -> outbox::ListenerResult<Outcome> {
    printer.print(format!("placed {} for {}", placed.order_id, placed.total_cents))
}

#[listener(event = OrderEvent::Paid { order_id }, retry(max_attempts = 3, base = "10s", max = "1h"))]
async fn receipt(
    order_id: i64,
    printer: State<Printer>,
    meta: Meta,
) -> outbox::ListenerResult<Outcome> {
    let by = meta.headers().get("by").map(|by| format!(" by {by}")).unwrap_or_default();
    printer.print(format!("paid {order_id}{by}, {} failed", meta.attempts()))
}

#[listener(event = OrderEvent::Returned { order_id })]
async fn refund(
    order_id: i64,
    printer: State<Printer>,
    _refunds: State<Refunds>,
    tx: &mut Tx<Postgres>,
) -> outbox::ListenerResult<Outcome> {
    sqlx::query("DELETE FROM parcels WHERE order_id = $1")
        .bind(order_id)
        .execute(&mut **tx)
        .await?;
    printer.print(format!("returned {order_id}"))
}

/// Books a parcel in the transaction that settles its event. Not linked, because it is for any database.
async fn book<DB: TestDatabase>(
    delivery: Delivery,
    tx: &mut Tx<DB>,
) -> outbox::ListenerResult<Outcome> {
    let printer = delivery.state::<Printer>()?;
    let order_id = delivery.envelope().aggregate_id().unwrap_or_default().parse()?;
    let insert = AssertSqlSafe(format!("INSERT INTO parcels VALUES ({order_id})"));
    DB::run(tx, insert.into_sql_str()).await?;
    tx.write(OrderEvent::Paid { order_id })?;
    printer.print(format!("shipped {order_id}"))
}

/// Adds the listener for any database and the shop's table.
pub(crate) fn shop_on<DB: TestDatabase>(
    outbox: TestBuilder<DB>,
    printer: &Printer,
) -> TestBuilder<DB> {
    let listeners = ListenerRegistry::linked().register_in_tx(
        ListenerOptions::default(),
        "Order",
        "Shipped",
        |delivery, tx: &mut Tx<DB>| Box::pin(book(delivery, tx)),
    );
    let outbox = outbox.schema("CREATE TABLE parcels (order_id INTEGER)").listeners(listeners);
    let outbox = outbox.state(printer.clone());
    if DB::SHORT_NAME == "postgres" { outbox.state(Refunds) } else { outbox }
}

pub(crate) async fn commit<DB: TestDatabase>(
    outbox: &TestOutbox<DB>,
    event: OrderEvent,
) -> Result<(), outbox::Error> {
    let mut tx = outbox.begin().await?;
    tx.write(event)?;
    tx.commit().await
}

/// Runs a statement in a transaction.
pub(crate) async fn run<DB: TestDatabase>(tx: &mut Tx<DB>, sql: &'static str) {
    DB::run(tx, sql.into_sql_str()).await.unwrap();
}

/// Returns the number of parcels.
pub(crate) async fn parcels<DB: TestDatabase>(outbox: &TestOutbox<DB>) -> i64 {
    count(outbox, "SELECT COUNT(*) FROM parcels").await
}

/// Returns the number that a query selects.
pub(crate) async fn count<DB: TestDatabase>(outbox: &TestOutbox<DB>, sql: &'static str) -> i64 {
    let mut connection = outbox.pool().acquire().await.unwrap();
    let rows = DB::fetch(&mut connection, sql.into_sql_str(), vec![]).await.unwrap();
    DB::int(&rows[0], 0).unwrap().unwrap()
}
