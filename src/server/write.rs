//! A key of the server: written, with all that follows from it (native expiry, replication, WATCH and
//! client tracking, keyspace events).
//!
//! A command writes in place: one holder as a string, several as a sorted set. All else goes through the
//! server's own commands, which know whether the slot is ours: writes outside of commands, and a string
//! that makes room for a sorted set.

use super::api::api;
use super::context::{Arg, Context, OwnString};
use super::key::{Key, WRITE};
use super::main_thread::MainThread;
use super::set::{Before, NewExpiry};
use super::several::{self, Set};
use super::{session, state, waiting};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::holders::Holder;
use crate::lock::record::Encoded;
use crate::lock::rules::Holds;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use redis_module::raw;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const OK: i32 = 0;
pub(super) const NO_EXPIRE: i64 = -1;

/// Keyspace events of our own, of the class of modules.
pub mod events {
    use std::ffi::CStr;

    /// A lock was granted.
    pub const ACQUIRE: &CStr = c"lock.acquire";
    /// A lock was granted to LOCK.RECOVER.
    pub const RECOVER: &CStr = c"lock.recover";
    /// A lease was set anew.
    pub const EXTEND: &CStr = c"lock.extend";
    /// A lock was given back.
    pub const RELEASE: &CStr = c"lock.release";
    /// A lock was found expired by its successor.
    pub const LAPSE: &CStr = c"lock.lapse";
}

/// A key that was written and closed, of which nobody has been told.
pub struct Written<'a, 'v> {
    context: &'a Context,
    name: Arg<'a>,
    value: &'v Encoded,
    expire_at: Option<i64>,
}

impl<'a> Key<'a> {
    /// Writes a value, and everything that follows from it, in one change of the key: as
    /// `SET key value [PXAT ms]` would where it is the only holder.
    ///
    /// # Errors
    /// [`Error::Internal`] when the server refuses the write.
    pub fn store(self, value: &Encoded, holds: Holds, events: &[&CStr]) -> Result<(), Error> {
        if self.is_string(holds) {
            return self.write(value)?.tell(events);
        }
        let replaces = if let Holds::Among { replaces } = holds { replaces } else { None };
        if self.bytes().is_some() {
            return self.close().store(value, holds, events).map_err(|_| Error::Internal);
        }
        let (context, name) = (self.context, self.name);
        self.change_in_place(Some(value), replaces)?;
        notify_all(context, name, events);
        waiting::written(context, name, value, true);
        Ok(())
    }

    /// Takes the grants out that have ended, with everything that follows from it: as `DEL key` would
    /// where there was one.
    ///
    /// # Errors
    /// [`Error::Internal`] when the server refuses the write.
    pub fn release(self) -> Result<(), Error> {
        if self.several.is_some() {
            let (context, name) = (self.context, self.name);
            let token = self.ended.first().map(|ended| ended.token);
            self.change_in_place(None, None)?;
            notify(context, name, raw::REDISMODULE_NOTIFY_MODULE, events::RELEASE);
            session::released(context, name, token);
            return Ok(());
        }
        let context = self.context;
        tell_deleted(context, &[self.delete()?]);
        Ok(())
    }

    /// Deletes the key and closes it; nobody is told yet.
    ///
    /// # Errors
    /// [`Error::Internal`] when the server refuses the write.
    pub fn delete(self) -> Result<Arg<'a>, Error> {
        // SAFETY: the handle is open for writing.
        if unsafe { (api().delete_key)(self.handle) } != OK {
            return Err(Error::Internal);
        }
        Ok(self.closed().1)
    }

    /// Whether a grant is to be the only one in the key.
    fn is_string(&self, holds: Holds) -> bool {
        match holds {
            Holds::Alone => true,
            Holds::AsBefore => self.several.is_none(),
            Holds::Among { .. } => false,
        }
    }

    /// Writes a value as the only one, in place, and closes the key; nobody is told yet.
    ///
    /// # Errors
    /// [`Error::Internal`] when the server refuses the write.
    pub fn write<'v>(mut self, value: &'v Encoded) -> Result<Written<'a, 'v>, Error> {
        let expire_at = state::retention(self.context).expire_at_ms(value.timestamp());
        let expire_at = expire_at.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        if broken::is(Mutant::DeleteThenSet) && self.bytes().is_some() {
            // SAFETY: the handle is open for writing; the format takes the one string that follows.
            unsafe {
                (api().delete_key)(self.handle);
                (api().replicate)(self.context.as_ptr(), c"DEL".as_ptr(), c"s".as_ptr(), self.name.as_ptr());
            }
        }
        // SAFETY: the handle is open for writing.
        if self.several.take().is_some() && unsafe { (api().delete_key)(self.handle) } != OK {
            return Err(Error::Internal);
        }
        self.overwrite(value.as_bytes())?;
        // SAFETY: the handle is open for writing and holds a string.
        unsafe { (api().set_abs_expire)(self.handle, expire_at.unwrap_or(NO_EXPIRE)) };
        let (context, name) = self.closed();
        Ok(Written { context, name, value, expire_at })
    }

    /// Puts bytes in the key, in place where it holds as many: no object is made for the server to
    /// copy from, and the string is never a compact encoding that the next read would unpack.
    fn overwrite(&self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: the handle is open for writing and holds a string or nothing; the server gives
        // the address of as many writable bytes as it says, valid until the key is touched again.
        unsafe {
            if (api().string_truncate)(self.handle, bytes.len()) != OK {
                return Err(Error::Internal);
            }
            let mut length = 0;
            let room = (api().string_dma)(self.handle, &raw mut length, WRITE);
            if room.is_null() || length != bytes.len() {
                return Err(Error::Internal);
            }
            room.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length);
        }
        Ok(())
    }

    /// Closes the key before anybody is told, because who is told may touch it.
    pub(super) fn closed(self) -> (&'a Context, Arg<'a>) {
        (self.context, self.name)
    }

    /// Closes the key, to change it by the server's own commands.
    #[must_use]
    pub fn close(mut self) -> Closed<'a> {
        let exists = self.several.is_none() && self.exists();
        Closed {
            context: self.context,
            name: self.name,
            is_string: exists,
            has_expiry: self.several.is_some() && self.expires_in_ms().is_some(),
            several: self.several.take(),
            ended: std::mem::take(&mut self.ended),
            now: self.now(),
        }
    }
}

/// Tells replicas, WATCH, client tracking and listeners of locks that were given back by [`Key::delete`].
pub fn tell_deleted(context: &Context, names: &[Arg<'_>]) {
    let (context_ptr, del) = (context.as_ptr(), c"DEL".as_ptr());
    // SAFETY: s takes a string of the server, v an array of them with its length (size_t); a name is nothing
    // but such a string.
    unsafe {
        match names {
            _ if broken::is(Mutant::DelNotReplicated) => 0,
            [] => 0,
            [name] => (api().replicate)(context_ptr, del, c"s".as_ptr(), name.as_ptr()),
            names => (api().replicate)(context_ptr, del, c"v".as_ptr(), names.as_ptr(), names.len()),
        };
    }
    for name in names {
        changed(context, *name, raw::REDISMODULE_NOTIFY_GENERIC, c"del");
        notify(context, *name, raw::REDISMODULE_NOTIFY_MODULE, events::RELEASE);
        session::released(context, *name, None);
    }
}

impl Written<'_, '_> {
    /// Tells replicas, WATCH, client tracking, listeners and those who wait.
    ///
    /// # Errors
    /// [`Error::Internal`]
    pub fn tell(self, events: &[&CStr]) -> Result<(), Error> {
        let Self { context, name, value, expire_at } = self;
        let (bytes, length) = (value.as_bytes().as_ptr(), value.as_bytes().len());
        let words = expire_at.map(|ms| expiry_words(ms).ok_or(Error::Internal)).transpose()?;
        // SAFETY: the formats match what follows them: s a string of the server, b a buffer with
        // its length (size_t). The server copies or retains all of them.
        unsafe {
            match words {
                Some([pxat, ms]) => (api().replicate)(
                    context.as_ptr(),
                    c"SET".as_ptr(),
                    c"sbss".as_ptr(),
                    name.as_ptr(),
                    bytes,
                    length,
                    pxat,
                    ms,
                ),
                None => {
                    (api().replicate)(context.as_ptr(), c"SET".as_ptr(), c"sb".as_ptr(), name.as_ptr(), bytes, length)
                }
            };
        }
        writing(|| {
            changed(context, name, raw::REDISMODULE_NOTIFY_STRING, c"set");
            if expire_at.is_some() {
                notify(context, name, raw::REDISMODULE_NOTIFY_GENERIC, c"expire");
            }
            notify_all(context, name, events);
        });
        waiting::written(context, name, value, false);
        Ok(())
    }
}

/// `PXAT ms` as strings of the server, as the last grant replicated them. Under load the next one
/// often has the same: strings that are there cost it nothing.
struct Expiry {
    ms: i64,
    pxat: OwnString,
    text: OwnString,
}

static EXPIRY: MainThread<Option<Expiry>> = MainThread::new(None);

/// The strings that replicate an expiry; good until this is called again.
pub(super) fn expiry_words(ms: i64) -> Option<[*mut raw::RedisModuleString; 2]> {
    EXPIRY
        .with(|last| {
            if last.as_ref().is_none_or(|last| last.ms != ms) {
                let pxat = last.take().map_or_else(|| OwnString::of(b"PXAT"), |last| Some(last.pxat))?;
                *last = Some(Expiry { ms, pxat, text: OwnString::of(ms.to_string().as_bytes())? });
            }
            last.as_ref().map(|last| [last.pxat.as_arg().as_ptr(), last.text.as_arg().as_ptr()])
        })
        .flatten()
}

/// Gives back what was kept: the module is unloaded.
pub(super) fn unload() {
    EXPIRY.with(|last| *last = None);
}

/// Why a write through the server's own commands was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// The slot of the key is not ours, or the cluster is down.
    NotOurs,
    /// Anything else: it may be done later.
    ForNow,
}

/// Whether the keys are being written by this module, so that what it hears of them is no news.
static WRITING: AtomicBool = AtomicBool::new(false);

/// Whether a change of a key that the server tells of is our own.
#[must_use]
pub fn is_writing() -> bool {
    WRITING.load(Ordering::Relaxed)
}

pub(super) fn writing<R>(body: impl FnOnce() -> R) -> R {
    WRITING.store(true, Ordering::Relaxed);
    let result = body();
    WRITING.store(false, Ordering::Relaxed);
    result
}

/// A key that was looked at and closed, to be changed by the server's own commands.
pub struct Closed<'a> {
    context: &'a Context,
    name: Arg<'a>,
    is_string: bool,
    has_expiry: bool,
    several: Option<Box<Set>>,
    ended: Vec<Holder>,
    now: UnixMicros,
}

impl Closed<'_> {
    /// As [`Key::store`], also where no command runs.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn store(self, value: &Encoded, holds: Holds, events: &[&CStr]) -> Result<(), WriteRefused> {
        let (context, name) = (self.context, self.name);
        let is_among = match holds {
            Holds::Alone => false,
            Holds::Among { .. } => true,
            Holds::AsBefore => self.several.is_some(),
        };
        if is_among {
            let replaces = if let Holds::Among { replaces } = holds { replaces } else { None };
            writing(|| self.change(Some(value), replaces))?;
        } else {
            writing(|| self.set(value))?;
        }
        notify_all(context, name, events);
        waiting::written(context, name, value, is_among);
        Ok(())
    }

    /// As [`Key::release`], also where no command runs.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn release(self) -> Result<(), WriteRefused> {
        let (context, name) = (self.context, self.name);
        let token = self.ended.first().map(|ended| ended.token);
        if self.several.is_some() {
            writing(|| self.change(None, None))?;
        } else {
            self.delete()?;
        }
        notify(context, name, raw::REDISMODULE_NOTIFY_MODULE, events::RELEASE);
        session::released(context, name, token);
        Ok(())
    }

    fn set(&self, value: &Encoded) -> Result<(), WriteRefused> {
        let bytes = value.as_bytes();
        let expire_at = state::retention(self.context).expire_at_ms(value.timestamp());
        clear_errno();
        // SAFETY: the formats match what follows them: s, b and l as in `Written::tell`, c a C string;
        // ! replicates.
        done(unsafe {
            match expire_at {
                Some(ms) => (api().call)(
                    self.context.as_ptr(),
                    c"SET".as_ptr(),
                    c"!sbcl".as_ptr(),
                    self.name.as_ptr(),
                    bytes.as_ptr(),
                    bytes.len(),
                    c"PXAT".as_ptr(),
                    i64::try_from(ms).unwrap_or(i64::MAX),
                ),
                None => (api().call)(
                    self.context.as_ptr(),
                    c"SET".as_ptr(),
                    c"!sb".as_ptr(),
                    self.name.as_ptr(),
                    bytes.as_ptr(),
                    bytes.len(),
                ),
            }
        })
    }

    /// `command key`
    fn call(&self, command: &CStr) -> Result<(), WriteRefused> {
        clear_errno();
        // SAFETY: the format takes the one string of the server that follows; ! replicates.
        done(unsafe { (api().call)(self.context.as_ptr(), command.as_ptr(), c"!s".as_ptr(), self.name.as_ptr()) })
    }

    fn delete(&self) -> Result<(), WriteRefused> {
        self.call(c"DEL")
    }

    /// Changes a sorted set of holders.
    fn change(mut self, value: Option<&Encoded>, replaces: Option<Token>) -> Result<(), WriteRefused> {
        let retention = state::retention(self.context);
        let before = Before {
            set: self.several.take().unwrap_or_default(),
            ended: std::mem::take(&mut self.ended),
            has_expiry: self.has_expiry,
        };
        let change = before.change(value, replaces, retention, self.now);
        if let Some(value) = value {
            if self.is_string {
                self.delete()?;
            }
            self.add(value)?;
        }
        for holder in &change.gone {
            self.remove(holder)?;
        }
        match change.expiry {
            NewExpiry::At(ms) => self.expire_at(ms)?,
            NewExpiry::Never => self.call(c"PERSIST")?,
            NewExpiry::AsBefore => {}
        }
        several::keep(self.context, self.name, change.set);
        Ok(())
    }

    fn add(&self, value: &Encoded) -> Result<(), WriteRefused> {
        let (score, member) = (value.score(), value.member());
        clear_errno();
        // SAFETY: the format takes a string of the server and two buffers with their lengths (size_t);
        // ! replicates.
        done(unsafe {
            (api().call)(
                self.context.as_ptr(),
                c"ZADD".as_ptr(),
                c"!sbb".as_ptr(),
                self.name.as_ptr(),
                score.as_ptr(),
                score.len(),
                member.as_ptr(),
                member.len(),
            )
        })
    }

    fn remove(&self, holder: &Holder) -> Result<(), WriteRefused> {
        let encoded = holder.record().encode();
        let member = encoded.member();
        clear_errno();
        // SAFETY: the format takes a string of the server and a buffer with its length (size_t);
        // ! replicates.
        done(unsafe {
            (api().call)(
                self.context.as_ptr(),
                c"ZREM".as_ptr(),
                c"!sb".as_ptr(),
                self.name.as_ptr(),
                member.as_ptr(),
                member.len(),
            )
        })
    }

    fn expire_at(&self, ms: u64) -> Result<(), WriteRefused> {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        clear_errno();
        // SAFETY: the format takes a string of the server and a long long; ! replicates.
        done(unsafe {
            (api().call)(self.context.as_ptr(), c"PEXPIREAT".as_ptr(), c"!sl".as_ptr(), self.name.as_ptr(), ms)
        })
    }
}

/// Whether the slot of a key is served by this server; always, without a cluster. Asking a command
/// is the one way that every server has.
#[must_use]
pub fn is_served_here(context: &Context, name: Arg<'_>) -> bool {
    if !context.has_flags(raw::REDISMODULE_CTX_FLAGS_CLUSTER) {
        return true;
    }
    clear_errno();
    // SAFETY: the format takes the one string of the server that follows.
    let reply = unsafe { (api().call)(context.as_ptr(), c"EXISTS".as_ptr(), c"s".as_ptr(), name.as_ptr()) };
    done(reply) != Err(WriteRefused::NotOurs)
}

fn clear_errno() {
    // SAFETY: the address of this thread's errno is valid.
    unsafe { *libc::__errno_location() = 0 };
}

/// Whether a command that the module called was carried out; gives its reply back.
fn done(reply: *mut raw::RedisModuleCallReply) -> Result<(), WriteRefused> {
    if reply.is_null() {
        // SAFETY: the address of this thread's errno is valid.
        return match unsafe { *libc::__errno_location() } {
            libc::EPERM | libc::ENETDOWN => Err(WriteRefused::NotOurs),
            _ => Err(WriteRefused::ForNow),
        };
    }
    // SAFETY: the reply is not null and freed once.
    let kind = unsafe {
        let kind = (api().call_reply_type)(reply);
        (api().free_call_reply)(reply);
        kind
    };
    if isize::try_from(kind).is_ok_and(|kind| kind == raw::REDISMODULE_REPLY_ERROR) {
        return Err(WriteRefused::ForNow);
    }
    Ok(())
}

/// Tells WATCH, client tracking and listeners of keyspace events of a change.
pub(super) fn changed(context: &Context, name: Arg<'_>, class: i32, event: &CStr) {
    // SAFETY: context and name are those of the running call.
    unsafe { (api().signal_modified_key)(context.as_ptr(), name.as_ptr()) };
    notify(context, name, class, event);
}

fn notify_all(context: &Context, name: Arg<'_>, events: &[&CStr]) {
    for event in events {
        notify(context, name, raw::REDISMODULE_NOTIFY_MODULE, event);
    }
}

pub(super) fn notify(context: &Context, name: Arg<'_>, class: i32, event: &CStr) {
    // SAFETY: context and name are those of the running call, the event is a C string.
    unsafe { (api().notify_keyspace_event)(context.as_ptr(), class, event.as_ptr(), name.as_ptr()) };
}
