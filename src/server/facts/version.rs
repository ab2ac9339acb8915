//! The kind and version of the server, for the few things that cannot be found out in any other way.

use crate::lock::record::number;
use crate::server::api::context::Context;

/// A server and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Redis, or a server that claims to be.
    Redis(u64, u64, u64),
    /// Valkey, which also reports itself as Redis 7.2.4.
    Valkey(u64, u64, u64),
}

impl Version {
    /// The server's version.
    #[must_use]
    pub fn of(context: &Context) -> Self {
        let version = |field| context.server_info(c"server", field);
        Self::read(version(c"redis_version").as_deref(), version(c"valkey_version").as_deref())
    }

    /// Reads the fields `redis_version` and `valkey_version` of INFO.
    #[must_use]
    pub fn read(redis: Option<&str>, valkey: Option<&str>) -> Self {
        let parts = |text: &str| {
            let mut parts = text.split('.').map(|part| number(part.as_bytes()).unwrap_or(0));
            (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0))
        };
        if let Some(text) = valkey {
            let (major, minor, patch) = parts(text);
            Self::Valkey(major, minor, patch)
        } else {
            let (major, minor, patch) = parts(redis.unwrap_or(""));
            Self::Redis(major, minor, patch)
        }
    }

    /// Whether it is Valkey.
    #[must_use]
    pub const fn is_valkey(self) -> bool {
        matches!(self, Self::Valkey(..))
    }

    /// Whether CLIENT UNBLOCK is safe: before Redis 7.4 and Valkey 8.0, the callback that it needs can lose a reply or
    /// crash the server.
    #[must_use]
    pub fn can_be_unblocked(self) -> bool {
        match self {
            Self::Redis(major, minor, _) => (major, minor) >= (7, 4),
            Self::Valkey(major, ..) => major >= 8,
        }
    }

    /// Whether its source shows how a replication sink begins: from Redis 7.0 to 8.10 and Valkey 8.0 to 9.1, a new
    /// replica or AOF waits for a fork. A server that sends its data without a fork would not announce them. 6.2
    /// replicates module commands differently.
    #[must_use]
    pub fn has_known_sinks(self) -> bool {
        match self {
            Self::Redis(major, minor, _) => ((7, 0)..=(8, 10)).contains(&(major, minor)),
            Self::Valkey(major, minor, _) => ((8, 0)..=(9, 1)).contains(&(major, minor)),
        }
    }

    /// Whether a module can subscribe to generic keyspace events without harm to others: from Valkey 8.1 until the fix
    /// (pull request 4024), the event of a MOVE or COPY leaves its client in the other database.
    #[must_use]
    pub fn has_safe_key_events(self) -> bool {
        match self {
            Self::Redis(..) => true,
            Self::Valkey(major, minor, patch) => !((8, 1, 0)..(9, 1, 2)).contains(&(major, minor, patch)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_differs_from_redis_7_2_4() {
        assert_eq!(Version::read(Some("7.2.4"), Some("9.1.2")), Version::Valkey(9, 1, 2));
        assert_eq!(Version::read(Some("7.0.15"), None), Version::Redis(7, 0, 15));
        assert_eq!(Version::read(Some("8.10"), None), Version::Redis(8, 10, 0));
        assert_eq!(Version::read(None, None), Version::Redis(0, 0, 0));
    }

    #[test]
    fn sinks_of_unread_versions_are_unknown() {
        let known = [(7, 0, 0), (7, 2, 4), (8, 6, 3), (8, 10, 2)].map(|(a, b, c)| Version::Redis(a, b, c));
        assert!(known.into_iter().all(Version::has_known_sinks));
        assert!([(8, 0, 1), (8, 1, 8), (9, 1, 2)]
            .map(|(a, b, c)| Version::Valkey(a, b, c))
            .into_iter()
            .all(Version::has_known_sinks));
        assert!(!Version::Redis(6, 2, 14).has_known_sinks());
        assert!(!Version::Redis(8, 11, 0).has_known_sinks());
        assert!(!Version::Valkey(7, 2, 5).has_known_sinks());
        assert!(!Version::Valkey(9, 2, 0).has_known_sinks());
    }

    #[test]
    fn server_bugs_are_avoided() {
        assert!(!Version::Redis(7, 2, 9).can_be_unblocked());
        assert!(Version::Redis(7, 4, 0).can_be_unblocked());
        assert!(!Version::Valkey(7, 2, 5).can_be_unblocked());
        assert!(Version::Valkey(8, 0, 1).has_safe_key_events());
        assert!(!Version::Valkey(8, 1, 8).has_safe_key_events());
        assert!(!Version::Valkey(9, 0, 3).has_safe_key_events());
        assert!(Version::Valkey(9, 1, 2).has_safe_key_events());
    }
}
