use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// One writer at a time for each SQLite file, in the order of asking. SQLite itself would let them
/// poll for the lock, and the unlucky ones starve. Server databases need no gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Option<Arc<tokio::sync::Mutex<()>>>);

/// Held while writing.
#[derive(Debug)]
pub(crate) struct Pass {
    _guard: Option<OwnedMutexGuard<()>>,
}

type Gates = HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>;

impl Gate {
    pub(crate) fn of(file: Option<PathBuf>) -> Self {
        static GATES: LazyLock<Mutex<Gates>> = LazyLock::new(Mutex::default);
        let Some(file) = file else { return Self(None) };
        let file = file.canonicalize().unwrap_or(file);
        let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, gate| gate.strong_count() > 0);
        if let Some(gate) = gates.get(&file).and_then(Weak::upgrade) {
            return Self(Some(gate));
        }
        let gate = Arc::default();
        gates.insert(file, Arc::downgrade(&gate));
        Self(Some(gate))
    }

    pub(crate) async fn pass(&self) -> Pass {
        match &self.0 {
            Some(gate) => Pass { _guard: Some(Arc::clone(gate).lock_owned().await) },
            None => Pass { _guard: None },
        }
    }
}
