//! How much to measure.

/// A bench's invocation.
pub struct Call {
    /// The words after its name on the command line.
    pub arguments: Vec<String>,
    /// A trial run by `cargo test --bench lock`: one short round, nothing is written.
    pub smoke: bool,
}

impl Call {
    pub fn has(&self, argument: &str) -> bool {
        self.arguments.iter().any(|other| other == argument)
    }

    /// How much to measure, unless `BENCH_ROUNDS` and `BENCH_OPS` say otherwise.
    pub fn settings(&self, rounds: usize, operations: usize) -> Settings {
        if self.smoke {
            return Settings { rounds: 1, operations: 1, smoke: true };
        }
        let rounds = from_env("BENCH_ROUNDS", rounds).max(1);
        let operations = from_env("BENCH_OPS", operations).max(1);
        Settings { rounds, operations, smoke: false }
    }
}

pub struct Settings {
    /// The number of rounds.
    pub rounds: usize,
    /// Operations per contender in a round.
    pub operations: usize,
    /// As in [`Call`].
    pub smoke: bool,
}

fn from_env(name: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}"))
}
