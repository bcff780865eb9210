//! The crate of the listeners is a dependency to which no code refers, so it is not linked, and the error of
//! the registry contains the remedy.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use outbox::listener::{ListenerRegistry, RegistryFault};

#[test]
fn an_unreferenced_crate_is_not_linked_and_the_error_has_a_remedy() {
    let error = ListenerRegistry::linked().build().expect_err("nothing is linked");
    assert!(matches!(error.faults(), [RegistryFault::Empty { outbox: None, linked: Some(0) }]));
    assert_eq!(
        error.to_string(),
        "the listener registry has a fault: no listener is linked into this program; if they are in a \
         crate of their own, name it once so that it is linked (`use handlers as _;`), or allow an \
         empty registry"
    );
}
