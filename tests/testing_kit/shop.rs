//! The application under test: a small shop whose listeners have scripted results.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::testing::{TestBuilder, TestOutbox};
use outbox::{
    AggregateType, EventType, ListenerError, Meta, Outcome, State, Tx, listener, testing,
};
use sqlx::Sqlite;

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
    /// Its listener is transactional.
    Shipped {
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

    fn print(&self, text: String) -> outbox::Result<Outcome> {
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

#[listener(event = OrderEvent::Placed)]
async fn confirm(placed: OrderEventPlaced, printer: State<Printer>) -> outbox::Result<Outcome> {
    printer.print(format!("placed {} for {}", placed.order_id, placed.total_cents))
}

#[listener(event = OrderEvent::Paid { order_id }, retry(max_attempts = 3, base = "10s", max = "1h"))]
async fn receipt(order_id: i64, printer: State<Printer>, meta: Meta) -> outbox::Result<Outcome> {
    let by = meta.headers().get("by").map(|by| format!(" by {by}")).unwrap_or_default();
    printer.print(format!("paid {order_id}{by}, {} failed", meta.attempts()))
}

#[listener(event = OrderEvent::Shipped { order_id })]
async fn book(
    order_id: i64,
    printer: State<Printer>,
    tx: &mut Tx<Sqlite>,
) -> outbox::Result<Outcome> {
    sqlx::query("INSERT INTO parcels VALUES (?)").bind(order_id).execute(&mut **tx).await?;
    tx.write(OrderEvent::Paid { order_id })?;
    printer.print(format!("shipped {order_id}"))
}

/// Returns the builder of a shop with this printer.
pub(crate) fn shop(printer: &Printer) -> TestBuilder {
    testing::outbox().schema("CREATE TABLE parcels (order_id INTEGER)").state(printer.clone())
}

/// Starts a shop with one committed event.
pub(crate) async fn with_event(printer: &Printer, event: OrderEvent) -> TestOutbox {
    let outbox = shop(printer).start().await;
    commit(&outbox, event).await.unwrap();
    outbox
}

pub(crate) async fn commit(outbox: &TestOutbox, event: OrderEvent) -> Result<(), outbox::Error> {
    let mut tx = outbox.begin().await?;
    tx.write(event)?;
    tx.commit().await
}

pub(crate) async fn parcels(outbox: &TestOutbox) -> i64 {
    sqlx::query_scalar("SELECT COUNT(*) FROM parcels").fetch_one(outbox.pool()).await.unwrap()
}
