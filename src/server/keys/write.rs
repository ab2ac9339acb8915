//! Writes keys: carries out the commands of a change, in one of two ways.
//!
//! A module command changes the open key in place and replicates the same change. Outside a command, it calls the
//! server's own commands, which check whether the slot is ours. A command never uses the second way: Redis 6.2
//! replicates its own commands' writes before the writes made in place.

use crate::driver::{Key as _, Permit, WriteRefused, Writer};
use crate::engine::grant::Event;
use crate::lock::change::{Change, Primitive};
use crate::lock::record::Encoded;
use crate::server::api::api;
use crate::server::api::context::{Arg, Context, OwnString};
use crate::server::keys::holder_sets;
use crate::server::keys::key::{Key, Mode};
use crate::server::keys::signal::{self, Writing};
use crate::server::replication::effects;
use crate::server::server_call::{clear_errno, done};
use crate::server::state::set_cache::Set;
use redis_module::raw;
use std::ffi::CStr;

const OK: i32 = 0;
const NO_EXPIRE: i64 = -1;

/// A member longer than the server allows in a set in the compact form (`zset-max-listpack-value`, 64 by default). In
/// that form scores are text, and every change parses all of them, which makes it ten times as expensive with 100
/// holders. A set that once had such a long member stays in the form for many members until it is loaded from a file.
const LONG: [u8; 65] = [b'-'; 65];

/// A key that was changed and closed; the change has not been signalled yet.
pub struct Written<'a> {
    context: Context,
    name: Arg<'a>,
    /// The events to publish; if the server's own commands were called, the server publishes the events itself.
    events: Events,
}

/// The changes to a key, in publication order.
#[derive(Clone, Copy)]
enum Happened {
    Set,
    Del,
    Zadd,
    Zrem,
    Emptied,
    Expire,
}

/// The events of a change, one bit each.
#[derive(Clone, Copy, Default)]
struct Events(u8);

impl Events {
    fn add(&mut self, happened: Happened) {
        self.0 |= 1 << happened as u8;
    }

    const fn has(self, happened: Happened) -> bool {
        self.0 & (1 << happened as u8) != 0
    }
}

/// Whether a key can be changed in place. For the server's own commands this is known only after calling them.
///
/// # Errors
/// Why the key would not be written.
pub fn check_writable(permit: Permit, key: &Key<'_>) -> Result<(), WriteRefused> {
    match permit.writer() {
        Writer::Command => is_open(key),
        Writer::Timer => Ok(()),
    }
}

/// Refuses a key that was closed, or that was opened for reading and does not exist.
fn is_open(key: &Key<'_>) -> Result<(), WriteRefused> {
    succeeded(!key.handle().is_null())
}

/// Changes a key and closes it.
///
/// # Errors
/// Why the key was not written.
pub fn write<'a>(permit: Permit, mut key: Key<'a>, mut change: Change<'_>) -> Result<Written<'a>, WriteRefused> {
    // SAFETY: the driver signals what was written before the call ends.
    let (context, name) = (unsafe { key.context().copy() }, key.name());
    let mut set = key.take_set();
    if let Change::Several(several) = &mut change {
        if let Some(members) = several.made.take() {
            set = Some(members.into());
        }
    }
    let events = match permit.writer() {
        Writer::Command => write_in_place(&key, &change, &mut set)?,
        Writer::Timer => {
            key.close();
            let _writing = Writing::of(name);
            change.try_each(|primitive| call(&context, name, &primitive))?;
            Events::default()
        }
    };
    if let Some(set) = set {
        holder_sets::keep(&context, name, set);
    }
    Ok(Written { context, name, events })
}

/// Deletes keys in place, and replicates the deletion as one command. Returns the deleted keys.
pub fn delete_all<'a>(keys: Vec<Key<'a>>) -> Vec<Written<'a>> {
    let delete = |mut key: Key<'a>| {
        drop(key.take_set());
        delete(&key).ok()?;
        let mut events = Events::default();
        events.add(Happened::Del);
        // SAFETY: the driver signals what was written before the call ends.
        let context = unsafe { key.context().copy() };
        Some(Written { context, name: key.name(), events })
    };
    let written: Vec<Written<'a>> = keys.into_iter().map_while(delete).collect();
    let names: Vec<Arg<'_>> = written.iter().map(|written| written.name).collect();
    if let Some(first) = written.first() {
        effects::del(&first.context, &names);
    }
    written
}

impl Written<'_> {
    /// Signals the change to WATCH, client tracking and keyspace events, and publishes the module's own events.
    pub fn signal(self, own: &[Event]) {
        let Self { context, name, events } = self;
        let _writing = Writing::of(name);
        let changed = |happened, class, event| {
            if events.has(happened) {
                signal::changed(&context, name, class, event);
            }
        };
        changed(Happened::Set, raw::REDISMODULE_NOTIFY_STRING, c"set");
        changed(Happened::Del, raw::REDISMODULE_NOTIFY_GENERIC, c"del");
        changed(Happened::Zadd, raw::REDISMODULE_NOTIFY_ZSET, c"zadd");
        changed(Happened::Zrem, raw::REDISMODULE_NOTIFY_ZSET, c"zrem");
        if events.has(Happened::Emptied) {
            signal::event(&context, name, raw::REDISMODULE_NOTIFY_GENERIC, c"del");
        }
        if events.has(Happened::Expire) {
            signal::event(&context, name, raw::REDISMODULE_NOTIFY_GENERIC, c"expire");
        }
        signal::own_events(&context, name, own);
    }
}

/// Changes an open key and replicates the change.
fn write_in_place(key: &Key<'_>, change: &Change<'_>, set: &mut Option<Box<Set>>) -> Result<Events, WriteRefused> {
    let (context, name) = (key.context(), key.name());
    is_open(key)?;
    let mut events = Events::default();
    change.try_each(|primitive| {
        match primitive {
            Primitive::Set { value, expire_at_ms } => {
                if set.take().is_some() {
                    delete(key)?;
                }
                overwrite(key, value.as_bytes())?;
                set_expiry(key, expire_at_ms);
                effects::set(context, name, value, expire_at_ms)?;
                events.add(Happened::Set);
                if expire_at_ms.is_some() {
                    events.add(Happened::Expire);
                }
            }
            Primitive::Del => {
                delete(key)?;
                effects::del(context, &[name]);
                events.add(Happened::Del);
            }
            Primitive::Zadd(value) => {
                if let Some(set) = set {
                    make_tree(key, set)?;
                }
                add(key, value)?;
                events.add(Happened::Zadd);
            }
            Primitive::Zrem(holder) => {
                let value = holder.record().encode();
                if !remove(key, &value)? {
                    // A holder missing from the key shows that others have changed the key.
                    set.take();
                }
                events.add(Happened::Zrem);
            }
            Primitive::PexpireAt(ms) => {
                set_expiry(key, Some(ms));
                effects::pexpireat(context, name, ms)?;
                events.add(Happened::Expire);
            }
            Primitive::Persist => {
                set_expiry(key, None);
                effects::persist(context, name);
            }
        }
        Ok(())
    })?;
    // SAFETY: the handle is open.
    if events.has(Happened::Zrem) && unsafe { (api().value_length)(key.handle()) } == 0 {
        events.add(Happened::Emptied);
    }
    Ok(events)
}

fn delete(key: &Key<'_>) -> Result<(), WriteRefused> {
    // SAFETY: the handle is open for writing.
    succeeded(unsafe { (api().delete_key)(key.handle()) } == OK)
}

fn set_expiry(key: &Key<'_>, at_ms: Option<u64>) {
    let at_ms = at_ms.map_or(NO_EXPIRE, as_signed);
    // SAFETY: the handle is open for writing and holds something.
    unsafe { (api().set_abs_expire)(key.handle(), at_ms) };
}

/// Writes bytes to a key, in place if it holds the same number of bytes: no object is created for the server to copy
/// from, and the string never gets a compact encoding that the next read would have to unpack.
fn overwrite(key: &Key<'_>, bytes: &[u8]) -> Result<(), WriteRefused> {
    // A value is usually as long as the previous one.
    if key.is_string() && fill(key, bytes) {
        return Ok(());
    }
    // SAFETY: the handle is open for writing and holds a string or nothing.
    succeeded(unsafe { (api().string_truncate)(key.handle(), bytes.len()) } == OK)?;
    succeeded(fill(key, bytes))
}

/// Overwrites a string of the same length.
fn fill(key: &Key<'_>, bytes: &[u8]) -> bool {
    let mut length = 0;
    // SAFETY: the handle is open for writing and holds a string; the server gives the address and number of writable
    // bytes, valid until the key is touched again.
    unsafe {
        let room = (api().string_dma)(key.handle(), &raw mut length, Mode::Write.bits());
        let fits = !room.is_null() && length == bytes.len();
        if fits {
            room.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length);
        }
        fits
    }
}

/// Converts a set to the form for many members, if it has more than a few.
fn make_tree(key: &Key<'_>, set: &mut Set) -> Result<(), WriteRefused> {
    if set.is_tree || set.members.holders.len() <= holder_sets::FEW {
        return Ok(());
    }
    set.is_tree = true;
    let long = own_string(&LONG)?;
    let mut ignored = 0;
    // SAFETY: the handle is open for writing and holds a sorted set or nothing; the server copies the string.
    unsafe {
        (api().zset_add)(key.handle(), 0.0, long.as_arg().as_ptr(), std::ptr::null_mut());
        (api().zset_rem)(key.handle(), long.as_arg().as_ptr(), &raw mut ignored);
    }
    Ok(())
}

fn add(key: &Key<'_>, value: &Encoded) -> Result<(), WriteRefused> {
    let member = own_string(value.member())?;
    let (score, arg) = (value.timestamp().as_seconds(), member.as_arg());
    // SAFETY: the handle is open for writing and holds a sorted set or nothing; the server copies or retains the
    // string.
    succeeded(unsafe { (api().zset_add)(key.handle(), score, arg.as_ptr(), std::ptr::null_mut()) } == OK)?;
    effects::zadd(key.context(), key.name(), value.score(), arg);
    Ok(())
}

/// Removes a holder. Returns whether it was in the key.
fn remove(key: &Key<'_>, value: &Encoded) -> Result<bool, WriteRefused> {
    let member = own_string(value.member())?;
    let mut removed = 0;
    // SAFETY: the handle is open for writing and holds a sorted set or nothing; the server only reads the string.
    unsafe { (api().zset_rem)(key.handle(), member.as_arg().as_ptr(), &raw mut removed) };
    effects::zrem(key.context(), key.name(), member.as_arg());
    Ok(removed == 1)
}

/// Changes a closed key with a server command.
fn call(context: &Context, name: Arg<'_>, primitive: &Primitive<'_>) -> Result<(), WriteRefused> {
    let (ctx, key) = (context.as_ptr(), name.as_ptr());
    clear_errno();
    // SAFETY: the formats match what follows them: s a server string, b a buffer with its length (size_t), c a C
    // string, l a long long; ! replicates.
    let (command, reply): (&CStr, _) = unsafe {
        match primitive {
            Primitive::Set { value, expire_at_ms } => {
                let (bytes, length) = (value.as_bytes().as_ptr(), value.as_bytes().len());
                let reply = match expire_at_ms.map(as_signed) {
                    Some(ms) => {
                        (api().call)(ctx, c"SET".as_ptr(), c"!sbcl".as_ptr(), key, bytes, length, c"PXAT".as_ptr(), ms)
                    }
                    None => (api().call)(ctx, c"SET".as_ptr(), c"!sb".as_ptr(), key, bytes, length),
                };
                (c"SET", reply)
            }
            Primitive::Del => (c"DEL", (api().call)(ctx, c"DEL".as_ptr(), c"!s".as_ptr(), key)),
            Primitive::Zadd(value) => {
                let (score, member) = (value.score(), value.member());
                let (score, score_length, member, length) =
                    (score.as_ptr(), score.len(), member.as_ptr(), member.len());
                let format = c"!sbb".as_ptr();
                (c"ZADD", (api().call)(ctx, c"ZADD".as_ptr(), format, key, score, score_length, member, length))
            }
            Primitive::Zrem(holder) => {
                let value = holder.record().encode();
                let (member, length) = (value.member().as_ptr(), value.member().len());
                (c"ZREM", (api().call)(ctx, c"ZREM".as_ptr(), c"!sb".as_ptr(), key, member, length))
            }
            Primitive::PexpireAt(ms) => {
                (c"PEXPIREAT", (api().call)(ctx, c"PEXPIREAT".as_ptr(), c"!sl".as_ptr(), key, as_signed(*ms)))
            }
            Primitive::Persist => (c"PERSIST", (api().call)(ctx, c"PERSIST".as_ptr(), c"!s".as_ptr(), key)),
        }
    };
    done(command, reply)
}

fn own_string(bytes: &[u8]) -> Result<OwnString, WriteRefused> {
    OwnString::of(bytes).ok_or(WriteRefused::ForNow)
}

const fn succeeded(is_done: bool) -> Result<(), WriteRefused> {
    if is_done {
        Ok(())
    } else {
        Err(WriteRefused::ForNow)
    }
}

fn as_signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
