//! The mail server of the shop.

use std::io;
use std::sync::Arc;

/// Sends a mail to the customer of an order.
pub(crate) trait Mail: Send + Sync {
    fn send(&self, order_id: i64, text: &str) -> io::Result<()>;
}

/// The state that listeners take.
pub(crate) struct Mailer(pub(crate) Arc<dyn Mail>);

/// Prints mails instead of sending them.
pub(crate) struct Printer;

impl Mail for Printer {
    fn send(&self, order_id: i64, text: &str) -> io::Result<()> {
        println!("to the customer of order {order_id}: {text}");
        Ok(())
    }
}
