//! A key of the server: written, with all that follows from it (native expiry, replication, WATCH and
//! client tracking, keyspace events).
//!
//! A command writes in place: one holder as a string, several as a sorted set (`set.rs`). All else
//! goes through the server's own commands (`closed.rs`).

use super::api::api;
use super::context::{Arg, Context, OwnString};
use super::key::{Key, WRITE};
use super::main_thread::MainThread;
use super::{session, state, tell, waiting};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::record::Encoded;
use crate::lock::rules::Holds;
use redis_module::raw;
use std::ffi::CStr;

pub(super) const OK: i32 = 0;
pub(super) const NO_EXPIRE: i64 = -1;

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
        if !holds.is_among(self.has_several()) {
            return self.write(value)?.tell(events);
        }
        if self.bytes().is_some() {
            return self.close().store(value, holds, events).map_err(|_| Error::Internal);
        }
        let (context, name) = (self.context, self.name);
        self.change_in_place(Some(value), holds.replaces())?;
        tell::own_events(context, name, events);
        waiting::written(context, name, value, true);
        Ok(())
    }

    /// Takes the grants out that have ended, with everything that follows from it: as `DEL key` would
    /// where there was one.
    ///
    /// # Errors
    /// [`Error::Internal`] when the server refuses the write.
    pub fn release(self) -> Result<(), Error> {
        if let Some(set) = &self.several {
            let (context, name, token) = (self.context, self.name, set.ended.first().map(|ended| ended.token));
            self.change_in_place(None, None)?;
            tell::own_events(context, name, &[tell::RELEASE]);
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
        tell::changed(context, *name, raw::REDISMODULE_NOTIFY_GENERIC, c"del");
        tell::own_events(context, *name, &[tell::RELEASE]);
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
        tell::writing(|| {
            tell::changed(context, name, raw::REDISMODULE_NOTIFY_STRING, c"set");
            if expire_at.is_some() {
                tell::event(context, name, raw::REDISMODULE_NOTIFY_GENERIC, c"expire");
            }
            tell::own_events(context, name, events);
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
