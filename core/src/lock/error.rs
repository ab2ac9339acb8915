//! Every error that the commands reply with, and its text on the wire, in one place.
//!
//! A text begins with an error code and names the wrong argument. Where clients have to react differently to the same
//! error code, the text's first words tell the cases apart: docs/COMMANDS.md lists them.

use super::holders;
use std::fmt;

/// Why a command was refused. A refused command changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The value of `EX` or `PX`.
    Lease,
    /// The value of `WAIT`.
    Wait,
    Token,
    /// The value of `ID`, or the ID of LOCK.CANCEL.
    Id,
    /// The value of `OWNER`.
    Owner,
    /// The value of `LIMIT`.
    Limit,
    /// `SHARED` and `LIMIT`.
    ShareTwice,
    /// The key's name.
    KeyLength,
    /// The name of one of several keys, counted from 1.
    KeyLengthOf(usize),
    /// The names of several keys, up to this one, counted from 1.
    KeysLength(usize),
    /// `numkeys`.
    NumKeys,
    /// Two of the keys, counted from 1, are the same.
    SameKey {
        /// The later one.
        key: usize,
        earlier: usize,
    },
    /// The cursor of LOCK.SCAN.
    Cursor,
    /// The STATE of LOCK.SCAN.
    StateName,
    /// The CLIENT of LOCK.SCAN.
    Client,
    /// The BY of LOCK.TOP.
    By,
    /// Neither `EX` nor `PX` is given.
    LeaseMissing,
    /// `EX` or `PX` twice, or one of each.
    LeaseTwice,
    /// An option is given twice.
    Twice(&'static str),
    /// An option is the last argument: its value is missing.
    NoValue(&'static str),
    /// Argument `position`, counted from 1 after the command name, is not an option of the command.
    NotAnOption {
        /// Which argument.
        position: usize,
        /// The command, as users write it.
        command: &'static str,
    },
    /// The key holds a type that cannot be a lock.
    WrongType,
    /// The server has no usable clock.
    Clock,
    /// The server's grace lasts for this many more milliseconds.
    Grace(u64),
    /// The lease could outlive a new master's grace. The longest lease allowed, in milliseconds.
    LeaseBeyondGrace(u64),
    /// The server does not know whether it is still the master.
    NoReplicas,
    /// This wait would exceed `lock.max-waiters`.
    BusyLocks,
    /// This wait would exceed `lock.max-queued`, the number of keys for which attempts wait without a connection.
    BusyQueue,
    /// Too many attempts for several keys have this ID.
    BusyId,
    /// The value of WAIT with NOTIFY or SNOTIFY.
    NotifyWaitTooLong,
    /// The result of LOCK.RELEASE. The longest that `lock.result-max` allows, in bytes.
    ResultLength(usize),
    /// RESULT for a key with several holders.
    ResultOfSeveral,
    /// RESULT and an option that asks for something else.
    ResultWith {
        /// The other option.
        option: &'static str,
    },
    /// The value of NOTIFY or SNOTIFY.
    Channel,
    /// NOTIFY and SNOTIFY.
    ChannelTwice,
    /// An option without another that it needs.
    Needs {
        option: &'static str,
        /// The option that is missing.
        missing: &'static str,
    },
    /// In a cluster, the value of SNOTIFY.
    ChannelSlot,
    /// This server cannot publish for a module.
    ChannelVersion,
    /// The user may not use the channel.
    NoPermission,
    /// SESSION in a command that did not come from a connection.
    Session,
    /// An attempt that holds the lock with SHARED or LIMIT asks for it again without them.
    HeldAmongSeveral,
    /// An attempt that holds the lock alone asks for it again with SHARED or LIMIT.
    HeldAlone,
    /// A sorted set with more members than a lock can have holders.
    TooManyHolders,
    /// The wait would never end.
    Deadlock,
    /// The COUNT of LOCK.TOP.
    Count,
    /// The wait ended: a newer command with the same ID took its place.
    Replaced,
    /// This server is a replica, whether it lets clients write or not.
    ReadOnly,
    /// The wait ended: this server became a replica.
    Demoted,
    /// The wait ended: this server no longer serves the slot of the key.
    SlotLost,
    /// The keys are in different slots of the cluster.
    CrossSlot,
    /// The slot of the keys is being moved, and some of them may already be on another server.
    SlotMoving,
    /// The server did not carry out a write.
    Internal,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease => out.write_str("ERR lease is not a whole number between 1 ms and 10 years"),
            Self::Wait => out.write_str("ERR wait is not a whole number between 0 ms and 10 years"),
            Self::Token => out.write_str("ERR token is not a whole number between 0 and 9007199254740991"),
            Self::Id => out.write_str("ERR id is not a whole number of 1 to 19 digits"),
            Self::Owner => out.write_str("ERR owner is not 1 to 128 visible ASCII characters without a space"),
            Self::Limit => write!(out, "ERR limit is not a whole number between 1 and {}", holders::MOST),
            Self::ShareTwice => out.write_str("ERR syntax error: SHARED and LIMIT exclude each other"),
            Self::KeyLength => out.write_str("ERR key is longer than 4096 bytes"),
            Self::KeyLengthOf(key) => write!(out, "ERR key {key} is longer than 4096 bytes"),
            Self::KeysLength(key) => write!(out, "ERR keys 1 to {key} total more than 262144 bytes"),
            Self::NumKeys => {
                out.write_str("ERR numkeys is not a whole number between 1 and 1024 that fits the arguments")
            }
            Self::SameKey { key, earlier } => write!(out, "ERR key {key} is the same as key {earlier}"),
            Self::Cursor => out.write_str("ERR cursor is not a whole number as returned by LOCK.SCAN"),
            Self::StateName => out.write_str("ERR state is not held, expired or foreign"),
            Self::Client => out.write_str("ERR client is not a whole number as returned by CLIENT ID"),
            Self::By => out.write_str("ERR by is not waiters, wait or held"),
            Self::LeaseMissing => out.write_str("ERR syntax error: EX or PX is missing"),
            Self::LeaseTwice => out.write_str("ERR syntax error: EX or PX is given twice"),
            Self::Twice(option) => write!(out, "ERR syntax error: {option} is given twice"),
            Self::NoValue(option) => write!(out, "ERR syntax error: {option} has no value"),
            Self::NotAnOption { position, command } => {
                write!(out, "ERR syntax error: argument {position} is not an option of {command}")
            }
            Self::WrongType => out.write_str("WRONGTYPE Operation against a key holding the wrong kind of value"),
            Self::Clock => {
                out.write_str("CLOCK the server's clock is before 2001-09-09 or after 2250: no lock is granted")
            }
            Self::Grace(left_ms) => write!(
                out,
                "GRACE this server has just started or become master: no lock is granted for another {left_ms} ms"
            ),
            Self::LeaseBeyondGrace(longest_ms) => {
                write!(out, "GRACE lease is longer than {longest_ms} ms, the most that lock.failover-grace-ms covers")
            }
            Self::NoReplicas => out.write_str(
                "NOREPLICAS too few replicas have answered recently, or since this server stalled or its clock was set: no lease until enough have",
            ),
            Self::BusyId => out.write_str("BUSYLOCKS 64 waits for several keys already use this id"),
            Self::BusyLocks => out.write_str("BUSYLOCKS lock.max-waiters would be exceeded by this wait"),
            Self::BusyQueue => out.write_str(
                "BUSYLOCKS attempts are already waiting without a connection for lock.max-queued keys on this server",
            ),
            Self::NotifyWaitTooLong => out.write_str("ERR wait is longer than 1 hour, the maximum with NOTIFY or SNOTIFY"),
            Self::Channel => out.write_str("ERR channel is not 1 to 256 bytes long"),
            Self::ChannelTwice => out.write_str("ERR syntax error: NOTIFY and SNOTIFY exclude each other"),
            Self::Needs { option, missing } => write!(out, "ERR syntax error: {option} needs {missing}"),
            Self::ResultLength(most) => write!(out, "ERR result is longer than {most} bytes, the limit lock.result-max"),
            Self::ResultOfSeveral => out.write_str("ERR RESULT needs a lock with one holder, and the key has several"),
            Self::ResultWith { option } => write!(out, "ERR syntax error: RESULT and {option} exclude each other"),
            Self::ChannelSlot => out.write_str("ERR channel does not hash to the slot of the key"),
            Self::ChannelVersion => {
                out.write_str("ERR NOTIFY and SNOTIFY need Redis 7.0 or later, or any version of Valkey")
            }
            Self::NoPermission => out.write_str("NOPERM this user has no permission to access the channel"),
            Self::Session => {
                out.write_str("ERR SESSION needs a connection, not a script, a function or another module")
            }
            Self::HeldAmongSeveral => out.write_str(
                "ERR id holds this lock with SHARED or LIMIT: send it again with one of them, or use a new id",
            ),
            Self::HeldAlone => out.write_str(
                "ERR id holds this lock without SHARED and LIMIT: send it again without them, or use a new id",
            ),
            Self::TooManyHolders => write!(
                out,
                "WRONGTYPE the sorted set has more than {} members, more than a lock can have holders",
                holders::MOST
            ),
            Self::Deadlock => out
                .write_str("DEADLOCK the holder of the key is waiting, directly or indirectly, for a lock of this client"),
            Self::Count => out.write_str("ERR count is not a whole number between 1 and 1000"),
            Self::Replaced => out.write_str("UNBLOCKED a newer call with the same id replaced this one"),
            Self::ReadOnly => out.write_str("READONLY this server is a replica: locks change only on its master"),
            Self::Demoted => out.write_str("UNBLOCKED this server became a replica while the client waited"),
            Self::SlotLost => out
                .write_str("UNBLOCKED the slot of the key left this server, or is not served, while the client waited"),
            // The servers' own texts.
            Self::CrossSlot => out.write_str("CROSSSLOT Keys in request don't hash to the same slot"),
            Self::SlotMoving => out.write_str("TRYAGAIN Multiple keys request during rehashing of slot"),
            Self::Internal => out.write_str("ERR internal error in the lock module; see the server's log"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_opens_with_an_error_code_and_names_the_argument() {
        for (error, text) in [
            (Error::Limit, "ERR limit is not a whole number between 1 and 4096"),
            (Error::SameKey { key: 3, earlier: 1 }, "ERR key 3 is the same as key 1"),
            (Error::Twice("WAIT"), "ERR syntax error: WAIT is given twice"),
            (
                Error::Grace(59_900),
                "GRACE this server has just started or become master: no lock is granted for another 59900 ms",
            ),
            (
                Error::Deadlock,
                "DEADLOCK the holder of the key is waiting, directly or indirectly, for a lock of this client",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    /// The errors that docs/COMMANDS.md distinguishes by their first words.
    fn distinguished() -> [(Error, &'static str); 7] {
        [
            (Error::Grace(5), "GRACE this server"),
            (Error::LeaseBeyondGrace(5), "GRACE lease"),
            (Error::BusyLocks, "BUSYLOCKS lock.max-waiters"),
            (Error::BusyQueue, "BUSYLOCKS attempts"),
            (Error::BusyId, "BUSYLOCKS 64 waits"),
            (Error::ChannelVersion, "ERR NOTIFY and SNOTIFY need"),
            (Error::Session, "ERR SESSION needs"),
        ]
    }

    #[test]
    fn the_documented_first_words_of_an_error_are_unique() {
        let page = include_str!("../../../docs/COMMANDS.md");
        let section = page.split("| begins with |").nth(1).unwrap().split("\n\n").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" ...`"));
        let documented: Vec<&str> = rows.map(|(words, _)| words).collect();
        let known = distinguished();
        assert_eq!(documented, known.map(|(_, words)| words));
        for (error, words) in known {
            let begin = |other: &&(Error, &str)| other.0.to_string().starts_with(words);
            assert_eq!(known.iter().filter(begin).map(|(other, _)| *other).collect::<Vec<_>>(), [error]);
        }
    }

    #[test]
    fn errors_of_a_cluster_have_their_own_codes() {
        for (error, text) in [
            (Error::ChannelSlot, "ERR channel does not hash to the slot of the key"),
            (Error::CrossSlot, "CROSSSLOT Keys in request don't hash to the same slot"),
            (Error::SlotMoving, "TRYAGAIN Multiple keys request during rehashing of slot"),
            (Error::Demoted, "UNBLOCKED this server became a replica while the client waited"),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
