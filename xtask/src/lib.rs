//! The project's tools. `cargo xtask` lists them; the Makefile and scripts/ call them.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::must_use_candidate, reason = "only this project calls it")]

pub mod corpus;
pub mod mutants;
pub mod pictures;

use std::path::{Path, PathBuf};

/// The project's root folder.
///
/// # Panics
/// Never, because this crate is inside it.
#[must_use]
pub fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// The folder in which cargo builds.
#[must_use]
pub fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
