//! Where things are.

use std::path::{Path, PathBuf};

/// The project's root folder.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The folder for everything that is built: `CARGO_TARGET_DIR`, or `target` in the root.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A binary of the server.
pub(crate) fn binary(profile: &str) -> PathBuf {
    target().join(profile).join("evenkeel")
}

/// The python that has the packages of the tests.
pub(crate) fn python() -> PathBuf {
    target().join("python/bin/python")
}
