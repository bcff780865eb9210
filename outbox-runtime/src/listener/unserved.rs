//! Linked listeners that serve an outbox which is not started.

use super::entry::ListenerEntry;
use super::{Place, RegistryFault};

/// The linked listeners that an outbox has: those that name it, or those that name none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkedFor {
    Unnamed,
    Named(String),
}

impl LinkedFor {
    pub(crate) fn new(outbox: Option<String>) -> Self {
        outbox.map_or(Self::Unnamed, Self::Named)
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Unnamed => None,
            Self::Named(name) => Some(name),
        }
    }
}

/// Returns a fault for each linked listener and each outbox that it serves and that is not among the started ones.
pub(crate) fn unserved(started: &[LinkedFor]) -> Vec<RegistryFault> {
    let names: Vec<String> =
        started.iter().filter_map(LinkedFor::name).map(str::to_owned).collect();
    let mut found: Vec<(Place, &str, Option<&str>)> = inventory::iter::<ListenerEntry>
        .into_iter()
        .flat_map(|entry| served_by(entry).map(|outbox| (entry.place, entry.function, outbox)))
        .filter(|(_, _, outbox)| !started.iter().any(|started| started.name() == *outbox))
        .collect();
    // The linker's order is unspecified.
    found.sort_unstable();
    found
        .into_iter()
        .map(|(place, function, outbox)| RegistryFault::Unserved {
            listener: format!("`{function}`"),
            place,
            outbox: outbox.map(str::to_owned),
            started: names.clone(),
        })
        .collect()
}

/// Returns the outboxes that a listener serves; `None` is the unnamed one.
fn served_by(entry: &ListenerEntry) -> impl Iterator<Item = Option<&'static str>> {
    let unnamed = entry.outboxes.is_empty().then_some(None);
    unnamed.into_iter().chain(entry.outboxes.iter().copied().map(Some))
}
