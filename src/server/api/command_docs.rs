//! The description of a command for the server: for COMMAND INFO, COMMAND DOCS, redis-cli hints, ACLs and cluster
//! routing.

use redis_module::raw;
use std::ffi::CStr;

pub struct Doc {
    /// Its name, in lower case.
    pub name: &'static CStr,
    /// What it does, in one sentence.
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
    /// The number of arguments, including the name; if negative, the minimum.
    pub arity: i32,
    pub flags: Flags,
    pub keys: Keys,
    pub args: &'static [Arg],
}

/// What kind of command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Writes, and needs memory for it; may block.
    WriteDenyOomBlocking,
    /// Writes, and needs memory for it.
    WriteDenyOom,
    /// Writes, or frees memory.
    Write,
    /// Like `Write`, for many keys or attempts.
    WriteSlow,
    Read,
    /// Reads, and may have a long reply.
    ReadSlow,
    /// Reads keys that it does not name, if its caller may read them. For operators if the server does not report
    /// permissions.
    ReadUnnamed,
    /// Reads the state of the whole server: for operators.
    Admin,
    /// Touches no data.
    Help,
}

impl Flags {
    /// Whether a command with these flags grants, extends, releases or cancels: it is refused on a replica.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Self::WriteDenyOomBlocking | Self::WriteDenyOom | Self::Write | Self::WriteSlow => true,
            Self::Read | Self::ReadSlow | Self::ReadUnnamed | Self::Admin | Self::Help => false,
        }
    }
}

/// Where the keys of a command are, and what it does to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    None,
    /// The first argument.
    First(KeyAccess),
    /// The keys after the first argument, which is their number.
    Counted(KeyAccess),
}

/// What a command does with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// Returns its value and may change it.
    AccessUpdate,
    /// May change it, but reveals only whether the caller knew its value.
    Update,
    /// May delete it, or hand it over.
    Delete,
    /// Returns its value.
    Access,
}

pub struct Arg {
    /// Its name, as COMMAND DOCS shows it.
    pub name: &'static CStr,
    pub kind: Kind,
    /// The word before it, or its own word.
    pub token: Option<&'static CStr>,
    /// Whether it is optional.
    pub optional: bool,
}

/// The kind of an argument.
pub enum Kind {
    Key,
    /// Keys, one or more.
    Keys,
    /// A whole number.
    Integer,
    /// Bytes.
    String,
    /// Just its token.
    Token,
    /// One of these.
    OneOf(&'static [Arg]),
}

impl KeyAccess {
    /// The flags in the server's form.
    pub(in crate::server) const fn flags(self) -> u32 {
        match self {
            Self::AccessUpdate => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
            }
            Self::Update => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
            // The server accepts only one kind of write.
            Self::Delete => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
            Self::Access => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        }
    }
}

impl Keys {
    /// The key access in the server's form.
    pub(in crate::server) const fn flags(self) -> i32 {
        match self {
            Self::None => 0,
            Self::First(access) | Self::Counted(access) => access.flags().cast_signed(),
        }
    }
}
