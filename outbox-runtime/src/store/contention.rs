//! Retries of statements that fail because of concurrent transactions.

use std::time::Duration;

use super::DatabaseErrorKind;
use crate::Error;

/// The maximum number of tries.
const TRIES: u32 = 8;

/// Counts the tries of one operation.
pub(super) struct Contention {
    doing: &'static str,
    tries: u32,
}

impl Contention {
    pub(super) fn new(doing: &'static str) -> Self {
        Self { doing, tries: 1 }
    }

    /// Waits for a few milliseconds after a deadlock or a lock time-out, before the next try.
    ///
    /// # Errors
    /// Returns any other error, and that of the last try.
    pub(super) async fn wait(&mut self, error: sqlx::Error) -> Result<(), Error> {
        let is_contention = DatabaseErrorKind::from_error(&error).is_contention();
        if !is_contention || self.tries >= TRIES {
            return Err(Error::database(self.doing)(error));
        }
        let pause = u64::from(self.tries) * 2 + rand::random_range(0..8);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        self.tries += 1;
        Ok(())
    }
}

/// Evaluates an expression again while it fails because of concurrent transactions.
///
/// It is not a function with an async closure, because the compiler cannot prove the future of one to be `Send`.
macro_rules! retrying {
    ($doing:expr, $attempt:expr) => {{
        let mut contention = $crate::store::contention::Contention::new($doing);
        loop {
            match $attempt {
                Ok(value) => break Ok::<_, $crate::Error>(value),
                Err(error) => contention.wait(error).await?,
            }
        }
    }};
}

pub(super) use retrying;
