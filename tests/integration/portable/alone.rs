//! The portable lock on a server without the module.

mod errors;
mod refusals;
mod replicas;
mod rights;
mod table;

use super::{client, load, Way};
use crate::wire::fixture::{Case, Words};
use testkit::{Conn, Server};

/// A server without the module, a connection, and the ways to call the lock there.
fn start() -> (Server, Conn, Vec<Way>) {
    started(&[])
}

fn started(args: &[&str]) -> (Server, Conn, Vec<Way>) {
    let (server, mut conn) = Server::with().without_module().args(args).connected();
    let ways = load(&mut conn);
    (server, conn, ways)
}

/// Creates a state, even on servers before 6.2, whose SET has no PXAT.
fn set_up(conn: &mut Conn, case: &Case, setup: &[&Words]) {
    for words in setup {
        let args = case.args(words);
        let (set, expiry) = match args.iter().position(|word| word == "PXAT") {
            Some(at) => (&args[..at], Some(&args[at + 1])),
            None => (&args[..], None),
        };
        let reply = conn.execute(set);
        assert!(!matches!(reply, testkit::Reply::Error(_)), "{set:?}: {reply:?}");
        if let Some(expiry) = expiry {
            assert_eq!(conn.int(&["PEXPIREAT", &args[1], expiry]), 1);
        }
    }
}
