//! Resolves a step's numbers, modulo what exists at that point in the run.

use super::command::Command;
use super::model::steps::{Acquire, Number, Put, Step, CLIENTS, IDS, KEYS};
use super::{Known, Run, REMEMBERED};

impl Run {
    fn conn(&self, client: Number) -> u64 {
        self.pretended.conns[usize::from(client % CLIENTS)]
    }

    /// A client that can send a command now.
    fn sender(&self, client: Number) -> Option<u64> {
        Some(self.conn(client)).filter(|conn| !self.pretended.is_blocked(*conn))
    }

    fn known_grant(&self, grant: Number) -> Option<Known> {
        self.known.len().checked_sub(1 + usize::from(grant) % REMEMBERED).map(|at| self.known[at].clone())
    }

    /// The resolved step, if it makes sense.
    pub fn command(&self, step: &Step) -> Option<Command> {
        let id_of = |id: Number| 1 + id % IDS;
        let with = |mut keys: Vec<u8>, more: Option<Number>| {
            keys.extend(more.map(|more| more % KEYS).filter(|more| !keys.contains(more)));
            keys
        };
        Some(match step {
            Step::Acquire(command) | Step::AcquireAll(command) => Command::Acquire {
                conn: self.sender(command.client)?,
                command: Acquire { id: command.id.map(id_of), ..command.clone() },
                several: matches!(step, Step::AcquireAll(_)),
            },
            Step::Recover { client, key, lease, id } => Command::Recover {
                conn: self.sender(*client)?,
                key: key % KEYS,
                lease: *lease,
                id: id.map(|id| u64::from(id_of(id))),
            },
            Step::Extend { grant, lease } => {
                let Known { token, keys } = self.known_grant(*grant)?;
                Command::Extend { token, keys: vec![keys[0]], lease: *lease, several: false }
            }
            Step::ExtendAll { grant, more, lease } => {
                let Known { token, keys } = self.known_grant(*grant)?;
                Command::Extend { token, keys: with(keys, *more), lease: *lease, several: true }
            }
            Step::Release { grant, key } => {
                let Known { token, keys } = self.known_grant(*grant)?;
                // Sometimes a key other than its own.
                let own = keys[usize::from(*key) % keys.len()];
                Command::Release { token, key: if grant % 16 == 15 { key % KEYS } else { own }, result: None }
            }
            Step::Share { grant, key } => {
                let Known { token, keys } = self.known_grant(*grant)?;
                let key_of_grant = keys[usize::from(*key) % keys.len()];
                Command::Release { token, key: key_of_grant, result: Some(*grant) }
            }
            Step::ReleaseAll { grant, more } => {
                let Known { token, keys } = self.known_grant(*grant)?;
                Command::ReleaseAll { token, keys: with(keys, *more) }
            }
            Step::Check { grant } => {
                let Known { token, keys } = self.known_grant(*grant)?;
                Command::Check { token, key: keys[0] }
            }
            Step::Cancel { key, id } => Command::Cancel { key: key % KEYS, id: u64::from(id_of(*id)) },
            Step::Disconnect { client } => Command::Kill { conn: self.conn(*client) },
            Step::Unblock { client } if self.real.can_unblock => Command::Unblock { conn: self.conn(*client) },
            Step::Delete { key } => Command::Delete { key: key % KEYS },
            Step::Put { key, what } => {
                let (value, expires_in_ms) = match what {
                    Put::Foreign => (b"somebody".to_vec(), None),
                    Put::ForeignFor(ms) => (b"somebody".to_vec(), Some(*ms)),
                    Put::Timestamp(ms) => {
                        let at = (self.clocks.wall() / 1_000).saturating_add_signed(i64::from(*ms));
                        (at.to_string().into_bytes(), None)
                    }
                };
                Command::Put { key: key % KEYS, value, expires_in_ms }
            }
            Step::Rename { from, to } if from != to => Command::Rename { from: from % KEYS, to: to % KEYS },
            Step::Copy { from, to } if from != to => Command::Copy { from: from % KEYS, to: to % KEYS },
            Step::Flush => Command::Flush,
            Step::Swap => Command::Swap,
            _ => return None,
        })
    }
}
