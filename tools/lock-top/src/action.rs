//! An operator's actions on a lock: the command, and what its reply means. Nothing is sent without confirmation.

use crate::model::Name;
use crate::text::word;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The token belongs to the holder that was shown: if another client holds the lock by now, nothing changes.
    Release {
        token: u64,
    },
    /// For a foreign lock, which has no token.
    Delete,
    Cancel {
        id: String,
    },
    CancelChannel {
        channel: Vec<u8>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub address: String,
    pub name: Name,
    pub what: What,
    /// The client whose grant or wait this ends, for the confirmation.
    pub who: String,
}

impl Action {
    /// The command with its arguments.
    pub fn command(&self) -> Vec<Vec<u8>> {
        let key = self.name.key.clone();
        match &self.what {
            What::Release { token } => vec![b"LOCK.RELEASE".to_vec(), key, token.to_string().into_bytes()],
            What::Delete => vec![b"DEL".to_vec(), key],
            What::Cancel { id } => vec![b"LOCK.CANCEL".to_vec(), key, id.clone().into_bytes()],
            What::CancelChannel { channel } => {
                vec![b"LOCK.CANCEL".to_vec(), key, b"CHANNEL".to_vec(), channel.clone()]
            }
        }
    }

    /// The command as text.
    pub fn text(&self) -> String {
        let words: Vec<String> = self.command().iter().map(|bytes| word(bytes)).collect();
        let db = if self.name.db == 0 { String::new() } else { format!(" in database {}", self.name.db) };
        format!("{}{db}", words.join(" "))
    }

    /// What the command does, for the confirmation.
    pub fn warning(&self) -> &'static str {
        match self.what {
            What::Release { .. } => "The holder notices at its next call. Make sure that it has stopped.",
            What::Delete => "Another program wrote this value. That program is not notified.",
            What::Cancel { .. } => "This waiter gets nil, and leaves the line.",
            What::CancelChannel { .. } => "All waiters of this channel leave the line.",
        }
    }

    /// The outcome in one line.
    pub fn outcome(&self, reply: i64) -> String {
        let what = match (&self.what, reply) {
            (What::Release { .. }, 1) => "released",
            (What::Release { .. }, -1) => "released after it had expired",
            (What::Release { .. }, _) => "that grant had ended: nothing changed",
            (What::Delete, 1) => "deleted",
            (What::Delete, _) => "it was gone or is no longer foreign: nothing changed",
            (What::Cancel { .. }, 1) => "cancelled",
            (What::Cancel { .. }, _) => "that attempt had ended: nothing changed",
            (What::CancelChannel { .. }, count) => {
                return format!("{}: {count} attempts cancelled", self.name.label());
            }
        };
        format!("{}: {what}", self.name.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(what: What) -> Action {
        Action { address: "a:1".into(), name: Name { db: 0, key: b"re\xffport".to_vec() }, what, who: String::new() }
    }

    #[test]
    fn each_action_is_the_documented_command() {
        let text = |what| action(what).text();
        assert_eq!(text(What::Release { token: 7 }), "LOCK.RELEASE re\\xffport 7");
        assert_eq!(text(What::Delete), "DEL re\\xffport");
        assert_eq!(text(What::Cancel { id: "4711".into() }), "LOCK.CANCEL re\\xffport 4711");
        let channel = What::CancelChannel { channel: b"locks:a1".to_vec() };
        assert_eq!(text(channel), "LOCK.CANCEL re\\xffport CHANNEL locks:a1");
        let other = Action { name: Name { db: 3, key: b"k".to_vec() }, ..action(What::Delete) };
        assert_eq!(other.text(), "DEL k in database 3");
        assert_eq!(action(What::Delete).command()[1], b"re\xffport");
    }

    #[test]
    fn an_outcome_says_whether_something_changed() {
        let release = action(What::Release { token: 7 });
        assert_eq!(release.outcome(1), "re\\xffport: released");
        assert!(release.outcome(0).ends_with("nothing changed"));
        assert!(release.outcome(-1).contains("expired"));
        assert!(action(What::CancelChannel { channel: vec![] }).outcome(3).ends_with("3 attempts cancelled"));
    }
}
