use std::fmt;
use std::sync::Arc;

use super::assemble::assemble;
use super::shared_table::Registration;
use super::{Builder, Config, Mode, Outbox};
use crate::Error;
use crate::error::{ConfigFault, StartError, StartFault};
use crate::listener::{LinkedFor, Listeners, Place, TxDatabase};
use crate::ordering::Ordering;
use crate::store::{
    Backend, Completion, Finding, Operation, SchemaError, SchemaState, Store, Table, migrate,
    migrate_ordered, migration_sql,
};

pub(super) async fn start<DB: Backend>(builder: Builder<DB>) -> Result<Outbox<DB>, Error> {
    let mut candidate = Candidate::new(builder);
    candidate.prepare(candidate.faults.is_empty()).await;
    candidate.register().await;
    candidate.launch().await
}

/// An outbox that is being started. Each step adds the faults that it finds.
pub struct Candidate<DB: Backend> {
    pub(super) builder: Builder<DB>,
    pub(super) faults: Vec<StartFault>,
    /// The linked listeners that it has, if any.
    pub(super) linked_for: Option<LinkedFor>,
    /// `None` if they have faults.
    listeners: Option<Arc<Listeners>>,
    /// `None` if the name of the table is invalid.
    store: Option<Store<DB>>,
    /// Whether its database is in memory.
    in_memory: bool,
    registration: Option<Registration>,
}

impl<DB: Backend> fmt::Debug for Candidate<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("builder", &self.builder).finish_non_exhaustive()
    }
}

impl<DB: Backend> Candidate<DB> {
    /// Checks the options and the listeners.
    pub(super) fn new(mut builder: Builder<DB>) -> Self {
        let mut faults: Vec<StartFault> =
            builder.config.faults().into_iter().map(Into::into).collect();
        let (built, linked_for) = if builder.handler.is_some() {
            (Ok(Listeners::for_handler()), Some(LinkedFor::new(builder.name.clone())))
        } else {
            let registry = builder.take_registry();
            let linked_for = registry.linked_for_outbox();
            let registry = match builder.harness {
                Some(_) => registry.leave_aside_others(TxDatabase::of::<DB>()),
                None => registry,
            };
            let built = match builder.config.mode {
                Mode::WriterOnly => Ok(registry.build_writer_only()),
                Mode::Full | Mode::PollerOnly => registry.build(),
            };
            (built, linked_for)
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
        let table = Table::new(&builder.config.table).ok();
        let store = table.map(|table| {
            let store = Store::new(builder.pool.clone(), table).named(builder.name.as_deref());
            match &builder.harness {
                Some(harness) => store.with_harness(harness.clone()),
                None => store,
            }
        });
        if builder.config.notify && store.as_ref().is_some_and(|store| !store.can_notify()) {
            let (option, value) = ("notify", "true".to_owned());
            let expected = "false on this database (only PostgreSQL can notify)";
            faults.push(ConfigFault { option, value, expected }.into());
        }
        if builder.config.order == Ordering::PerAggregate && builder.asks_for_hot_path {
            let (option, value) = ("mode", "Full".to_owned());
            let expected = "unset or `PollerOnly` with `order(Ordering::PerAggregate)`, because events of an aggregate \
                            cannot take the hot queue in order";
            faults.push(ConfigFault { option, value, expected }.into());
        }
        let (in_memory, registration) = (false, None);
        Self { builder, faults, linked_for, listeners, store, in_memory, registration }
    }

    /// Makes sure that the table can be used.
    pub(super) async fn prepare(&mut self, may_migrate: bool) {
        let Some(store) = &self.store else { return };
        let (config, faults) = (&self.builder.config, &mut self.faults);
        self.in_memory = prepare(store, config, may_migrate, faults).await;
    }

    /// Adds it to the running outboxes, unless another one would take its events.
    pub(super) async fn register(&mut self) {
        // A database in memory has one connection, and so one outbox.
        let is_compared = self.builder.config.mode != Mode::WriterOnly && !self.in_memory;
        let (Some(store), Some(listeners)) = (&self.store, &self.listeners) else { return };
        if !is_compared || !self.faults.is_empty() {
            return;
        }
        let Builder { config, place, .. } = &self.builder;
        match registration(store, config, *place, listeners).await {
            Ok(registration) => self.registration = Some(registration),
            Err(faults) => self.faults.extend(faults),
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// Returns the faults, or the error of the relay's first connection.
    pub(super) async fn launch(self) -> Result<Outbox<DB>, Error> {
        let Self { builder, faults, listeners, store, in_memory, registration, .. } = self;
        let (Some(listeners), Some(store), true) = (listeners, store, faults.is_empty()) else {
            return Err(StartError::new(faults).into());
        };
        // A database in memory has no other connection; a test permits no other, so that its database can be dropped.
        let shares_pool = in_memory || builder.harness.is_some();
        // Boxed: with TLS in the driver it is large.
        let assembled = Box::pin(assemble(builder, store, listeners, shares_pool, registration));
        match assembled.await {
            Err(error @ Error::Database { .. }) => {
                Err(StartError::new(vec![StartFault::Database(Box::new(error))]).into())
            }
            started => started,
        }
    }
}

/// Compares an outbox with the others of this process, and its order with that of other processes.
async fn registration<DB: Backend>(
    store: &Store<DB>,
    config: &Config,
    place: Place,
    listeners: &Arc<Listeners>,
) -> Result<Registration, Vec<StartFault>> {
    let failed = |error: Error| vec![StartFault::Database(Box::new(error))];
    let identity = store.identity().await.map_err(failed)?;
    let registration = Registration::new(store.table(), identity, listeners, (config, place))?;
    match store.record_order(config.in_order()).await.map_err(failed)? {
        Some(node) => {
            let (table, order) = (store.table().clone(), config.order);
            Err(vec![StartFault::OrderInUse { table, order, node }])
        }
        None => Ok(registration),
    }
}

/// Makes sure that the table can be used, and returns whether the database is in memory. If the outbox cannot be
/// started anyway, nothing is created or migrated.
async fn prepare<DB: Backend>(
    store: &Store<DB>,
    config: &Config,
    may_migrate: bool,
    faults: &mut Vec<StartFault>,
) -> bool {
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
                let all = [operations.as_slice(), optional_operations(config)].concat();
                return Err(store.may_not_read(&all, source).await.into());
            }
            state @ (SchemaState::Missing { .. } | SchemaState::Older { .. }) => {
                migrate_from(store, state).await?;
            }
            SchemaState::Compatible { found, known, min_code } => tracing::warn!(
                outbox = store.name(),
                table = %store.table(),
                found,
                known,
                min_code,
                "the table has a later schema version than this program knows, and permits programs like this one"
            ),
            _ => store.verify().await?,
        }
        if config.order == Ordering::PerAggregate && config.mode != Mode::WriterOnly && may_migrate
        {
            make_ordered(store).await?;
        }
        store.check_rights(&operations).await?;
        let mut findings = store.check_at_start().await?;
        let mut optional = optional_operations(config).to_vec();
        if config.mode == Mode::Full {
            // A process with a relay may only deliver. With the mode for that, it says so.
            optional.push(Operation::Write);
        }
        findings.extend(store.check_optional_rights(&optional).await?);
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
        Mode::Full | Mode::PollerOnly => {
            operations.extend([Operation::Deliver, Operation::Register]);
        }
    }
    if config.mode != Mode::WriterOnly && config.completion == Completion::Delete {
        operations.push(Operation::DeleteDelivered);
    }
    if config.purge.is_some() {
        operations.push(Operation::Purge);
    }
    operations
}

/// Returns what such a process does as well if it may. A writer that may not read the subscriptions writes rows that
/// the relays expand.
fn optional_operations(config: &Config) -> &'static [Operation] {
    match config.mode {
        Mode::WriterOnly => &[Operation::ReadSubscriptions],
        Mode::Full | Mode::PollerOnly => &[],
    }
}

/// Adds what an ordered outbox needs.
async fn make_ordered<DB: Backend>(store: &Store<DB>) -> Result<(), Error> {
    let Err(lacking) = store.verify_order().await else { return Ok(()) };
    let Error::Schema(SchemaError::NotOrdered { table, sql, .. }) = lacking else {
        return Err(lacking);
    };
    // Without the privilege, the error has the SQL for a user who has it.
    migrate_ordered(store.pool(), &table).await.map_err(|error| {
        let source = Some(Box::new(error));
        Error::Schema(SchemaError::NotOrdered { table, sql, source })
    })
}

/// Creates a missing table, or migrates an older one.
async fn migrate_from<DB: Backend>(store: &Store<DB>, state: SchemaState) -> Result<(), Error> {
    let table = store.table().clone();
    if matches!(state, SchemaState::Older { found: 0, .. }) {
        tracing::warn!(
            %table,
            "adopting a table of the original Java framework; the relay of that framework must be off"
        );
    }
    let error = match migrate(store.pool(), &table).await {
        Ok(()) => return store.verify().await,
        // Another process is migrating, and may have finished by now.
        Err(locked @ Error::Schema(SchemaError::Locked { .. })) => {
            return store.verify().await.map_err(|_| locked);
        }
        Err(foreign @ Error::Schema(SchemaError::NotAnOutbox { .. })) => return Err(foreign),
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
pub(super) fn log_started<DB: Backend>(
    store: &Store<DB>,
    mode: Mode,
    relay: Option<(&str, usize)>,
) {
    tracing::info!(
        outbox = store.name(),
        table = %store.table(),
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
        let (outbox, table) = (store.name(), store.table());
        tracing::warn!(outbox, %table, subject = finding.subject, "{finding}");
    }
}
