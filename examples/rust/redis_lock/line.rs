//! What is sent for a lock, and what the answers mean.

use std::fmt;
use std::time::{Duration, Instant};

use redis::{cmd, Client, Cmd, Connection, ErrorKind, RedisError, Value};

use super::Options;

const EXTEND: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end ";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const ACQUIRE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end ";

/// Why there is no lock.
#[derive(Clone, Debug)]
pub enum Error {
    /// Somebody else has it, after the wait if any; or the wait was cancelled.
    Refused(String),
    /// It is not held any more, or not for certain.
    Lost(String),
    /// The server does not know LOCK.*, and the fallback is off.
    Unsupported(String),
    /// The server answered what no LOCK.* command answers.
    Reply(String),
    /// The server cannot be reached, or answered an error.
    Redis(RedisError),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) | Self::Lost(text) | Self::Unsupported(text) | Self::Reply(text) => out.write_str(text),
            Self::Redis(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Whether to connect anew, perhaps to a new master.
    pub(super) fn is_broken(&self) -> bool {
        let Self::Redis(error) = self else { return true };
        matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse) || matches!(error.code(), Some("READONLY" | "LOADING"))
    }

    /// Whether the same command may succeed later: the server, or its part as master, is changing.
    pub(super) fn may_pass(&self) -> bool {
        let Self::Redis(error) = self else { return false };
        error.is_io_error() || matches!(error.code(), Some("READONLY" | "LOADING" | "UNBLOCKED" | "NOREPLICAS"))
    }
}

/// One attempt and its connection.
pub(super) struct Line {
    client: Client,
    key: String,
    id: String,
    options: Options,
    token: Option<i64>,
    is_plain: bool,
    connection: Option<Connection>,
}

impl Line {
    pub(super) fn new(client: Client, key: String, id: String, options: Options) -> Self {
        Self { client, key, id, options, token: None, is_plain: false, connection: None }
    }

    pub(super) fn token(&self) -> Option<i64> {
        self.token
    }

    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    pub(super) fn refused(&self) -> Error {
        Error::Refused(format!("somebody else has the lock '{}'", self.key))
    }

    pub(super) fn lost(&self, why: &str) -> Error {
        Error::Lost(format!("the lock '{}' is lost: {why}", self.key))
    }

    /// The reply to LOCK.<name>, or to the script that stands for it: an integer, or none for nil.
    pub(super) fn exchange(&mut self, name: &str, piece: Duration) -> Result<Option<i64>, Error> {
        self.exchange_within(self.options.timeout, name, piece)
    }

    /// Takes no longer than this in all, connecting included.
    pub(super) fn exchange_within(
        &mut self,
        time: Duration,
        name: &str,
        piece: Duration,
    ) -> Result<Option<i64>, Error> {
        match self.ask(time, &self.command(name, piece)) {
            Ok(Value::Nil) if name == "ACQUIRE" => Ok(None),
            Ok(Value::Int(granted)) if name == "ACQUIRE" && granted > 0 => {
                self.token = (!self.is_plain).then_some(granted);
                Ok(Some(granted))
            }
            Ok(Value::Int(result @ -1..=1)) if name != "ACQUIRE" => Ok(Some(result)),
            Ok(other) => Err(Error::Reply(format!("LOCK.{name} of the lock '{}' was answered {other:?}", self.key))),
            Err(error) if !self.is_plain && error.to_string().contains("unknown command") => {
                let text = format!("the lock '{}': the server does not know LOCK.*: {error}", self.key);
                if name != "ACQUIRE" || !self.options.fallback {
                    return Err(Error::Unsupported(text));
                }
                (self.options.on_fallback)(&format!("{text}; SET NX PX instead, without order and token"));
                self.is_plain = true;
                self.exchange_within(time, name, piece)
            }
            Err(error) => Err(Error::Redis(error)),
        }
    }

    fn command(&self, name: &str, piece: Duration) -> Cmd {
        let lease = millis(self.options.lease);
        if self.is_plain {
            let script = match name {
                "ACQUIRE" => format!("{ACQUIRE}{EXTEND}"),
                "EXTEND" => format!("{EXTEND}return 0"),
                _ => RELEASE.into(),
            };
            // Letters in the value: to the module it is no timestamp, so never expired.
            return cmd("EVAL").arg(script).arg(1).arg(&self.key).arg(format!("id:{}", self.id)).arg(lease).take();
        }
        let mut command = cmd(&format!("LOCK.{name}"));
        command.arg(&self.key);
        match name {
            "ACQUIRE" => {
                command.arg("PX").arg(lease).arg("WAIT").arg(millis(piece)).arg("ID").arg(&self.id);
                self.options.owner.iter().for_each(|owner| _ = command.arg("OWNER").arg(owner));
                if self.options.session {
                    command.arg("SESSION");
                }
            }
            "CANCEL" => _ = command.arg(&self.id),
            _ => _ = command.arg(self.token),
        }
        if name == "EXTEND" {
            command.arg("PX").arg(lease);
        }
        command
    }

    fn ask(&mut self, time: Duration, command: &Cmd) -> Result<Value, RedisError> {
        let begin = Instant::now();
        let connection = match &mut self.connection {
            Some(connection) => connection,
            // Of this it takes as much again for each of four replies, if they do not come.
            none => none.insert(self.client.get_connection_with_timeout(time / 5)?),
        };
        let rest = time.saturating_sub(begin.elapsed()).max(Duration::from_millis(1));
        connection.set_read_timeout(Some(rest))?;
        connection.set_write_timeout(Some(rest))?;
        command.query(connection)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
