//! `cargo xtask linked`: tests the link-time registry with an application in three crates, under each kind of build,
//! because the linker drops different things in each.

use crate::Result;
use crate::cargo::{cargo, has, run};

pub(crate) fn run_each(long: bool) -> Result {
    run(cargo("test --package linked-app"))?;
    if has("nextest", "the registry is not tested under nextest") {
        run(cargo("nextest run --package linked-app"))?;
    }
    if long {
        run(cargo("test --package linked-app --release"))?;
        run(cargo("test --package linked-app --profile fat"))?;
    } else {
        // The linker may drop the same things as in a full release build, and this takes half the time.
        run(cargo("test --package linked-app --release --config profile.release.opt-level=1"))?;
    }
    Ok(())
}
