//! Loads the module: the list of commands, and the order of registration.

use crate::commands::acquire::Acquire;
use crate::commands::cancel::Cancel;
use crate::commands::check::Check;
use crate::commands::extend::Extend;
use crate::commands::help::Help;
use crate::commands::info::Info;
use crate::commands::macquire::Macquire;
use crate::commands::mextend::Mextend;
use crate::commands::mrelease::Mrelease;
use crate::commands::recover::Recover;
use crate::commands::release::Release;
use crate::commands::scan::Scan;
use crate::commands::top::Top;
use crate::server::api::context::Context;
use crate::server::entries::on_load::{self, export_module, Registration};

/// The crate's version as MODULE LIST shows it: 1.2.3 becomes 10203, so minor and patch must stay below 100.
const VERSION: i32 = {
    let [major, minor, patch] = [
        part(env!("CARGO_PKG_VERSION_MAJOR")),
        part(env!("CARGO_PKG_VERSION_MINOR")),
        part(env!("CARGO_PKG_VERSION_PATCH")),
    ];
    assert!(minor < 100 && patch < 100, "minor and patch have two digits in MODULE LIST");
    major * 10_000 + minor * 100 + patch
};

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // Evaluated by the compiler.
const fn part(text: &str) -> i32 {
    let (digits, mut number, mut at) = (text.as_bytes(), 0, 0);
    while at < digits.len() {
        number = number * 10 + (digits[at] - b'0') as i32;
        at += 1;
    }
    number
}

/// All commands of the module.
static COMMANDS: [Registration; 13] = [
    Registration::of::<Acquire>(),
    Registration::of::<Recover>(),
    Registration::of::<Extend>(),
    Registration::of::<Release>(),
    Registration::of::<Check>(),
    Registration::of::<Cancel>(),
    Registration::of::<Info>(),
    Registration::of::<Top>(),
    Registration::of::<Macquire>(),
    Registration::of::<Mextend>(),
    Registration::of::<Mrelease>(),
    Registration::of::<Scan>(),
    Registration::of::<Help>(),
];

export_module!(c"lock", VERSION, load);

fn load(context: &Context, args: &[&[u8]]) -> Result<(), String> {
    on_load::check_commands(context)?;
    on_load::load_settings(context, args)?;
    on_load::set_options(context);
    on_load::register_all(context, &COMMANDS)?;
    on_load::log_loaded(context, concat!("lock ", env!("CARGO_PKG_VERSION")), !args.is_empty());
    Ok(())
}
