//! A connection to a server: one query at a time, each with a deadline; an error is one line that says what to do.

use crate::target::Target;
use redis::{ErrorKind, RedisError, Value};
use std::fmt;
use std::time::Duration;

/// How long a server may take to accept a connection, and to reply.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The connection can no longer be used.
    Lost(String),
    /// The server replied with an error.
    Said(String),
}

impl Trouble {
    fn said(&self, what: impl Fn(&str) -> bool) -> bool {
        matches!(self, Self::Said(text) if what(text))
    }

    pub fn is_denied(&self) -> bool {
        self.said(|text| text.starts_with("NOPERM"))
    }

    /// Whether the ACL denies the key rather than the command.
    pub fn is_denied_key(&self) -> bool {
        self.is_denied() && self.said(|text| !text.contains("to run the"))
    }

    pub fn is_unknown_command(&self) -> bool {
        self.said(|text| text.to_lowercase().contains("unknown command"))
    }

    pub fn is_syntax(&self) -> bool {
        self.said(|text| text.starts_with("ERR") && !text.to_lowercase().contains("unknown command"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(text) if text.starts_with("NOAUTH") => out.write_str("the server asks for a password"),
            Self::Said(text) if text.starts_with("WRONGPASS") => out.write_str("wrong user or password"),
            Self::Lost(text) | Self::Said(text) => out.write_str(text),
        }
    }
}

pub struct Link {
    connection: redis::Connection,
    db: i64,
    is_tls: bool,
    has_answered: bool,
}

impl Link {
    pub fn open(target: &Target) -> Result<Self, Trouble> {
        let is_tls = target.login().tls;
        let open = || {
            let connection = target.client()?.get_connection_with_timeout(PATIENCE)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.set_write_timeout(Some(PATIENCE))?;
            Ok(connection)
        };
        let connection = open().map_err(|error| trouble(&error, is_tls, true))?;
        Ok(Self { connection, db: 0, is_tls, has_answered: false })
    }

    /// Sends a command, and waits for its reply.
    pub fn ask<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Result<Value, Trouble> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        let reply = command.query::<Value>(&mut self.connection);
        let reply = reply.map_err(|error| trouble(&error, self.is_tls, !self.has_answered))?;
        self.has_answered = true;
        Ok(reply)
    }

    /// Like [`Self::ask`], in the given database.
    pub fn ask_in<T: AsRef<[u8]>>(&mut self, db: i64, words: &[T]) -> Result<Value, Trouble> {
        if self.db != db {
            self.ask(&["SELECT", &db.to_string()])?;
            self.db = db;
        }
        self.ask(words)
    }
}

/// Translates an error of the client library. `is_first`: the server has never replied on this connection.
fn trouble(error: &RedisError, is_tls: bool, is_first: bool) -> Trouble {
    if error.kind() == ErrorKind::AuthenticationFailed {
        let detail = error.detail().unwrap_or_default();
        let text = if detail.is_empty() { "wrong user or password" } else { detail };
        return Trouble::Said(if text.contains("WRONGPASS") { "wrong user or password".into() } else { text.into() });
    }
    if let Some(code) = error.code() {
        return Trouble::Said([code, error.detail().unwrap_or_default()].join(" ").trim_end().into());
    }
    let text = error.to_string();
    let hint = match (is_first, is_tls) {
        _ if error.is_connection_refusal() => "",
        (true, false) if error.is_connection_dropped() || error.kind() == ErrorKind::Parse => {
            "; if it speaks TLS: --tls"
        }
        (true, true)
            if error.is_timeout() || text.contains("InvalidContentType") || text.contains("InvalidMessage") =>
        {
            "; does it speak TLS? try without"
        }
        _ => "",
    };
    let what = if error.is_timeout() {
        format!("no answer within {} s", PATIENCE.as_secs())
    } else if text.contains("UnknownIssuer") {
        "certificate signed by an unknown authority; see --cacert".into()
    } else if error.is_connection_refusal() {
        "connection refused".into()
    } else if error.is_connection_dropped() {
        "the server closed the connection".into()
    } else {
        text.lines().next().unwrap_or("no connection").into()
    };
    Trouble::Lost(format!("{what}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn errors_are_distinct() {
        let said = |text: &str| Trouble::Said(text.into());
        let command = said("NOPERM this user has no permissions to run the 'lock.top' command");
        assert!(command.is_denied() && !command.is_denied_key());
        assert!(said("NOPERM No permissions to access a key").is_denied_key());
        assert!(said("ERR unknown command 'LOCK.TOP', with args beginning with: ").is_unknown_command());
        assert!(said("ERR syntax error").is_syntax() && !said("ERR unknown command 'x'").is_syntax());
        assert!(!Trouble::Lost("NOPERM".into()).is_denied());
        assert_eq!(said("NOAUTH Authentication required.").to_string(), "the server asks for a password");
        assert_eq!(said("LOADING Redis is loading").to_string(), "LOADING Redis is loading");
    }

    #[test]
    fn only_an_unanswered_connection_hints_at_tls() {
        let text = |kind: io::ErrorKind, is_tls, is_first| {
            trouble(&RedisError::from(io::Error::from(kind)), is_tls, is_first).to_string()
        };
        assert_eq!(text(io::ErrorKind::ConnectionRefused, false, true), "connection refused");
        assert_eq!(
            text(io::ErrorKind::UnexpectedEof, false, true),
            "the server closed the connection; if it speaks TLS: --tls"
        );
        assert_eq!(text(io::ErrorKind::UnexpectedEof, false, false), "the server closed the connection");
        assert_eq!(text(io::ErrorKind::WouldBlock, false, true), "no answer within 2 s");
        assert!(text(io::ErrorKind::WouldBlock, true, true).contains("does it speak TLS?"));
    }
}
