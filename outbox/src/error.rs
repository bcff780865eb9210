//! Errors in detail.
//!
//! [`Error`] is the error of every operation. [`StartError`] collects everything that prevents the start
//! of an outbox, each as a [`StartFault`]; [`SchemaError`] is about the table. [`DatabaseErrorKind`] classifies errors
//! of the three databases.

#[doc(no_inline)]
pub use crate::{Error, Result};

#[doc(inline)]
pub use outbox_runtime::store::{DatabaseErrorKind, SchemaError};
#[doc(inline)]
pub use outbox_runtime::{ConfigFault, StartError, StartFault};
