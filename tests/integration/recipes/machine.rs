//! A machine of a fleet: a Python program that uses a recipe and exchanges lines with the test.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::install;
use testkit::program::Program;
use testkit::{skipped, Conn, Server};

/// The beginning of each program.
const PRELUDE: &str = "
import sys
import redis
from serverlock import Locks
client = redis.Redis(port=int(sys.argv[1]), single_connection_client=True)
locks = Locks(client)
def say(*words): print(*words, flush=True)
def hear(): return sys.stdin.readline().strip()
say('ready')
";

/// A Python with redis-py; otherwise a message says that the recipes are skipped.
pub fn python() -> Option<PathBuf> {
    install::python().map_err(|why| skipped("recipes", &why)).ok()
}

/// A server, a connection to it, and machines that run a program; `None` without redis-py.
pub fn machines<const N: usize>(program: &str) -> Option<(Server, Conn, [Program; N])> {
    let python = python()?;
    let (server, conn) = Server::connected();
    let machines = [0; N].map(|_| start_with(&python, program, &server, &[]));
    Some((server, conn, machines))
}

pub fn start_with(python: &Path, program: &str, server: &Server, arguments: &[&str]) -> Program {
    let mut command = Command::new(python);
    command.args(["-c", &format!("{PRELUDE}{program}"), &server.port().to_string()]).args(arguments);
    let path = [install::sources().join("recipes"), install::sources().join("../../clients/python/src")];
    command.env("PYTHONPATH", std::env::join_paths(path).unwrap()).env("PYTHONDONTWRITEBYTECODE", "1");
    let machine = Program::start(&mut command);
    assert_eq!(machine.hear(), "ready");
    machine
}
