use std::io;
use std::sync::Arc;

/// Sends a mail to whoever placed an order.
pub(crate) trait Mail: Send + Sync {
    fn send(&self, order_id: i64, text: &str) -> io::Result<()>;
}

/// What listeners ask for.
pub(crate) struct Mailer(pub(crate) Arc<dyn Mail>);

/// Prints what a shop would send.
pub(crate) struct Printer;

impl Mail for Printer {
    fn send(&self, order_id: i64, text: &str) -> io::Result<()> {
        println!("to the customer of order {order_id}: {text}");
        Ok(())
    }
}
