//! Parses replies to LOCK.* by the names of their fields, so that fields which an older or newer module lacks or adds
//! do no harm.

use crate::model::{Holder, Lock, Name, Party, Waiter};
use crate::text::show;
use redis::Value;

/// A map in a reply: a RESP3 map, or RESP2's flat array.
pub struct Fields<'a>(Vec<(&'a Value, &'a Value)>);

impl<'a> Fields<'a> {
    pub fn of(value: &'a Value) -> Self {
        Self(match value {
            Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
            Value::Array(items) => items.chunks_exact(2).filter_map(|two| Some((two.first()?, two.get(1)?))).collect(),
            _ => Vec::new(),
        })
    }

    pub fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.0.iter().find(|(key, _)| bytes(key).as_deref() == Some(name.as_bytes()));
        found.map(|(_, value)| *value).filter(|value| !matches!(value, Value::Nil))
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        number(self.get(name)?)
    }

    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        bytes(self.get(name)?)
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|bytes| show(&bytes))
    }

    pub fn list(&self, name: &str) -> Option<&'a [Value]> {
        list(self.get(name)?)
    }

    fn party(&self) -> Party {
        Party {
            client: self.number("client").or_else(|| self.number("session")),
            addr: self.text("addr"),
            name: self.text("name").filter(|name| !name.is_empty()),
            owner: self.text("owner"),
        }
    }

    fn holder(&self) -> Holder {
        Holder {
            token: self.number("token"),
            id: self.text("id"),
            who: self.party(),
            held_ms: self.number("held-ms"),
            lease_ms: self.number("lease-ms"),
            overdue_ms: self.number("overdue-ms"),
            has_session: self.get("session").is_some(),
        }
    }
}

pub fn list(value: &Value) -> Option<&[Value]> {
    if let Value::Array(items) = value {
        Some(items)
    } else {
        None
    }
}

pub fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone().into_bytes()),
        _ => None,
    }
}

pub fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => String::from_utf8(bytes(other)?).ok()?.parse().ok(),
    }
}

/// The locks that LOCK.TOP lists.
pub fn top(reply: &Value) -> Vec<Lock> {
    let lock = |item| {
        let fields = Fields::of(item);
        let holder = fields.holder();
        let is_held = holder.held_ms.is_some() || holder.who != Party::default();
        Some(Lock {
            name: Name { db: fields.number("db").and_then(|db| i64::try_from(db).ok())?, key: fields.bytes("key")? },
            waiters: fields.number("waiters"),
            oldest_wait_ms: fields.number("oldest-wait-ms"),
            held_ms: holder.held_ms,
            holders: if is_held { vec![holder] } else { Vec::new() },
            ..Lock::default()
        })
    };
    list(reply).unwrap_or_default().iter().filter_map(lock).collect()
}

/// The next cursor of LOCK.SCAN, and the locks of this step.
pub fn scan(reply: &Value, db: i64) -> Option<(u64, Vec<Lock>)> {
    let [cursor, rows] = list(reply)? else { return None };
    let lock = |item| {
        let fields = Fields::of(item);
        let holder = fields.holder();
        Some(Lock {
            name: Name { db, key: fields.bytes("key")? },
            state: fields.text("state"),
            free_in_ms: fields.number("free-in-ms"),
            holder_count: fields.number("holders"),
            holders: if holder.token.is_some() { vec![holder] } else { Vec::new() },
            ..Lock::default()
        })
    };
    Some((number(cursor)?, list(rows)?.iter().filter_map(lock).collect()))
}

/// The reply to LOCK.INFO key FULL.
pub fn info(reply: &Value, name: &Name) -> Option<Lock> {
    let fields = Fields::of(reply);
    let state = fields.text("state")?;
    let only = Some(fields.holder()).filter(|_| matches!(state.as_str(), "held" | "expired"));
    let several = fields.list("holders").map(|rows| rows.iter().map(|row| Fields::of(row).holder()).collect());
    let waiter = |item| {
        let fields = Fields::of(item);
        Waiter {
            id: fields.text("id"),
            who: fields.party(),
            waited_ms: fields.number("waited-ms"),
            left_ms: fields.number("left-ms"),
            channel: fields.bytes("channel"),
        }
    };
    Some(Lock {
        name: name.clone(),
        waiters: fields.number("waiters"),
        oldest_wait_ms: fields.number("oldest-wait-ms"),
        held_ms: fields.number("held-ms"),
        free_in_ms: fields.number("free-in-ms"),
        overdue_ms: fields.number("overdue-ms"),
        holder_count: None,
        holders: several.unwrap_or_else(|| only.into_iter().collect()),
        queue: fields.list("queue").map(|rows| rows.iter().map(waiter).collect()),
        state: Some(state),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn flat(fields: &[(&str, Value)]) -> Value {
        Value::Array(fields.iter().flat_map(|(name, value)| [bulk(name), value.clone()]).collect())
    }

    fn row(more: &[(&str, Value)]) -> Value {
        let fields = [("db", Value::Int(3)), ("key", bulk("k")), ("owner", bulk("alice")), ("held-ms", Value::Int(5))];
        flat(&[&fields[..], &[("waiters", Value::Int(2)), ("oldest-wait-ms", Value::Int(4))], more].concat())
    }

    #[test]
    fn top_is_read_with_unknown_and_missing_fields() {
        let older = top(&Value::Array(vec![row(&[])]));
        assert_eq!(older[0].name, Name { db: 3, key: b"k".into() });
        assert_eq!((older[0].waiters, older[0].oldest_wait_ms, older[0].held_ms), (Some(2), Some(4), Some(5)));
        assert_eq!(older[0].holders[0].who.label(), "alice");
        let newer = top(&Value::Array(vec![row(&[("client", Value::Int(9)), ("addr", bulk("1.2.3.4:5"))])]));
        assert_eq!(newer[0].holders[0].who.long_label(), "alice #9 1.2.3.4:5");
        assert!(top(&Value::Nil).is_empty());
    }

    #[test]
    fn info_has_one_holder_or_several_and_the_queue() {
        let name = Name { db: 0, key: b"k".into() };
        let waiter = flat(&[("id", bulk("5")), ("client", Value::Int(8)), ("name", bulk("")), ("owner", Value::Nil)]);
        let one = flat(&[
            ("state", bulk("held")),
            ("token", Value::Int(77)),
            ("owner", bulk("alice")),
            ("session", Value::Int(6)),
            ("waiters", Value::Int(1)),
            ("queue", Value::Array(vec![waiter])),
        ]);
        let lock = info(&one, &name).unwrap();
        assert_eq!(lock.holders.len(), 1);
        // An older module reports the client only as the session's.
        assert_eq!((lock.holders[0].who.client, lock.holders[0].has_session), (Some(6), true));
        assert_eq!(lock.queue.unwrap()[0].who, Party { client: Some(8), ..Party::default() });

        let holder = |token| flat(&[("token", Value::Int(token)), ("session", Value::Nil)]);
        let several = flat(&[("state", bulk("held")), ("holders", Value::Array(vec![holder(1), holder(2)]))]);
        let lock = info(&several, &name).unwrap();
        assert_eq!(lock.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [Some(1), Some(2)]);
        assert_eq!(lock.queue, None);

        let foreign = info(&flat(&[("state", bulk("foreign")), ("token", Value::Nil)]), &name).unwrap();
        assert!(foreign.is_foreign() && foreign.holders.is_empty());
        assert!(info(&Value::Nil, &name).is_none());
    }

    #[test]
    fn scan_gives_the_cursor_and_its_locks() {
        let rows = vec![flat(&[("key", bulk("a")), ("state", bulk("held")), ("token", Value::Int(1))])];
        let (cursor, locks) = scan(&Value::Array(vec![bulk("12"), Value::Array(rows)]), 2).unwrap();
        assert_eq!((cursor, locks[0].name.db, locks[0].state.as_deref()), (12, 2, Some("held")));
        assert!(scan(&Value::Nil, 0).is_none());
    }
}
