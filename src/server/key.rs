//! A key of the server: read as a lock, written and deleted with all that follows from it
//! (native expiry, replication, WATCH and client tracking, keyspace events).

use super::api::api;
use super::context::{Arg, Context, OwnString};
use super::main_thread::MainThread;
use super::{session, state, waiting};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::record::{Encoded, Value};
use redis_module::raw;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

const OK: i32 = 0;
const NO_EXPIRE: i64 = -1;

const WRITE: i32 = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE).cast_signed();
const READ: i32 = (raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH).cast_signed();

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

/// An open key, closed when dropped.
pub struct Key<'a> {
    context: &'a Context,
    name: Arg<'a>,
    /// Null: opened for reading, and it does not exist.
    handle: *mut raw::RedisModuleKey,
}

impl<'a> Key<'a> {
    /// Opens a key that may be written. Only a change is signalled to WATCH and client tracking:
    /// the module has turned the implicit signal off.
    ///
    /// # Errors
    /// [`Error::WrongType`] when it holds anything but a string.
    pub fn open(context: &'a Context, name: Arg<'a>) -> Result<Self, Error> {
        Self::open_as(context, name, WRITE)
    }

    /// Opens a key that is only read.
    ///
    /// # Errors
    /// [`Error::WrongType`] when it holds anything but a string.
    pub fn open_read_only(context: &'a Context, name: Arg<'a>) -> Result<Self, Error> {
        Self::open_as(context, name, READ)
    }

    fn open_as(context: &'a Context, name: Arg<'a>, mode: i32) -> Result<Self, Error> {
        // SAFETY: context and name are those of the running call.
        let handle = unsafe { (api().open_key)(context.as_ptr(), name.as_ptr(), mode) };
        let key = Self { context, name, handle };
        match key.kind() {
            raw::REDISMODULE_KEYTYPE_EMPTY | raw::REDISMODULE_KEYTYPE_STRING => Ok(key),
            _ => Err(Error::WrongType),
        }
    }

    fn kind(&self) -> isize {
        // SAFETY: the handle is open; null stands for an absent key and is allowed.
        let kind = unsafe { (api().key_type)(self.handle) };
        isize::try_from(kind).unwrap_or(raw::REDISMODULE_KEYTYPE_EMPTY)
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> Arg<'a> {
        self.name
    }

    /// The bytes in the key; `None` when it does not exist.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.kind() != raw::REDISMODULE_KEYTYPE_STRING {
            return None;
        }
        let mut length = 0;
        // SAFETY: the handle is an open string; the bytes stay in place until the key is written,
        // which needs this key by value, or closed.
        unsafe {
            let bytes = (api().string_dma)(self.handle, &raw mut length, raw::REDISMODULE_READ.cast_signed());
            Some(if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes.cast(), length) })
        }
    }

    /// What the key means; `None` when it does not exist.
    #[must_use]
    pub fn value(&self) -> Option<Value<'_>> {
        self.bytes().map(|bytes| Value::read(bytes, || self.expires_in_ms().is_some()))
    }

    /// Milliseconds until the key's native expiry, if it has one.
    #[must_use]
    pub fn expires_in_ms(&self) -> Option<u64> {
        if self.handle.is_null() {
            return None;
        }
        // SAFETY: the handle is open.
        u64::try_from(unsafe { (api().get_expire)(self.handle) }).ok()
    }

    /// Writes a value and everything that follows from it, as `SET key value [PXAT ms]` would.
    ///
    /// # Errors
    /// [`Error::Internal`] when the server refuses the write.
    pub fn store(self, value: &Encoded, events: &[&CStr]) -> Result<(), Error> {
        let expire_at = state::retention(self.context).expire_at_ms(value.timestamp());
        let expire_at = expire_at.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        if broken::is(Mutant::DeleteThenSet) && self.bytes().is_some() {
            // SAFETY: the handle is open for writing; the format takes the one string that follows.
            unsafe {
                (api().delete_key)(self.handle);
                (api().replicate)(self.context.as_ptr(), c"DEL".as_ptr(), c"s".as_ptr(), self.name.as_ptr());
            }
        }
        let words = expire_at.map(|ms| expiry(ms).ok_or(Error::Internal)).transpose()?;
        self.overwrite(value.as_bytes())?;
        // SAFETY: the handle is open for writing and holds a string.
        unsafe { (api().set_abs_expire)(self.handle, expire_at.unwrap_or(NO_EXPIRE)) };
        let (context, name) = self.close();
        let (bytes, length) = (value.as_bytes().as_ptr(), value.as_bytes().len());
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
        waiting::written(context, name, value);
        Ok(())
    }

    /// Deletes the key and everything that follows from it, as `DEL key` would.
    ///
    /// # Errors
    /// [`Error::Internal`] when the server refuses the write.
    pub fn delete(self) -> Result<(), Error> {
        // SAFETY: the handle is open for writing.
        if unsafe { (api().delete_key)(self.handle) } != OK {
            return Err(Error::Internal);
        }
        let (context, name) = self.close();
        if !broken::is(Mutant::DelNotReplicated) {
            // SAFETY: the format takes the one string of the server that follows.
            unsafe { (api().replicate)(context.as_ptr(), c"DEL".as_ptr(), c"s".as_ptr(), name.as_ptr()) };
        }
        changed(context, name, raw::REDISMODULE_NOTIFY_GENERIC, c"del");
        notify(context, name, raw::REDISMODULE_NOTIFY_MODULE, events::RELEASE);
        session::released(context, name);
        Ok(())
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
    fn close(self) -> (&'a Context, Arg<'a>) {
        (self.context, self.name)
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
fn expiry(ms: i64) -> Option<[*mut raw::RedisModuleString; 2]> {
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

/// Why a write outside of a command was not done.
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

fn writing<R>(body: impl FnOnce() -> R) -> R {
    WRITING.store(true, Ordering::Relaxed);
    let result = body();
    WRITING.store(false, Ordering::Relaxed);
    result
}

/// As [`Key::store`], where no command runs: through the server's own SET, which knows whether the
/// slot is ours.
///
/// # Errors
/// Why it was not done.
pub fn store_outside_command(
    context: &Context,
    name: Arg<'_>,
    value: &Encoded,
    events: &[&CStr],
) -> Result<(), WriteRefused> {
    let bytes = value.as_bytes();
    let expire_at = state::retention(context).expire_at_ms(value.timestamp());
    let reply = writing(|| {
        clear_errno();
        // SAFETY: the formats match what follows them: s, b and l as in `Key::store`, c a C string;
        // ! replicates.
        unsafe {
            match expire_at {
                Some(ms) => (api().call)(
                    context.as_ptr(),
                    c"SET".as_ptr(),
                    c"!sbcl".as_ptr(),
                    name.as_ptr(),
                    bytes.as_ptr(),
                    bytes.len(),
                    c"PXAT".as_ptr(),
                    i64::try_from(ms).unwrap_or(i64::MAX),
                ),
                None => (api().call)(
                    context.as_ptr(),
                    c"SET".as_ptr(),
                    c"!sb".as_ptr(),
                    name.as_ptr(),
                    bytes.as_ptr(),
                    bytes.len(),
                ),
            }
        }
    });
    done(reply)?;
    notify_all(context, name, events);
    waiting::written(context, name, value);
    Ok(())
}

/// As [`Key::delete`], where no command runs.
///
/// # Errors
/// Why it was not done.
pub fn delete_outside_command(context: &Context, name: Arg<'_>) -> Result<(), WriteRefused> {
    clear_errno();
    // SAFETY: the format takes the one string of the server that follows; ! replicates.
    done(unsafe { (api().call)(context.as_ptr(), c"DEL".as_ptr(), c"!s".as_ptr(), name.as_ptr()) })?;
    notify(context, name, raw::REDISMODULE_NOTIFY_MODULE, events::RELEASE);
    session::released(context, name);
    Ok(())
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
fn changed(context: &Context, name: Arg<'_>, class: i32, event: &CStr) {
    // SAFETY: context and name are those of the running call.
    unsafe { (api().signal_modified_key)(context.as_ptr(), name.as_ptr()) };
    notify(context, name, class, event);
}

fn notify_all(context: &Context, name: Arg<'_>, events: &[&CStr]) {
    for event in events {
        notify(context, name, raw::REDISMODULE_NOTIFY_MODULE, event);
    }
}

fn notify(context: &Context, name: Arg<'_>, class: i32, event: &CStr) {
    // SAFETY: context and name are those of the running call, the event is a C string.
    unsafe { (api().notify_keyspace_event)(context.as_ptr(), class, event.as_ptr(), name.as_ptr()) };
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle was opened by this value and is closed once; null is allowed.
        unsafe { (api().close_key)(self.handle) };
    }
}
