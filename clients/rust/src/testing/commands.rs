//! The commands of the server in memory, read from their words.

use std::time::Duration;

use redis::{PushKind, Value};

use super::lock::{ConnectionId, Request};
use super::memory::{Memory, Reply};

/// What the package reads in the reply to HELLO.
const HELLO: [(&str, i64); 1] = [("proto", 3)];
const LONGEST_RESULT: usize = 65_536;

impl Memory {
    /// Carries out a command. `from` is the connection on which it may block; `None`: the application's. Returns `None`
    /// if the reply comes later.
    pub(super) fn command(&mut self, from: Option<ConnectionId>, words: &[Vec<u8>], now: Duration) -> Option<Reply> {
        let Some((name, rest)) = words.split_first() else { return Some(Err("ERR no command".into())) };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        if let Some(name) = name.strip_prefix("LOCK.") {
            return self.of_lock(from, name, rest, now);
        }
        Some(match (name.as_str(), rest) {
            ("HELLO", _) => Ok(Value::Map(HELLO.map(|(name, value)| (bulk(name), Value::Int(value))).to_vec())),
            ("CLIENT" | "SELECT" | "AUTH", _) => Ok(Value::Okay),
            ("PING", _) => Ok(Value::SimpleString("PONG".into())),
            ("TIME", _) => {
                let time = Self::server_time(now);
                Ok(Value::Array(vec![bulk(&time.as_secs().to_string()), bulk(&time.subsec_micros().to_string())]))
            }
            ("SUBSCRIBE", [channel]) => {
                self.subscribers.extend(from.map(|from| (channel.clone(), from)));
                let data = vec![Value::BulkString(channel.clone()), Value::Int(1)];
                Ok(Value::Push { kind: PushKind::Subscribe, data })
            }
            // Not an unknown command, which would mean that the module is not loaded.
            ("EVAL" | "WAIT" | "WAITAOF", _) => Err(format!("MISCONF the server in memory has no {name}")),
            _ => Err(format!("ERR unknown command '{name}': the server in memory does not have it")),
        })
    }

    fn of_lock(&mut self, from: Option<ConnectionId>, name: &str, words: &[Vec<u8>], now: Duration) -> Option<Reply> {
        let wrong = || Some(Err(format!("ERR wrong arguments for LOCK.{name}")));
        let one = match name {
            "MACQUIRE" => "ACQUIRE",
            "MEXTEND" => "EXTEND",
            "MRELEASE" => "RELEASE",
            name => name,
        };
        let (count, words) =
            if one == name { (Some(1), words) } else { (words.first().and_then(|word| number(word)), rest(words)) };
        let Some((keys, options)) = count.and_then(|count| words.split_at_checked(count)) else { return wrong() };
        let token = options.first().and_then(|word| number::<i64>(word));
        let Some(key) = keys.first() else { return wrong() };
        Some(match (one, token) {
            ("ACQUIRE" | "RECOVER", _) => {
                let Some(mut request) = request(keys, options) else { return wrong() };
                request.is_recovery = one == "RECOVER";
                request.wants_details |= request.is_recovery;
                return self.acquire(from, request, now);
            }
            ("EXTEND", Some(token)) => match options.get(2).and_then(|word| number(word)) {
                Some(lease) => self.extend(keys, token, Duration::from_millis(lease), now),
                None => return wrong(),
            },
            ("RELEASE", Some(token)) if one == name => match rest(options) {
                [] => Ok(Value::Int(self.release(key, token, None, now))),
                [option, result] if option == b"RESULT" && result.len() > LONGEST_RESULT => {
                    Err(format!("ERR result is longer than {LONGEST_RESULT} bytes, the limit lock.result-max"))
                }
                [option, result] if option == b"RESULT" => Ok(Value::Int(self.release(key, token, Some(result), now))),
                _ => return wrong(),
            },
            ("RELEASE", Some(token)) => {
                let released = keys.iter().filter(|key| self.release(key, token, None, now) != 0).count();
                Ok(Value::Int(i64::try_from(released).unwrap_or(i64::MAX)))
            }
            ("CHECK", Some(token)) => Ok(Value::Int(self.check(key, token, now))),
            ("CANCEL", _) => match options.first().and_then(|word| number(word)) {
                Some(id) => Ok(Value::Int(self.cancel(key, id, now))),
                None => return wrong(),
            },
            ("INFO", _) => Ok(self.info(key, now)),
            _ => Err(format!("MISCONF the server in memory has no LOCK.{name}")),
        })
    }
}

/// Reads the options of an attempt.
fn request(keys: &[Vec<u8>], mut options: &[Vec<u8>]) -> Option<Request> {
    let mut request = Request { keys: keys.to_vec(), ..Request::default() };
    while let Some((option, rest)) = options.split_first() {
        options = rest;
        match option.as_slice() {
            b"SHARED" => request.share(),
            b"SESSION" => request.is_session = true,
            b"DETAILS" => request.wants_details = true,
            b"RESULT" => request.wants_result = true,
            _ => {
                let (value, rest) = options.split_first()?;
                options = rest;
                match option.as_slice() {
                    b"PX" => request.lease = Duration::from_millis(number(value)?),
                    b"WAIT" => request.wait = Duration::from_millis(number(value)?),
                    b"ID" => request.id = number(value)?,
                    b"LIMIT" => request.most = Some(number(value)?),
                    b"OWNER" => request.owner = Some(value.clone()),
                    b"NOTIFY" => request.channel = Some(value.clone()),
                    _ => return None,
                }
            }
        }
    }
    Some(request)
}

fn rest(words: &[Vec<u8>]) -> &[Vec<u8>] {
    words.get(1..).unwrap_or_default()
}

fn number<N: std::str::FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.into())
}
