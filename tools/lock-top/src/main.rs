//! lock-top: who holds and who waits for the locks of redis-lock, in a terminal.
//!
//! `model`, `graph`, `lines`, `app`, `view` and `json` are pure. `link` and `poll` ask a server, `fleet` does so for
//! several in parallel, `terminal` and `once` show what they found. `held` samples the locks of a server, and `leaks`
//! prints those that have been held for a long time.

mod action;
mod app;
mod fleet;
mod graph;
mod held;
mod json;
mod leaks;
mod lines;
mod link;
mod model;
mod once;
mod options;
mod poll;
mod reply;
mod sentinel;
mod servers;
mod target;
mod terminal;
mod text;
mod view;

use options::Asked;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// The width of output that goes to a file or another program.
const WIDTH: usize = 80;

fn main() -> ExitCode {
    // The only provider that is linked in; without this line TLS would ask for a choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let env = |name: &str| std::env::var(name).ok();
    let options = match options::parse(std::env::args_os().skip(1), env) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Help) => return print(options::HELP, ExitCode::SUCCESS, 1),
        Ok(Asked::Version) => {
            return print(concat!("lock-top ", env!("CARGO_PKG_VERSION"), "\n"), ExitCode::SUCCESS, 1)
        }
        Err(error) => return fail(&error, 2),
    };
    if let Some(held_for) = options.held_for {
        let (text, status) = leaks::run(&options, held_for);
        return print(&text, ExitCode::from(status), leaks::FAILED);
    }
    if options.once {
        let width = ratatui::crossterm::terminal::size().map_or(WIDTH, |(wide, _)| usize::from(wide));
        let width = if io::stdout().is_terminal() { width.max(40) } else { WIDTH };
        let (text, is_whole) = once::run(&options, width);
        return print(&text, if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }, 1);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return fail("input or output is not a terminal: --once prints one snapshot", 2);
    }
    match terminal::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string(), 1),
    }
}

/// Prints a text, and returns the status, or `failed` if it could not be written. A reader that closes early, such as
/// `head`, is not a failure; a full disk is.
fn print(text: &str, status: ExitCode, failed: u8) -> ExitCode {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(&error.to_string(), failed),
        _ => status,
    }
}

fn fail(error: &str, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "lock-top: {error}");
    ExitCode::from(code)
}
