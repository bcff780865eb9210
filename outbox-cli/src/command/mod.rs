//! The commands, one per file.

pub(crate) mod blocked;
pub(crate) mod completions;
pub(crate) mod dead;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod migrate;
pub(crate) mod nodes;
pub(crate) mod pause;
pub(crate) mod pending;
pub(crate) mod purge;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod subscriptions;
pub(crate) mod tail;

mod event;
mod progress;
