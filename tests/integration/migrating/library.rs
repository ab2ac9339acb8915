//! A lock of a library that a fleet may migrate from: the real one, driven step by step.

use std::process::Command;
use std::time::Duration;

use testkit::install;
use testkit::program::Program;
use testkit::Server;

const REDIS_2: &str = include_str!("../../clients/migrating/redis-2.txt");
const REDIS_5: &str = include_str!("../../clients/migrating/redis-5.txt");
const REDIS_6: &str = include_str!("../../clients/migrating/redis-6.txt");
const REDIS_7: &str = include_str!("../../clients/migrating/redis-7.txt");
const REDIS_8: &str = include_str!("../../clients/migrating/redis-8.txt");
const RSLOCK_TOML: &str = include_str!("../../clients/migrating/rslock/Cargo.toml");
const RSLOCK: &str = include_str!("../../clients/migrating/rslock/locks.rs");
const NODE: &str = include_str!("../../clients/migrating/package.json");

/// What a library needs to be installed.
#[derive(Clone, Copy)]
pub enum From {
    Python(&'static str),
    Node,
    Rust,
}

/// A library as docs/MIGRATING.md names it.
pub struct Library {
    /// In the first column of the document's table.
    pub name: &'static str,
    from: From,
    /// Its name in locks.py or locks.js.
    adapter: &'static str,
    /// The prefix that the library adds to a lock's name.
    pub prefix: &'static str,
}

/// Every library that is run.
pub const LIBRARIES: &[Library] = &[
    Library { name: "redis-py 2.9.1 (PyPI redis)", from: From::Python(REDIS_2), adapter: "redis-py-2", prefix: "" },
    Library { name: "redset 0.5.1 (PyPI)", from: From::Python(REDIS_2), adapter: "redset", prefix: "" },
    Library { name: "retools 0.3 (PyPI)", from: From::Python(REDIS_2), adapter: "retools", prefix: "" },
    Library { name: "redis-lock 0.2.0 (PyPI)", from: From::Python(REDIS_2), adapter: "redis-lock", prefix: "" },
    Library { name: "celery-once 1.2.0 (PyPI)", from: From::Python(REDIS_2), adapter: "celery-once", prefix: "" },
    Library { name: "redis-lock 0.0.2 (npm)", from: From::Node, adapter: "redis-lock-0.0.2", prefix: "lock." },
    Library { name: "redis-lock 0.0.9 (npm)", from: From::Node, adapter: "redis-lock-0.0.9", prefix: "lock." },
    Library { name: "redis-lock 0.1.4 (npm)", from: From::Node, adapter: "redis-lock-0.1.4", prefix: "lock." },
    Library { name: "redis-lock 1.0.0 (npm)", from: From::Node, adapter: "redis-lock-1.0.0", prefix: "lock." },
    Library { name: "redis-py 5.3.1 (PyPI redis)", from: From::Python(REDIS_5), adapter: "redis-py", prefix: "" },
    Library { name: "redis-py 6.4.0 (PyPI redis)", from: From::Python(REDIS_6), adapter: "redis-py", prefix: "" },
    Library { name: "redis-py 7.1.0 (PyPI redis)", from: From::Python(REDIS_7), adapter: "redis-py", prefix: "" },
    Library { name: "redis-py 8.1.0 (PyPI redis)", from: From::Python(REDIS_8), adapter: "redis-py", prefix: "" },
    Library {
        name: "python-redis-lock 4.0.1 (PyPI)",
        from: From::Python(REDIS_8),
        adapter: "python-redis-lock",
        prefix: "lock:",
    },
    Library { name: "retools 0.4.1 (PyPI)", from: From::Python(REDIS_8), adapter: "retools", prefix: "" },
    Library { name: "pottery 3.0.1 (PyPI)", from: From::Python(REDIS_8), adapter: "pottery", prefix: "redlock:" },
    Library { name: "redlock-py 1.0.8 (PyPI)", from: From::Python(REDIS_6), adapter: "redlock-py", prefix: "" },
    Library { name: "redlock 1.2.0 (PyPI)", from: From::Python(REDIS_5), adapter: "redlock", prefix: "" },
    Library { name: "redlock 4.2.0 (npm)", from: From::Node, adapter: "redlock-4", prefix: "" },
    Library { name: "redlock 5.0.0-beta.2 (npm)", from: From::Node, adapter: "redlock-5", prefix: "" },
    Library { name: "rslock 0.10.0 (crates.io)", from: From::Rust, adapter: "rslock-0.10.0", prefix: "" },
];

/// The library whose name starts with this.
pub fn library(name: &str) -> &'static Library {
    LIBRARIES.iter().find(|library| library.name.starts_with(name)).expect("a library of that name")
}

impl Library {
    /// Starts it as a client of the server, or returns why it cannot run.
    pub fn start(&self, server: &Server) -> Result<Client, String> {
        let script = |name: &str| install::sources().join("migrating").join(name);
        let mut command = match self.from {
            From::Python(pins) => {
                let mut python = Command::new(install::python()?);
                python.arg(script("locks.py")).arg(self.adapter).env("PYTHONPATH", install::python_path(pins)?);
                python.env("PYTHONDONTWRITEBYTECODE", "1");
                python
            }
            From::Node => {
                let mut node = Command::new("node");
                node.arg(script("locks.js")).arg(self.adapter).env("NODE_PATH", install::node_path_with(NODE)?);
                node
            }
            From::Rust => Command::new(install::program(self.adapter, RSLOCK_TOML, "locks.rs", RSLOCK)?),
        };
        command.arg(server.port().to_string());
        let client = Client(Program::start(&mut command));
        assert_eq!(client.answer(), "ready", "{command:?}");
        Ok(client)
    }
}

/// A process that uses its library's locks step by step: it reads steps and writes answers, one line each.
pub struct Client(Program);

impl Client {
    /// One step, with the lock's name as given to the library; see locks.py for verbs and answers.
    pub fn ask(&mut self, verb: &str, name: &str, lease_s: u64) -> String {
        self.start(verb, name, lease_s);
        self.answer()
    }

    /// Begins a step.
    pub fn start(&mut self, verb: &str, name: &str, lease_s: u64) {
        self.0.say(format!("{verb} {name} {lease_s}"));
    }

    /// The answer to the step that has begun.
    pub fn answer(&self) -> String {
        self.0.hear()
    }

    /// Whether no answer arrives within `time`.
    pub fn no_answer_within(&self, time: Duration) -> bool {
        self.0.no_line_within(time)
    }
}
