//! The link-time registry of an application in three crates, under each way of building it: what
//! the linker may drop differs between them.

use crate::Result;
use crate::cargo::{cargo, has, run};

pub(crate) fn run_each(long: bool) -> Result {
    run(cargo("test --package linked-app"))?;
    if has("nextest", "the registry is not tried under nextest") {
        run(cargo("nextest run --package linked-app"))?;
    }
    if long {
        run(cargo("test --package linked-app --release"))?;
        run(cargo("test --package linked-app --profile fat"))?;
    } else {
        // What the linker may drop is the same, and it takes half the time.
        run(cargo("test --package linked-app --release --config profile.release.opt-level=1"))?;
    }
    Ok(())
}
