//! Descriptions of the commands for the server: arguments that several commands share.

pub use crate::server::api::command_docs::{Arg, Doc, Flags, KeyAccess, Keys, Kind};

pub const KEY: Arg = Arg { name: c"key", kind: Kind::Key, token: None, optional: false };
/// How many keys there are.
pub const NUMKEYS: Arg = Arg { name: c"numkeys", kind: Kind::Integer, token: None, optional: false };
pub const KEYS: Arg = Arg { name: c"key", kind: Kind::Keys, token: None, optional: false };
/// `[SHARED|LIMIT n]`
pub const SHARE: Arg = Arg {
    name: c"share",
    kind: Kind::OneOf(&[
        Arg { name: c"shared", kind: Kind::Token, token: Some(c"SHARED"), optional: false },
        Arg { name: c"limit", kind: Kind::Integer, token: Some(c"LIMIT"), optional: false },
    ]),
    token: None,
    optional: true,
};
/// The token of a grant.
pub const TOKEN: Arg = Arg { name: c"token", kind: Kind::Integer, token: None, optional: false };
/// `EX seconds|PX milliseconds`
pub const LEASE: Arg = Arg {
    name: c"lease",
    kind: Kind::OneOf(&[
        Arg { name: c"seconds", kind: Kind::Integer, token: Some(c"EX"), optional: false },
        Arg { name: c"milliseconds", kind: Kind::Integer, token: Some(c"PX"), optional: false },
    ]),
    token: None,
    optional: false,
};
/// `[WAIT milliseconds]`
pub const WAIT: Arg = Arg { name: c"wait", kind: Kind::Integer, token: Some(c"WAIT"), optional: true };
/// `[ID id]`
pub const ID: Arg = Arg { name: c"id", kind: Kind::Integer, token: Some(c"ID"), optional: true };
/// `[OWNER name]`
pub const OWNER: Arg = Arg { name: c"owner", kind: Kind::String, token: Some(c"OWNER"), optional: true };
/// `[NOTIFY channel|SNOTIFY channel]`
pub const NOTIFY: Arg = Arg {
    name: c"notify",
    kind: Kind::OneOf(&[
        Arg { name: c"channel", kind: Kind::String, token: Some(c"NOTIFY"), optional: false },
        Arg { name: c"shard-channel", kind: Kind::String, token: Some(c"SNOTIFY"), optional: false },
    ]),
    token: None,
    optional: true,
};
/// `[RESULT]`: the caller takes a result
pub const WANTS_RESULT: Arg = Arg { name: c"result", kind: Kind::Token, token: Some(c"RESULT"), optional: true };
/// `[RESULT value]`
pub const RESULT: Arg = Arg { name: c"value", kind: Kind::String, token: Some(c"RESULT"), optional: true };
/// `[SESSION]`
pub const SESSION: Arg = Arg { name: c"session", kind: Kind::Token, token: Some(c"SESSION"), optional: true };
/// `[DETAILS]`
pub const DETAILS: Arg = Arg { name: c"details", kind: Kind::Token, token: Some(c"DETAILS"), optional: true };
