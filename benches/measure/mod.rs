//! Shared by the benches: settings, a pipelined client, the server's CPU time and instructions, raw files, tables.
//!
//! A bench never fails because something is slow: it prints a verdict. It fails on an unexpected reply, because then it
//! measured something else.

pub mod callgrind;
mod cost;
mod origin;
mod pipe;
pub mod runs;
mod settings;
pub mod state;
mod stats;
mod table;

pub use cost::{turn, Cost, ServerCpu};
pub use origin::Origin;
pub use pipe::{argument, Pipe};
pub use settings::{Call, Settings};
pub use stats::{median, sorted, Ratio};
pub use table::{markdown, print_table};

use std::path::Path;
use std::str::FromStr;
use testkit::Conn;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The value of a field of INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// A number from INFO.
pub fn info<T: FromStr>(conn: &mut Conn, section: &str, name: &str) -> T {
    let info = conn.text(&["INFO", section]);
    field(&info, name).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {name} in INFO"))
}
