use std::sync::Arc;

use super::assemble::assemble;
use super::{Builder, Mode, Outbox};
use crate::Error;
use crate::error::{ConfigFault, StartError, StartFault};
use crate::listener::{ListenerRegistry, TxDatabase};
use crate::store::{Backend, SchemaError, Store, Table, migrate};

pub(super) async fn start<DB: Backend>(mut builder: Builder<DB>) -> Result<Outbox<DB>, Error> {
    let mut faults: Vec<StartFault> = builder.config.faults().into_iter().map(Into::into).collect();
    let writer_only = builder.config.mode == Mode::WriterOnly;
    let registry = if writer_only || builder.handler.is_some() {
        ListenerRegistry::new().allow_empty()
    } else {
        builder.take_registry()
    };
    let listeners = match registry.build() {
        Ok(listeners) => {
            let others = listeners.of_other_databases(TxDatabase::of::<DB>());
            faults.extend(others.map(StartFault::from));
            Some(Arc::new(listeners))
        }
        Err(error) => {
            faults.extend(error.into_faults().into_iter().map(StartFault::from));
            None
        }
    };
    // A name that cannot be is among the faults already; the database is not asked about it.
    let Ok(table) = Table::new(&builder.config.table) else {
        return Err(StartError::new(faults).into());
    };
    let store = Store::new(builder.pool.clone(), table);
    let store = match &builder.harness {
        Some(harness) => store.with_harness(harness.clone()),
        None => store,
    };
    if builder.config.notify && !store.can_notify() {
        let (option, value) = ("notify", "true".to_owned());
        let expected = "false on this database (only PostgreSQL can notify)";
        faults.push(ConfigFault { option, value, expected }.into());
    }
    let in_memory = prepare(&store, &mut faults).await;
    let (Some(listeners), true) = (listeners, faults.is_empty()) else {
        return Err(StartError::new(faults).into());
    };
    match assemble(builder, store, listeners, in_memory).await {
        Err(error @ Error::Database { .. }) => {
            Err(StartError::new(vec![StartFault::Database(Box::new(error))]).into())
        }
        started => started,
    }
}

/// Makes sure that the table is there, and whether the database is in memory. If the outbox cannot be
/// started anyway, nothing is made.
async fn prepare<DB: Backend>(store: &Store<DB>, faults: &mut Vec<StartFault>) -> bool {
    let (pool, may_make) = (store.pool(), faults.is_empty());
    let prepared = async {
        let in_memory = store.is_in_memory().await?;
        if in_memory && pool.options().get_max_connections() > 1 {
            return Ok(None);
        }
        if let Err(missing) = store.verify().await {
            let Error::Schema(SchemaError::Missing { table, sql, source: found }) = missing else {
                return Err(missing);
            };
            if !may_make {
                return Ok(Some(in_memory));
            }
            match migrate(pool, &table).await {
                Ok(()) => store.verify().await?,
                // Another process makes it, or has made it by now.
                Err(locked @ Error::Schema(SchemaError::Locked { .. })) => {
                    store.verify().await.map_err(|_| locked)?;
                }
                // Without the right to make it, the answer is the SQL for a user who has it.
                Err(error) => {
                    let (found, source) = (Box::new(found), Box::new(error));
                    return Err(SchemaError::NotMade { table, found, sql, source }.into());
                }
            }
        }
        for warning in store.warnings().await? {
            tracing::warn!(table = %store.table(), "{warning}");
        }
        Ok(Some(in_memory))
    };
    match prepared.await {
        Ok(Some(in_memory)) => in_memory,
        Ok(None) => {
            faults.push(StartFault::SharedMemory);
            true
        }
        Err(Error::Schema(error)) => {
            faults.push(error.into());
            false
        }
        Err(error) => {
            faults.push(StartFault::Database(Box::new(error)));
            false
        }
    }
}
