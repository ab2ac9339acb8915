//! Classifies the errors of the library and the server: whether to retry, and which error users get.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};

use crate::clock::Clock;
use crate::error::{Error, Kind};

/// The outcome of one call.
pub(crate) type Reply = Result<Value, Failure>;

/// One call in flight.
pub(crate) type Call = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Why a call has no useful reply.
pub(crate) enum Failure {
    /// An error reply from the server.
    Reply(ReplyError),
    /// No connection, or no reply in time; the connection is closed.
    Lost(ConnectionLost),
    /// No reply in time, on a connection that others use too. It may still arrive.
    Late(Call),
    /// The caller has given up.
    GivenUp,
    /// An error that users get unchanged.
    Ours(Error),
}

pub(crate) struct ReplyError {
    pub(crate) code: String,
    pub(crate) text: String,
}

pub(crate) struct ConnectionLost {
    text: String,
    /// Whether a retry is pointless, because the server does not let this user in.
    is_final: bool,
    cause: Option<Arc<RedisError>>,
}

impl Failure {
    pub(crate) fn broken(text: impl Into<String>) -> Self {
        Self::Lost(ConnectionLost { text: text.into(), is_final: false, cause: None })
    }

    pub(crate) fn no_reply(within: Duration) -> Self {
        Self::broken(format!("no reply in time, within {within:?}"))
    }

    /// The server does not know the command. The text differs if it comes from within a script.
    pub(crate) fn is_unknown_command(&self) -> bool {
        matches!(self, Self::Reply(said) if said.is_unknown_command())
    }

    /// A call with two keys is not possible, because of the user's permissions, or because their slot is moving.
    pub(crate) fn refuses_queue(&self) -> bool {
        matches!(self.code(), Some("NOPERM" | "TRYAGAIN"))
    }

    /// The holder's result is longer than the module passes on.
    pub(crate) fn is_result_too_long(&self) -> bool {
        matches!(self, Self::Reply(said) if said.text.starts_with("ERR result is longer"))
    }

    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Lost(broken) if broken.is_final)
    }

    /// Whether a blocking connection timed out.
    #[cfg(feature = "blocking")]
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Lost(ConnectionLost { cause: Some(cause), .. }) if cause.is_timeout())
    }

    pub(crate) fn is_connection_lost(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Late(_))
    }

    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Reply(said) => Some(&said.code),
            _ => None,
        }
    }

    /// Whether to retry while wait time remains: the reply may change, for example after a failover.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Lost(broken) => !broken.is_final,
            Self::Late(_) => true,
            Self::Reply(said) => said.passes(),
            Self::GivenUp | Self::Ours(_) => false,
        }
    }

    /// The error message.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Reply(said) => said.text.clone(),
            Self::Lost(broken) => broken.text.clone(),
            Self::Late(_) => "no reply in time".into(),
            Self::GivenUp => "the caller has given up".into(),
            Self::Ours(error) => error.to_string(),
        }
    }

    /// The error that the user gets.
    pub(crate) fn typed(self, key: &Arc<str>) -> Error {
        match self {
            Self::Ours(error) => error,
            Self::GivenUp => Error::new(Kind::Cancelled, key, "the caller has given up"),
            Self::Late(_) => Error::new(Kind::NoServer, key, "no reply in time"),
            Self::Lost(broken) => {
                let kind = if broken.is_final { Kind::Denied } else { Kind::NoServer };
                Error::new(kind, key, broken.text).because(broken.cause)
            }
            Self::Reply(said) => {
                let kind = match said.code.as_str() {
                    "DEADLOCK" => Kind::Deadlock,
                    "NOPERM" => Kind::Denied,
                    "GRACE" | "BUSYLOCKS" | "CLOCK" => Kind::Unavailable,
                    _ if said.passes() || said.is_unknown_command() => Kind::Unavailable,
                    _ => Kind::Argument,
                };
                let text = said.text.clone();
                Error::new(kind, key, text).because(Some(Arc::new(said.into())))
            }
        }
    }
}

impl ReplyError {
    fn is_unknown_command(&self) -> bool {
        let text = self.text.to_ascii_lowercase();
        text.starts_with("err unknown command") || text.starts_with("err unknown redis command")
    }

    /// Whether the same call may succeed a little later.
    fn passes(&self) -> bool {
        match self.code.as_str() {
            "UNBLOCKED" | "MOVED" | "ASK" | "READONLY" | "LOADING" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN"
            | "BUSY" | "MISCONF" | "OOM" | "NOREPLICAS" => true,
            "GRACE" => !self.text.starts_with("GRACE lease"), // longer than any grace covers
            "BUSYLOCKS" => !self.text.starts_with("BUSYLOCKS 64 waits"), // of this ID
            _ => false,
        }
    }
}

impl From<ReplyError> for RedisError {
    fn from(said: ReplyError) -> Self {
        let details = said.text.strip_prefix(&said.code).unwrap_or_default().trim_start().to_owned();
        redis::make_extension_error(said.code, Some(details))
    }
}

/// The value of a reply, or the server's error reply.
pub(crate) fn read(reply: Result<Value, RedisError>) -> Reply {
    match reply {
        Ok(Value::ServerError(error)) => Err(said(error.code(), error.details())),
        Ok(value) => Ok(value),
        Err(error) => Err(failure(error)),
    }
}

/// The meaning of a library error.
pub(crate) fn failure(error: RedisError) -> Failure {
    let is_final = error.kind() == ErrorKind::AuthenticationFailed;
    if let (false, Some(code)) = (is_final, error.code()) {
        return said(code, error.detail());
    }
    let text = error.to_string();
    Failure::Lost(ConnectionLost { text, is_final, cause: Some(Arc::new(error)) })
}

/// The server's error reply.
pub(crate) fn said(code: &str, details: Option<&str>) -> Failure {
    let text = details.map_or_else(|| code.to_owned(), |details| format!("{code} {details}"));
    let refuses_user = matches!(code, "NOAUTH" | "WRONGPASS")
        || code == "ERR" && details.is_some_and(|it| it.starts_with("invalid password") || it.starts_with("AUTH"));
    if refuses_user {
        return Failure::Lost(ConnectionLost { text, is_final: true, cause: None });
    }
    Failure::Reply(ReplyError { code: code.to_owned(), text })
}

/// The reply, or the call itself if none arrives in time.
pub(crate) fn in_time(mut call: Call, timeout: Duration) -> Call {
    Box::pin(async move {
        match tokio::time::timeout(timeout, &mut call).await {
            Ok(reply) => reply,
            Err(_) => Err(Failure::Late(in_time(call, timeout))),
        }
    })
}

/// Awaits a reply until `until`, even a late one.
pub(crate) async fn patient(clock: &Clock, mut call: Call, until: Duration) -> Reply {
    loop {
        match call.await {
            Err(Failure::Late(late)) if clock.now() < until => call = late,
            reply => return reply,
        }
    }
}

/// The text of a reply; empty if it is something else.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Okay => "OK".into(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A field of a reply like that of LOCK.INFO.
pub(crate) fn field<'a>(fields: &'a Value, name: &str) -> Option<&'a Value> {
    fields.as_map_iter()?.find(|(field, _)| text(field) == name).map(|(_, value)| value)
}

/// The number of a reply, if it is one.
pub(crate) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}
