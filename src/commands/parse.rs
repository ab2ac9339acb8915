//! Parses arguments without a server, so that tests and fuzzers need none.
//!
//! The error names the first wrong argument from the left.

mod keys;

pub use keys::{different_keys, key_to_take, keys, keys_to_take};

use crate::driver::{Ask, ChannelName};
use crate::engine::queue::{By, ReplyShape};
use crate::lock::error::Error;
use crate::lock::record::{number, Id, Owner};
use crate::lock::request::{Request, Share};
use crate::lock::time::Micros;
use crate::lock::token::Token;
use crate::server::api::args::Args;

/// The longest lease and the longest wait: 10 years.
const LONGEST_MS: u64 = 315_360_000_000;
/// The longest wait without a connection.
const LONGEST_NOTIFY_WAIT: Micros = Micros(3_600_000_000);
/// The longest channel name, in bytes.
const LONGEST_CHANNEL: usize = 256;

/// The arguments of a command, without its name.
pub trait Arguments<'a> {
    /// The number of arguments.
    fn count(&self) -> usize;
    /// An argument, counted from 0.
    fn at(&self, at: usize) -> Option<&'a [u8]>;
}

impl<'a> Arguments<'a> for Args<'a> {
    fn count(&self) -> usize {
        Args::count(self)
    }

    fn at(&self, at: usize) -> Option<&'a [u8]> {
        Args::at(self, at)
    }
}

impl<'a> Arguments<'a> for &[&'a [u8]] {
    fn count(&self) -> usize {
        self.len()
    }

    fn at(&self, at: usize) -> Option<&'a [u8]> {
        self.get(at).copied()
    }
}

/// Declares the options, each with its name.
macro_rules! options {
    ($($(#[$doc:meta])* $option:ident => $name:literal,)*) => {
        /// An option of a command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name {
            $($(#[$doc])* $option,)*
        }

        impl Name {
            const ALL: &'static [(&'static str, Self)] = &[$(($name, Self::$option),)*];
        }
    };
}

options! {
    /// `EX seconds`
    Ex => "EX",
    /// `PX milliseconds`
    Px => "PX",
    /// `ID id`
    Id => "ID",
    /// `OWNER name`
    Owner => "OWNER",
    /// `WAIT milliseconds`
    Wait => "WAIT",
    /// `RESULT`
    Result => "RESULT",
    /// `SESSION`
    Session => "SESSION",
    /// `DETAILS`
    Details => "DETAILS",
    /// `FULL`
    Full => "FULL",
    /// `COUNT n`
    Count => "COUNT",
    /// `SHARED`
    Shared => "SHARED",
    /// `LIMIT n`
    Limit => "LIMIT",
    /// `MATCH pattern`
    Match => "MATCH",
    /// `STATE name`
    State => "STATE",
    /// `CLIENT id`
    Client => "CLIENT",
    /// `BY waiters|wait|held`
    By => "BY",
    /// `NOTIFY channel`
    Notify => "NOTIFY",
    /// `SNOTIFY channel`
    Snotify => "SNOTIFY",
}

impl Name {
    fn read(arg: &[u8]) -> Option<(&'static str, Self)> {
        Self::ALL.iter().copied().find(|(text, _)| text.as_bytes().eq_ignore_ascii_case(arg))
    }
}

/// The options of a command.
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    lease: Option<Micros>,
    id: Option<Id>,
    owner: Option<Owner<'a>>,
    wait: Option<Micros>,
    count: Option<usize>,
    share: Share,
    notify: Option<ChannelName<'a>>,
    /// The value of `MATCH`.
    pub pattern: Option<&'a [u8]>,
    /// The value of `STATE`.
    pub state: Option<&'a [u8]>,
    /// The value of `CLIENT`.
    pub client: Option<u64>,
    by: Option<By>,
    /// `RESULT` was given.
    wants_result: bool,
    /// `SESSION` was given.
    pub session: bool,
    /// `DETAILS` was given.
    pub details: bool,
    /// `FULL` was given.
    pub full: bool,
}

impl<'a> Options<'a> {
    /// Parses all arguments from `from` on as options of `command`, which accepts the options in `known`.
    ///
    /// # Errors
    /// The first argument that is wrong.
    pub fn parse(args: &impl Arguments<'a>, from: usize, command: &'static str, known: &[Name]) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut at = from;
        while let Some(arg) = args.at(at) {
            let position = at.saturating_add(1);
            let found = Name::read(arg).filter(|(_, name)| known.contains(name));
            let (text, name) = found.ok_or(Error::NotAnOption { position, command })?;
            let value = || args.at(position).ok_or(Error::NoValue(text));
            let twice = Err(Error::Twice(text));
            match name {
                Name::Ex | Name::Px if options.lease.is_some() => return Err(Error::LeaseTwice),
                Name::Ex => options.lease = Some(lease(value()?, 1_000)?),
                Name::Px => options.lease = Some(lease(value()?, 1)?),
                Name::Id if options.id.is_some() => return twice,
                Name::Id => options.id = Some(id(value()?)?),
                Name::Owner if options.owner.is_some() => return twice,
                Name::Owner => options.owner = Some(Owner::parse(value()?).ok_or(Error::Owner)?),
                Name::Wait if options.wait.is_some() => return twice,
                Name::Wait => options.wait = Some(wait(value()?)?),
                Name::Count if options.count.is_some() => return twice,
                Name::Count => options.count = Some(count(value()?)?),
                Name::Result if options.wants_result => return twice,
                Name::Result => options.wants_result = true,
                Name::Session if options.session => return twice,
                Name::Session => options.session = true,
                Name::Details if options.details => return twice,
                Name::Details => options.details = true,
                Name::Full if options.full => return twice,
                Name::Full => options.full = true,
                Name::Shared if options.share == Share::Shared => return twice,
                Name::Limit if matches!(options.share, Share::Limit(_)) => return twice,
                Name::Shared | Name::Limit if options.share != Share::Alone => return Err(Error::ShareTwice),
                Name::Shared => options.share = Share::Shared,
                Name::Limit => options.share = Share::Limit(limit(value()?)?),
                Name::Match if options.pattern.is_some() => return twice,
                Name::Match => options.pattern = Some(value()?),
                Name::State if options.state.is_some() => return twice,
                Name::State => options.state = Some(value()?),
                Name::Client if options.client.is_some() => return twice,
                Name::Client => options.client = Some(number(value()?).ok_or(Error::Client)?),
                Name::By if options.by.is_some() => return twice,
                Name::By => options.by = Some(by(value()?)?),
                Name::Notify | Name::Snotify => {
                    let is_sharded = name == Name::Snotify;
                    match options.notify {
                        Some(before) if before.is_sharded == is_sharded => return twice,
                        Some(_) => return Err(Error::ChannelTwice),
                        None => options.notify = Some(ChannelName { name: channel(value()?)?, is_sharded }),
                    }
                }
            }
            let is_alone = matches!(name, Name::Result | Name::Session | Name::Details | Name::Full | Name::Shared);
            let length = if is_alone { 1 } else { 2 };
            at = at.saturating_add(length);
        }
        Ok(options)
    }

    /// The lease.
    ///
    /// # Errors
    /// [`Error::LeaseMissing`]
    pub fn lease(&self) -> Result<Micros, Error> {
        self.lease.ok_or(Error::LeaseMissing)
    }

    /// How long to wait; zero without `WAIT`.
    #[must_use]
    pub fn wait(&self) -> Micros {
        self.wait.unwrap_or(Micros(0))
    }

    /// `COUNT`, if it was given.
    #[must_use]
    pub const fn count(&self) -> Option<usize> {
        self.count
    }

    /// The order of the queues; without `BY`, the longest first.
    #[must_use]
    pub fn by(&self) -> By {
        self.by.unwrap_or_default()
    }

    /// The arguments of a command that takes locks.
    ///
    /// # Errors
    /// [`Error::LeaseMissing`], [`Error::Needs`], [`Error::NotifyWaitTooLong`]
    pub fn ask(&self) -> Result<Ask<'a>, Error> {
        let shape = if self.details { ReplyShape::Details } else { ReplyShape::Token };
        let request = self.request()?;
        if self.wants_result {
            self.check_result()?;
        }
        if let Some(notify) = self.notify {
            let option = if notify.is_sharded { "SNOTIFY" } else { "NOTIFY" };
            let wait = self.wait.ok_or(Error::Needs { option, missing: "WAIT" })?;
            self.id.ok_or(Error::Needs { option, missing: "ID" })?;
            if wait > LONGEST_NOTIFY_WAIT {
                return Err(Error::NotifyWaitTooLong);
            }
        }
        let wants_result = self.wants_result;
        Ok(Ask { request, wait: self.wait(), shape, session: self.session, wants_result, notify: self.notify })
    }

    /// Checks the options beside `RESULT`: one result is for callers that want the whole lock.
    fn check_result(&self) -> Result<(), Error> {
        self.wait.ok_or(Error::Needs { option: "RESULT", missing: "WAIT" })?;
        let option = match self.share {
            Share::Shared => "SHARED",
            Share::Limit(_) => "LIMIT",
            Share::Alone if self.session => "SESSION",
            Share::Alone => return Ok(()),
        };
        Err(Error::ResultWith { option })
    }

    /// The request for the lock rules.
    ///
    /// # Errors
    /// [`Error::LeaseMissing`]
    pub fn request(&self) -> Result<Request<'a>, Error> {
        Ok(Request { share: self.share, lease: self.lease()?, id: self.id, owner: self.owner })
    }
}

/// Parses the options, from `from` on, of a command that asks for a lock.
///
/// # Errors
/// The first argument that is wrong; [`Error::LeaseMissing`]
#[inline]
pub fn ask<'a>(
    args: &impl Arguments<'a>,
    from: usize,
    command: &'static str,
    known: &[Name],
) -> Result<Ask<'a>, Error> {
    match only_lease(args, from) {
        Some(lease) => {
            let request = Request { share: Share::Alone, lease, id: None, owner: None };
            Ok(Ask {
                request,
                wait: Micros(0),
                shape: ReplyShape::Token,
                session: false,
                wants_result: false,
                notify: None,
            })
        }
        None => Options::parse(args, from, command, known)?.ask(),
    }
}

/// Parses the options, from `from` on, of a command that takes only a lease.
///
/// # Errors
/// The first argument that is wrong; [`Error::LeaseMissing`]
#[inline]
pub fn lease_alone<'a>(args: &impl Arguments<'a>, from: usize, command: &'static str) -> Result<Micros, Error> {
    match only_lease(args, from) {
        Some(lease) => Ok(lease),
        None => Options::parse(args, from, command, &[Name::Ex, Name::Px])?.lease(),
    }
}

/// The lease if it is the only option from `from` on, as in nearly all commands: reading all options takes five times
/// as long. `None` if anything is wrong; [`Options::parse`] then finds the error.
fn only_lease<'a>(args: &impl Arguments<'a>, from: usize) -> Option<Micros> {
    let at = from.checked_add(1)?;
    if args.count() != at.checked_add(1)? {
        return None;
    }
    let unit_ms = match args.at(from)? {
        [b'P' | b'p', b'X' | b'x'] => 1,
        [b'E' | b'e', b'X' | b'x'] => 1_000,
        _ => return None,
    };
    lease(args.at(at)?, unit_ms).ok()
}

/// The arguments `RESULT value` at `from`, if there are any; `most` is the longest value.
///
/// # Errors
/// The first argument that is wrong; [`Error::ResultLength`]
pub fn result<'a>(
    args: &impl Arguments<'a>,
    from: usize,
    command: &'static str,
    most: usize,
) -> Result<Option<&'a [u8]>, Error> {
    let Some(option) = args.at(from) else { return Ok(None) };
    let at = from.saturating_add(1);
    if !matches!(Name::read(option), Some((_, Name::Result))) {
        return Err(Error::NotAnOption { position: at, command });
    }
    let value = args.at(at).ok_or(Error::NoValue("RESULT"))?;
    let after = at.saturating_add(1);
    match args.at(after) {
        Some(more) if matches!(Name::read(more), Some((_, Name::Result))) => Err(Error::Twice("RESULT")),
        Some(_) => Err(Error::NotAnOption { position: after.saturating_add(1), command }),
        None if value.len() > most => Err(Error::ResultLength(most)),
        None => Ok(Some(value)),
    }
}

/// A token.
///
/// # Errors
/// [`Error::Token`]
pub fn token(arg: &[u8]) -> Result<Token, Error> {
    number(arg).and_then(Token::new).ok_or(Error::Token)
}

/// The name of a channel.
///
/// # Errors
/// [`Error::Channel`]
pub fn channel(arg: &[u8]) -> Result<&[u8], Error> {
    if (1..=LONGEST_CHANNEL).contains(&arg.len()) {
        Ok(arg)
    } else {
        Err(Error::Channel)
    }
}

/// An ID.
///
/// # Errors
/// [`Error::Id`]
pub fn id(arg: &[u8]) -> Result<Id, Error> {
    Id::parse(arg).ok_or(Error::Id)
}

/// A cursor of SCAN.
///
/// # Errors
/// [`Error::Cursor`]
pub fn cursor(arg: &[u8]) -> Result<&[u8], Error> {
    number(arg).map(|_| arg).ok_or(Error::Cursor)
}

fn limit(arg: &[u8]) -> Result<u64, Error> {
    match number(arg) {
        Some(limit @ 1..=Share::MOST) => Ok(limit),
        _ => Err(Error::Limit),
    }
}

fn lease(arg: &[u8], unit_ms: u64) -> Result<Micros, Error> {
    let ms = number(arg).and_then(|count| count.checked_mul(unit_ms));
    match ms {
        Some(ms @ 1..=LONGEST_MS) => Ok(Micros::from_ms(ms)),
        _ => Err(Error::Lease),
    }
}

fn count(arg: &[u8]) -> Result<usize, Error> {
    match number(arg).map(usize::try_from) {
        Some(Ok(count @ 1..=1_000)) => Ok(count),
        _ => Err(Error::Count),
    }
}

fn by(arg: &[u8]) -> Result<By, Error> {
    let orders = [(&b"waiters"[..], By::Waiters), (b"wait", By::Wait), (b"held", By::Held)];
    let order = orders.iter().find(|(name, _)| name.eq_ignore_ascii_case(arg));
    order.map(|(_, order)| *order).ok_or(Error::By)
}

fn wait(arg: &[u8]) -> Result<Micros, Error> {
    match number(arg) {
        Some(ms @ 0..=LONGEST_MS) => Ok(Micros::from_ms(ms)),
        _ => Err(Error::Wait),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
