//! A sorted set of holders as other commands read it and change it.

use super::fixture::{expires_at_ms, retained_ms};
use super::RETENTION_MS;
use std::collections::BTreeMap;
use testkit::{Conn, Reply};

/// A sorted set's members with their timestamps in microseconds; none if the key has another type.
#[derive(Debug, PartialEq)]
pub struct Holders(BTreeMap<String, i64>);

impl Holders {
    pub fn of(conn: &mut Conn, key: &str) -> Self {
        if conn.text(&["TYPE", key]) != "zset" {
            return Self(BTreeMap::new());
        }
        let members = conn.execute(&["ZRANGE", key, "0", "-1"]);
        let score = |member: &Reply, conn: &mut Conn| micros(&conn.text(&["ZSCORE", key, &member.text()]));
        Self(members.list().iter().map(|member| (member.text(), score(member, conn))).collect())
    }

    /// Adds a grant with no ID and no owner, for `ms` from its token on.
    pub fn and(mut self, token: i64, ms: i64) -> Self {
        assert!(self.0.insert(token.to_string(), token + ms * 1000).is_none());
        self
    }

    pub fn has(&self, token: &str) -> bool {
        self.0.keys().any(|member| member.starts_with(token))
    }

    /// When the grant ends.
    pub fn end_of(&self, token: &str) -> i64 {
        self.0[&self.member(token)]
    }

    pub fn with_end(mut self, token: &str, end: i64) -> Self {
        let member = self.member(token);
        self.0.insert(member, end);
        self
    }

    pub fn without(mut self, token: &str) -> Self {
        let member = self.member(token);
        self.0.remove(&member);
        self
    }

    fn member(&self, token: &str) -> String {
        let own: Vec<_> = self.0.keys().filter(|member| member.starts_with(token)).collect();
        assert_eq!(own.len(), 1, "{token}: {self:?}");
        own[0].clone()
    }

    /// Asserts that the key is this set, and expires when the retention of its last grant ends.
    pub fn assert_in(&self, conn: &mut Conn, key: &str, what: &str) {
        assert_eq!(conn.text(&["TYPE", key]), "zset", "{what}");
        assert_eq!(*self, Self::of(conn, key), "{what}");
        let last = *self.0.values().max().unwrap();
        assert_eq!(expires_at_ms(conn, key), retained_ms(last, RETENTION_MS), "{what}");
    }
}

/// A score in microseconds, exact to one, as in a double.
#[allow(clippy::cast_possible_truncation)]
fn micros(score: &str) -> i64 {
    // In RESP3 a double begins with a comma.
    (score.trim_start_matches(',').parse::<f64>().unwrap() * 1e6).round() as i64
}
