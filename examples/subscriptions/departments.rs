//! What the listeners talk to: the billing system, and a log of everything that was done.

use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

/// The state that listeners take. It prints each line.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: String) {
        println!("  {line}");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Returns the lines of one listener, without its name.
    #[cfg(test)]
    pub(crate) fn of(&self, listener: &str) -> Vec<String> {
        let prefix = format!("{listener}: ");
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
    }
}

/// The billing system, which does not respond to the first calls.
#[derive(Clone)]
pub(crate) struct Billing {
    failures_left: Arc<Mutex<u32>>,
}

#[derive(Debug, Error)]
#[error("the billing system does not respond")]
pub(crate) struct NoResponse;

impl Billing {
    pub(crate) fn failing(times: u32) -> Self {
        Self { failures_left: Arc::new(Mutex::new(times)) }
    }

    pub(crate) fn invoice(&self) -> Result<(), NoResponse> {
        let mut left = self.failures_left.lock().unwrap_or_else(PoisonError::into_inner);
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                Err(NoResponse)
            }
            None => Ok(()),
        }
    }
}
