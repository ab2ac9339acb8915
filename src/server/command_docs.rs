//! What the server is told of a command: for COMMAND INFO, COMMAND DOCS, hints of redis-cli, ACLs
//! and cluster routing.

use redis_module::raw;
use std::ffi::CStr;

/// A command.
pub struct Doc {
    /// Its name, in lower case.
    pub name: &'static CStr,
    /// What it does, in a line.
    pub summary: &'static CStr,
    /// What it costs.
    pub complexity: &'static CStr,
    /// How many arguments with the name; at least as many if negative.
    pub arity: i32,
    /// The server's flags.
    pub flags: Flags,
    /// Its keys.
    pub keys: Keys,
    /// Its arguments.
    pub args: &'static [Arg],
}

/// What kind of command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Writes, and needs memory for it; may block.
    WriteDenyOomBlocking,
    /// Writes, and needs memory for it.
    WriteDenyOom,
    /// Writes, or gives memory back.
    Write,
    /// The same, for many keys.
    WriteSlow,
    /// Reads.
    Read,
    /// Reads, and may have much to tell.
    ReadSlow,
    /// Reads keys that it does not name: those that its caller may read. For operators where the server
    /// cannot tell which those are.
    ReadUnnamed,
    /// Reads what the whole server does: for operators.
    Admin,
    /// Touches no data.
    Help,
}

impl Flags {
    /// Whether a command with them grants, extends, releases or cancels: on a replica it is refused.
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
    /// It has none.
    None,
    /// The first argument.
    First(KeyAccess),
    /// As many as the first argument says, behind it.
    Counted(KeyAccess),
}

/// What a command does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// Tells of its value and may change it.
    AccessUpdate,
    /// May change it, telling nothing but whether the caller knew its value.
    Update,
    /// May delete it, or give it to another.
    Delete,
    /// Tells of its value.
    Access,
}

/// An argument.
pub struct Arg {
    /// Its name, as COMMAND DOCS shows it.
    pub name: &'static CStr,
    /// What it is.
    pub kind: Kind,
    /// The word in front of it, or the word that it is.
    pub token: Option<&'static CStr>,
    /// It can be left out.
    pub optional: bool,
}

/// What an argument is.
pub enum Kind {
    /// The key.
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
    /// The same, as the server reads it.
    pub(super) const fn flags(self) -> u32 {
        match self {
            Self::AccessUpdate => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
            }
            Self::Update => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
            // One kind of write is all that the server takes.
            Self::Delete => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
            Self::Access => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        }
    }
}

impl Keys {
    /// What is done to the keys, as the server reads it.
    pub(super) const fn flags(self) -> i32 {
        match self {
            Self::None => 0,
            Self::First(access) | Self::Counted(access) => access.flags().cast_signed(),
        }
    }
}
