use std::sync::Arc;

use super::assemble::assemble;
use super::shared_table::Registration;
use super::{Builder, Config, Mode, Outbox};
use crate::Error;
use crate::error::{ConfigFault, StartError, StartFault};
use crate::listener::{Listeners, TxDatabase};
use crate::store::{
    Backend, Completion, Finding, Operation, SchemaError, SchemaState, Store, Table, migrate,
    migration_sql,
};

pub(super) async fn start<DB: Backend>(mut builder: Builder<DB>) -> Result<Outbox<DB>, Error> {
    let mut faults: Vec<StartFault> = builder.config.faults().into_iter().map(Into::into).collect();
    let writer_only = builder.config.mode == Mode::WriterOnly;
    let built = if builder.handler.is_some() {
        Ok(Listeners::for_handler())
    } else if writer_only {
        Ok(builder.take_registry().build_writer_only())
    } else {
        let registry = builder.take_registry();
        let registry = match builder.harness {
            Some(_) => registry.leave_aside_others(TxDatabase::of::<DB>()),
            None => registry,
        };
        registry.build()
    };
    let listeners = match built {
        Ok(listeners) => {
            listeners.left_aside().for_each(|reason| tracing::warn!("left aside: {reason}"));
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
    let in_memory = prepare(&store, &builder.config, &mut faults).await;
    // A database in memory has no other connection; a test permits no other, so that its database can be dropped.
    let shares_pool = in_memory || builder.harness.is_some();
    let (Some(listeners), true) = (listeners, faults.is_empty()) else {
        return Err(StartError::new(faults).into());
    };
    // A database in memory has one connection, and so one outbox.
    let started = if writer_only || in_memory {
        assemble(builder, store, listeners, shares_pool, None).await
    } else {
        start_relay(builder, store, listeners, shares_pool).await
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
    shares_pool: bool,
) -> Result<Outbox<DB>, Error> {
    let table = store.identity().await?;
    let registration =
        Registration::new(store.table(), table, &listeners).map_err(StartError::new)?;
    assemble(builder, store, listeners, shares_pool, Some(registration)).await
}

/// Makes sure that the table can be used, and returns whether the database is in memory. If the outbox cannot be
/// started anyway, nothing is created or migrated.
async fn prepare<DB: Backend>(
    store: &Store<DB>,
    config: &Config,
    faults: &mut Vec<StartFault>,
) -> bool {
    let may_migrate = faults.is_empty();
    let operations = operations(config);
    let prepared = async {
        let in_memory = store.is_in_memory().await?;
        if in_memory && store.pool().options().get_max_connections() > 1 {
            return Ok(None);
        }
        match store.schema_state().await? {
            SchemaState::Missing { .. } | SchemaState::Older { .. } if !may_migrate => {
                return Ok(Some(in_memory));
            }
            SchemaState::Forbidden { source } => {
                return Err(store.may_not_read(&operations, source).await.into());
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
        store.check_rights(&operations).await?;
        let mut findings = store.check_at_start().await?;
        // A process with a relay may only deliver. With the mode for that, it says so.
        let may_write: &[Operation] =
            if config.mode == Mode::Full { &[Operation::Write] } else { &[] };
        findings.extend(store.check_optional_rights(may_write).await?);
        log_findings(store, &findings);
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

/// Returns what a process with this configuration does with the table. Whether a process with a relay writes events
/// is not known.
fn operations(config: &Config) -> Vec<Operation> {
    let mut operations = vec![Operation::Read];
    match config.mode {
        Mode::WriterOnly => operations.push(Operation::Write),
        Mode::Full | Mode::PollerOnly => operations.push(Operation::Deliver),
    }
    if config.mode != Mode::WriterOnly && config.completion == Completion::Delete {
        operations.push(Operation::DeleteDelivered);
    }
    if config.purge.is_some() {
        operations.push(Operation::Purge);
    }
    operations
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

/// Logs that an outbox has started. Only one with a relay has a node and listeners.
pub(super) fn log_started<DB: Backend>(table: &Table, mode: Mode, relay: Option<(&str, usize)>) {
    tracing::info!(
        %table,
        ?mode,
        node = relay.map(|(node, _)| node),
        listeners = relay.map(|(_, listeners)| listeners),
        database = DB::NAME,
        "the outbox has started"
    );
}

/// Logs what the checks at the start found.
pub(super) fn log_findings<DB: Backend>(store: &Store<DB>, findings: &[Finding]) {
    for finding in findings {
        tracing::warn!(table = %store.table(), subject = finding.subject, "{finding}");
    }
}
