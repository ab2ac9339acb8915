//! Results without the module: the holder stores its result at a key beside the lock's queue before it releases the
//! lock. Those that waited read it once they are granted the lock.

use std::sync::Arc;

use redis::{Cmd, Value};

use crate::clock::milliseconds;
use crate::request::Request;
use crate::resources::Resources;

/// The longest result that is stored.
const LONGEST: usize = 65_536;

/// A result, for any number of callers.
pub(crate) type Bytes = Arc<Vec<u8>>;

/// A stored result, and the token of the grant in which it was computed. The token is 0 if nothing is stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    token: u64,
    value: Vec<u8>,
}

impl Stored {
    fn read(reply: &Value) -> Self {
        let Value::BulkString(bytes) = reply else { return Self::default() };
        let Some(space) = bytes.iter().position(|byte| *byte == b' ') else { return Self::default() };
        let (token, value) = bytes.split_at(space);
        let digits = std::str::from_utf8(token).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(token) => Self { token, value: value.get(1..).unwrap_or_default().to_vec() },
            None => Self::default(),
        }
    }

    /// The result, if it was stored later than the other one.
    pub(crate) fn newer_than(self, other: &Self) -> Option<Vec<u8>> {
        (self.token > other.token).then_some(self.value)
    }
}

impl Resources {
    /// What is stored for the key. `None`: there is no place for it, or the server does not say, so each caller
    /// computes.
    pub(crate) async fn stored(&self, request: &Request) -> Option<Stored> {
        let mut cmd = Cmd::new();
        cmd.arg("GET").arg(request.result()?);
        let reply = self.reach.router.call(request.key(), cmd, self.reach.timeout).await;
        reply.ok().map(|reply| Stored::read(&reply))
    }

    /// Stores a result for a lease, unless it is too long. If that fails, the next in the queue computes.
    pub(crate) async fn store(&self, request: &Request, token: i64, value: &[u8]) {
        let Some(name) = request.result().filter(|_| value.len() <= LONGEST) else { return };
        let mut cmd = Cmd::new();
        let stored = [token.to_string().as_bytes(), b" ", value].concat();
        cmd.arg("SET").arg(name).arg(stored).arg("PX").arg(milliseconds(request.lease));
        let _ = self.reach.router.call(request.key(), cmd, self.reach.timeout).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Stored {
        Stored::read(&Value::BulkString(text.into()))
    }

    #[test]
    fn a_stored_result_has_a_token() {
        for (text, token, value) in [("17 42 pages", 17, "42 pages"), ("17 ", 17, ""), ("007  x", 7, " x")] {
            assert_eq!(read(text), Stored { token, value: value.into() }, "{text}");
        }
        for text in ["", "17", "nonsense", "+1 x", "-1 x", "99999999999999999999999 x"] {
            assert_eq!(read(text), Stored::default(), "{text}");
        }
        assert_eq!(Stored::read(&Value::Nil), Stored::default());
    }

    #[test]
    fn only_a_later_result_counts() {
        assert_eq!(read("18 new").newer_than(&read("17 old")), Some(b"new".to_vec()));
        assert_eq!(read("17 old").newer_than(&read("17 old")), None);
        assert_eq!(read("1 first").newer_than(&read("nonsense")), Some(b"first".to_vec()));
    }
}
