//! A process that only writes, and what it has in common with one that delivers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::assemble::Base;
use super::registrar::{NodeParts, Registrar, RegistrarLoop};
use super::start::log_started;
use super::{Builder, Outbox};
use crate::admin::Admin;
use crate::dead::Deliverable;
use crate::listener::Listeners;
use crate::poll::Wake;
use crate::store::{Backend, Store, TypeFilter};
use crate::write::{HotPath, Writer};

impl<DB: Backend> Base<DB> {
    pub(super) async fn writer_only(
        self,
        builder: Builder<DB>,
        listeners: &Listeners,
    ) -> Outbox<DB> {
        log_started(&self.store, self.config.mode, None);
        let services = self.services();
        services.start_if(self.notifier(&self.store));
        services.start_if(self.purge_loop(&self.store));
        let registrar = self.registrar(&self.store, listeners, None);
        registrar.start().await;
        services.start(RegistrarLoop::new(registrar));
        let admin = self.admin(TypeFilter::ALL, None);
        let hot_path = HotPath::new(None, self.notify);
        let (hooks, audience) = (builder.hooks, listeners.audience());
        let writer = Writer::with(self.store, hooks, hot_path, Some(self.meter), audience);
        Outbox::new(writer, None, services, admin, self.stop)
    }

    pub(super) fn registrar(
        &self,
        store: &Store<DB>,
        listeners: &Listeners,
        node: Option<NodeParts>,
    ) -> Arc<Registrar<DB>> {
        let (store, recipients) = (store.clone(), Arc::clone(listeners.recipients()));
        let statement_timeout = self.lease.statement_timeout();
        let is_registered = AtomicBool::new(false);
        Arc::new(Registrar { store, recipients, node, statement_timeout, is_registered })
    }

    /// What people use to look into the table. Events that become deliverable by it wake the poller, and other nodes.
    pub(super) fn admin(&self, handled: TypeFilter, wake: Option<Arc<Wake>>) -> Admin<DB> {
        let (signal, is_ordered) = (self.notify.clone(), self.config.in_order().is_some());
        let deliverable = move |cause| {
            match (cause, &wake) {
                // Where events are not ordered, nothing waits for another one.
                (Deliverable::Unblocked, _) if !is_ordered => return,
                // They have been due for long, and may be below the low watermark.
                (Deliverable::Unblocked, Some(wake)) => wake.full_scan(),
                (Deliverable::Due, Some(wake)) => wake.due(),
                (_, None) => {}
            }
            if let Some(signal) = &signal {
                signal.send();
            }
        };
        Admin::with(self.store.clone(), handled, Arc::new(deliverable))
    }
}
