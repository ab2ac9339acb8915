//! Parsed replies of a server.

use std::fmt::Write as _;

/// A parsed reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    Status(String),
    Error(String),
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Other(String),
}

impl Reply {
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(n) => *n,
            other => panic!("not an integer: {other:?}"),
        }
    }

    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::List(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Nil)
    }

    /// The error text, error code first; panics if the reply is not an error.
    pub fn error(&self) -> &str {
        match self {
            Reply::Error(text) => text,
            other => panic!("not an error: {other:?}"),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Reply::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Status(text) => text.clone(),
            other => panic!("not a string: {other:?}"),
        }
    }

    /// The text after a name and a colon on a line, as in INFO.
    pub fn line(&self, name: &str) -> Option<String> {
        let Reply::Text(bytes) = self else { return None };
        let text = String::from_utf8_lossy(bytes);
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_string()))
    }

    /// From INFO server: whether it is Valkey, and its major and minor version.
    pub fn version(&self) -> Option<(bool, u32, u32)> {
        let valkey = self.line("valkey_version");
        let version = valkey.clone().or_else(|| self.line("redis_version"))?;
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        Some((valkey.is_some(), parts.next()?, parts.next()?))
    }

    /// The value of a map's field, in RESP2 (flat array) or RESP3.
    pub fn field(&self, name: &str) -> Reply {
        let named = |key: &Reply| *key == Reply::Text(name.as_bytes().to_vec()) || *key == Reply::Status(name.into());
        match self {
            Reply::List(items) => items.chunks(2).find(|pair| named(&pair[0])).map(|pair| pair[1].clone()),
            Reply::Map(pairs) => pairs.iter().find(|(key, _)| named(key)).map(|(_, value)| value.clone()),
            other => panic!("not a map: {other:?}"),
        }
        .unwrap_or_else(|| panic!("no field {name}: {self:?}"))
    }
}

/// Bytes as text for messages: printable ASCII unchanged, the rest escaped.
pub fn show(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        let _ = write!(out, "{}", byte.escape_ascii());
    }
    out
}
