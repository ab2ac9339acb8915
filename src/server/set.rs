//! A change of a sorted set of holders: what it comes to, and how a command carries it out on the open key.

use super::api::api;
use super::context::{Context, OwnString};
use super::key::Key;
use super::several::{self, Set};
use super::write::{expiry_words, NO_EXPIRE, OK};
use super::{settings, state, tell};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::holders::{Holder, Holders};
use crate::lock::record::Encoded;
use crate::lock::rules::Retention;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use redis_module::raw;

/// A member that is longer than the server has in a set in the form for few (`zset-max-listpack-value`, 64 by
/// default). In that form scores are text: each of them is read at every change, which with 100 holders
/// costs ten times as much. A set that had such a member once is in the form for many, until it is loaded
/// from a file.
const LONG: [u8; 65] = [b'-'; 65];

/// What becomes of the native expiry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewExpiry {
    /// Nothing.
    AsBefore,
    /// It is this, Unix time in ms.
    At(u64),
    /// There is none.
    Never,
}

/// What changes in a sorted set of holders besides the one that is put in, in this order, so that it never
/// vanishes in between.
pub struct Change {
    /// Those who are left.
    pub set: Box<Set>,
    /// Those who are taken out.
    pub gone: Vec<Holder>,
    /// What becomes of the native expiry.
    pub expiry: NewExpiry,
}

/// How long what has expired stays.
pub struct Retentions {
    /// The key, by its native expiry.
    key: Retention,
    /// A holder among others: its retention does not depend on whether their key has a native expiry.
    holder: Retention,
}

impl Retentions {
    /// Those in force.
    pub fn now(context: &Context) -> Self {
        let key = state::retention(context);
        let holder = if broken::is(Mutant::ExpiredHoldersStay) { key } else { settings::retention() };
        Self { key, holder }
    }
}

impl Set {
    /// A value is put in, ended and replaced ones and some whose retention is over are taken out, the native
    /// expiry is that of the last.
    pub fn change(
        mut self: Box<Self>,
        value: Option<&Encoded>,
        replaces: Option<Token>,
        retention: &Retentions,
        has_expiry: bool,
        now: UnixMicros,
    ) -> Change {
        /// How many are forgotten at once.
        const FORGOTTEN: usize = 8;
        let mut gone = std::mem::take(&mut self.ended);
        let (holders, of_key) = (&mut self.holders, retention.key);
        let last = |holders: &Holders| {
            let end = |(first, last)| if broken::is(Mutant::ExpiresWithFirst) { first } else { last };
            holders.ends().and_then(|ends| of_key.expire_at_ms(end(ends)))
        };
        // What the key says now.
        let known = gone.iter().filter_map(|ended| of_key.expire_at_ms(ended.timestamp)).chain(last(holders)).max();
        let known = known.filter(|_| has_expiry);
        gone.extend(replaces.and_then(|token| holders.remove(token)));
        if let Some(record) = value.and_then(Encoded::record) {
            holders.look(now);
            holders.put(Holder::of(&record));
        }
        for _ in 0..FORGOTTEN {
            let over = holders.to_forget(retention.holder, now).map(|holder| holder.token);
            let Some(over) = over else { break };
            gone.extend(holders.remove(over));
        }
        let expiry = match last(holders) {
            _ if holders.is_empty() => NewExpiry::AsBefore,
            Some(ms) if known != Some(ms) => NewExpiry::At(ms),
            None if has_expiry => NewExpiry::Never,
            _ => NewExpiry::AsBefore,
        };
        Change { set: self, gone, expiry }
    }
}

impl Key<'_> {
    /// As `Closed::change`, on the open key of a command, which costs half.
    pub(super) fn change_in_place(mut self, value: Option<&Encoded>, replaces: Option<Token>) -> Result<(), Error> {
        let has_expiry = self.several.is_some() && self.expires_in_ms().is_some();
        let set = self.several.take().unwrap_or_default();
        let Change { mut set, gone, expiry } =
            set.change(value, replaces, &Retentions::now(self.context), has_expiry, self.now());
        let added = match value {
            Some(value) => Some(OwnString::of(value.member()).ok_or(Error::Internal)?),
            None => None,
        };
        let name_of = |holder: &Holder| OwnString::of(holder.record().encode().member());
        let gone: Vec<OwnString> =
            gone.iter().map(|holder| name_of(holder).ok_or(Error::Internal)).collect::<Result<_, _>>()?;
        let until = match expiry {
            NewExpiry::At(ms) => Some(i64::try_from(ms).unwrap_or(i64::MAX)),
            _ => None,
        };
        let words = until.map(|ms| expiry_words(ms).ok_or(Error::Internal)).transpose()?;
        let grown = if value.is_some() && !set.is_tree && set.holders.len() > several::FEW {
            set.is_tree = true;
            OwnString::of(&LONG)
        } else {
            None
        };
        let (mut ignored, is_empty, mut is_known) = (0, set.holders.is_empty(), true);
        // SAFETY: the handle is open for writing and holds a sorted set or nothing; the server copies the
        // strings, and says that it could not in its reply.
        unsafe {
            if let Some(long) = &grown {
                (api().zset_add)(self.handle, 0.0, long.as_arg().as_ptr(), std::ptr::null_mut());
                (api().zset_rem)(self.handle, long.as_arg().as_ptr(), &raw mut ignored);
            }
            if let (Some(value), Some(member)) = (value, &added) {
                let score = value.timestamp().as_seconds();
                if (api().zset_add)(self.handle, score, member.as_arg().as_ptr(), std::ptr::null_mut()) != OK {
                    return Err(Error::Internal);
                }
            }
            for member in &gone {
                let mut removed = 0;
                (api().zset_rem)(self.handle, member.as_arg().as_ptr(), &raw mut removed);
                is_known &= removed == 1;
            }
            if expiry != NewExpiry::AsBefore {
                (api().set_abs_expire)(self.handle, until.unwrap_or(NO_EXPIRE));
            }
        }
        let (context, name) = self.closed();
        // SAFETY: the formats match what follows them: s a string of the server, b a buffer with its length
        // (size_t). The server copies or retains all of them.
        unsafe {
            if let (Some(value), Some(member)) = (value, &added) {
                let (score, member) = (value.score(), member.as_arg().as_ptr());
                let (score, length) = (score.as_ptr(), score.len());
                (api().replicate)(
                    context.as_ptr(),
                    c"ZADD".as_ptr(),
                    c"sbs".as_ptr(),
                    name.as_ptr(),
                    score,
                    length,
                    member,
                );
            }
            for member in &gone {
                if broken::is(Mutant::ZremNotReplicated) {
                    break;
                }
                let member = member.as_arg().as_ptr();
                (api().replicate)(context.as_ptr(), c"ZREM".as_ptr(), c"ss".as_ptr(), name.as_ptr(), member);
            }
            match (expiry, words) {
                (NewExpiry::At(_), Some([_, ms])) => {
                    (api().replicate)(context.as_ptr(), c"PEXPIREAT".as_ptr(), c"ss".as_ptr(), name.as_ptr(), ms);
                }
                (NewExpiry::Never, _) => {
                    (api().replicate)(context.as_ptr(), c"PERSIST".as_ptr(), c"s".as_ptr(), name.as_ptr());
                }
                _ => {}
            }
        }
        // What was not in the key shows that others have changed it.
        if is_known {
            several::keep(context, name, set);
        }
        tell::writing(|| {
            if added.is_some() {
                tell::changed(context, name, raw::REDISMODULE_NOTIFY_ZSET, c"zadd");
            }
            if !gone.is_empty() {
                tell::changed(context, name, raw::REDISMODULE_NOTIFY_ZSET, c"zrem");
            }
            if is_empty {
                tell::event(context, name, raw::REDISMODULE_NOTIFY_GENERIC, c"del");
            }
            if until.is_some() {
                tell::event(context, name, raw::REDISMODULE_NOTIFY_GENERIC, c"expire");
            }
        });
        Ok(())
    }
}
