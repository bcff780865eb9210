use std::sync::Arc;

use super::assemble::assemble;
use super::shared_table::Registration;
use super::{Builder, Mode, Outbox};
use crate::Error;
use crate::error::{ConfigFault, StartError, StartFault};
use crate::listener::{Listeners, TxDatabase};
use crate::store::{
    Backend, Finding, SchemaError, SchemaState, Store, Table, migrate, migration_sql,
};

pub(super) async fn start<DB: Backend>(mut builder: Builder<DB>) -> Result<Outbox<DB>, Error> {
    let mut faults: Vec<StartFault> = builder.config.faults().into_iter().map(Into::into).collect();
    let writer_only = builder.config.mode == Mode::WriterOnly;
    let built = if builder.handler.is_some() {
        Ok(Listeners::for_handler())
    } else if writer_only {
        Ok(builder.take_registry().build_writer_only())
    } else {
        builder.take_registry().build()
    };
    let listeners = match built {
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
    // An invalid name is among the faults already.
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
    // A database in memory has one connection, and so one outbox.
    let started = if writer_only || in_memory {
        assemble(builder, store, listeners, in_memory, None).await
    } else {
        start_relay(builder, store, listeners).await
    };
    match started {
        Err(error @ Error::Database { .. }) => {
            Err(StartError::new(vec![StartFault::Database(Box::new(error))]).into())
        }
        started => started,
    }
}

/// Starts an outbox that delivers, unless another one of this process would take its events.
async fn start_relay<DB: Backend>(
    builder: Builder<DB>,
    store: Store<DB>,
    listeners: Arc<Listeners>,
) -> Result<Outbox<DB>, Error> {
    let table = store.identity().await?;
    let registration =
        Registration::new(store.table(), table, &listeners).map_err(StartError::new)?;
    assemble(builder, store, listeners, false, Some(registration)).await
}

/// Makes sure that the table can be used, and returns whether the database is in memory. If the outbox cannot be
/// started anyway, nothing is created or migrated.
async fn prepare<DB: Backend>(store: &Store<DB>, faults: &mut Vec<StartFault>) -> bool {
    let may_migrate = faults.is_empty();
    let prepared = async {
        let in_memory = store.is_in_memory().await?;
        if in_memory && store.pool().options().get_max_connections() > 1 {
            return Ok(None);
        }
        match store.schema_state().await? {
            SchemaState::Missing { .. } | SchemaState::Older { .. } if !may_migrate => {
                return Ok(Some(in_memory));
            }
            state @ (SchemaState::Missing { .. } | SchemaState::Older { .. }) => {
                migrate_from(store, state).await?;
            }
            SchemaState::Compatible { found, known, min_code } => tracing::warn!(
                table = %store.table(),
                found,
                known,
                min_code,
                "the table has a later schema version than this program knows, and permits programs like this one"
            ),
            _ => store.verify().await?,
        }
        log_findings(store, &store.check_at_start().await?);
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

/// Creates a missing table, or migrates an older one.
async fn migrate_from<DB: Backend>(store: &Store<DB>, state: SchemaState) -> Result<(), Error> {
    let table = store.table().clone();
    let error = match migrate(store.pool(), &table).await {
        Ok(()) => return store.verify().await,
        // Another process is migrating, and may have finished by now.
        Err(locked @ Error::Schema(SchemaError::Locked { .. })) => {
            return store.verify().await.map_err(|_| locked);
        }
        Err(error) => error,
    };
    // Without the privilege, the error has the SQL for a user who has it.
    let source = Box::new(error);
    Err(Error::Schema(match state {
        SchemaState::Missing { source: found } => {
            let sql = migration_sql::<DB>(&table);
            SchemaError::NotMade { table, found: Box::new(found), sql, source }
        }
        SchemaState::Older { found, known, sql } => {
            SchemaError::NotMigrated { table, found, known, sql, source }
        }
        _ => return Err(*source),
    }))
}

/// Logs what the checks at the start found.
pub(super) fn log_findings<DB: Backend>(store: &Store<DB>, findings: &[Finding]) {
    for finding in findings {
        tracing::warn!(table = %store.table(), subject = finding.subject, "{finding}");
    }
}
