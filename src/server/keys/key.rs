//! A key on the server, opened and read as a lock. `write.rs` writes it.

use crate::driver::{self, Expected, Unseen};
use crate::engine::Shape;
use crate::lock::change::Members;
use crate::lock::record::Value;
use crate::lock::state::State;
use crate::lock::time::UnixMicros;
use crate::server::api::api;
use crate::server::api::context::{Arg, Context};
use crate::server::keys::holder_sets;
pub use crate::server::keys::holder_sets::Glimpse;
use crate::server::keys::zset::Zset;
use crate::server::state::set_cache::Set;
use redis_module::raw;

/// How a key is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For a change in place. Only a real change is signalled to WATCH and client tracking: the module has turned off
    /// the implicit signal.
    Write,
    /// For reading, without counting as a use.
    Read,
}

impl Mode {
    pub(in crate::server) const fn bits(self) -> i32 {
        match self {
            Self::Write => (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE).cast_signed(),
            Self::Read => (raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH).cast_signed(),
        }
    }
}

/// An open key at one point in time; closed when dropped.
pub struct Key<'a> {
    context: Context,
    name: Arg<'a>,
    /// Null if it was opened for reading and does not exist, or if it is closed.
    handle: *mut raw::RedisModuleKey,
    /// Its type when it was opened.
    kind: isize,
    /// The holders, if the key is a sorted set of them.
    set: Option<Box<Set>>,
    /// Whether it had an expiry, once it is closed.
    had_expiry: Option<bool>,
    now: UnixMicros,
}

impl<'a> Key<'a> {
    /// Opens a key and reads it as of `now`.
    ///
    /// # Errors
    /// [`Unseen::WrongType`] when it holds neither a string nor a sorted set of holders, [`Unseen::TooManyHolders`].
    pub fn open(
        context: Context,
        name: Arg<'a>,
        mode: Mode,
        expected: Expected,
        now: UnixMicros,
    ) -> Result<Self, Unseen> {
        Self::open_as(context, name, mode, now, |zset| holder_sets::confirmed(zset, holder_sets::read(zset)?, expected))
    }

    /// Opens a key only to read it, for one row of many: it reads only part of a set of holders.
    ///
    /// # Errors
    /// The errors of [`Key::open`].
    pub fn glimpse(context: &'a Context, name: Arg<'a>, wanted: Glimpse<'_>, now: UnixMicros) -> Result<Self, Unseen> {
        // SAFETY: the key does not outlive the borrow of the call.
        Self::open_as(unsafe { context.copy() }, name, Mode::Read, now, |zset| holder_sets::glimpse(zset, wanted, now))
    }

    /// Like [`Key::open`], only for reading.
    ///
    /// # Errors
    /// The errors of [`Key::open`].
    pub fn inspect(context: &'a Context, name: Arg<'a>, now: UnixMicros) -> Result<Self, Unseen> {
        // SAFETY: the key does not outlive the borrow of the call.
        Self::open(unsafe { context.copy() }, name, Mode::Read, Expected::Nothing, now)
    }

    #[inline]
    fn open_as(
        context: Context,
        name: Arg<'a>,
        mode: Mode,
        now: UnixMicros,
        read: impl FnOnce(&Zset<'_>) -> Result<Box<Set>, Unseen>,
    ) -> Result<Self, Unseen> {
        // SAFETY: context and name belong to the running entry.
        let handle = unsafe { (api().open_key)(context.as_ptr(), name.as_ptr(), mode.bits()) };
        // SAFETY: the handle is open; null means an absent key, and is allowed.
        let kind = unsafe { (api().key_type)(handle) };
        let kind = isize::try_from(kind).unwrap_or(raw::REDISMODULE_KEYTYPE_EMPTY);
        let mut key = Self { context, name, handle, kind, set: None, had_expiry: None, now };
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY | raw::REDISMODULE_KEYTYPE_STRING => Ok(key),
            raw::REDISMODULE_KEYTYPE_ZSET => {
                // SAFETY: the handle belongs to this key, an open sorted set; it is closed when the key is dropped.
                let mut set = read(&unsafe { Zset::of(&key.context, name, handle) })?;
                set.members.holders.advance(now);
                key.set = Some(set);
                Ok(key)
            }
            _ => Err(Unseen::WrongType),
        }
    }

    /// The context in which it was opened.
    pub(in crate::server) const fn context(&self) -> &Context {
        &self.context
    }

    #[must_use]
    pub const fn name(&self) -> Arg<'a> {
        self.name
    }

    /// The server's handle.
    pub(in crate::server) const fn handle(&self) -> *mut raw::RedisModuleKey {
        self.handle
    }

    /// Takes the set of holders, to be changed in the key.
    pub(in crate::server) const fn take_set(&mut self) -> Option<Box<Set>> {
        self.set.take()
    }

    /// The bytes in the key, if it is a string.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        if !driver::Key::is_string(self) || self.handle.is_null() {
            return None;
        }
        let mut length = 0;
        // SAFETY: the handle is an open string; the bytes stay in place until the key is written,
        // which needs this key by value, or closed, which needs it not to be borrowed.
        unsafe {
            let bytes = (api().string_dma)(self.handle, &raw mut length, raw::REDISMODULE_READ.cast_signed());
            Some(if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes.cast(), length) })
        }
    }

    /// The meaning of the string in the key; `None` if there is no string.
    #[must_use]
    pub fn value(&self) -> Option<Value<'_>> {
        self.bytes().map(|bytes| Value::read(bytes, || self.has_native_expiry()))
    }

    fn has_native_expiry(&self) -> bool {
        driver::Key::expires_in_ms(self).is_some()
    }
}

/// Milliseconds until the native expiry of a key that holds no lock, if it has one.
#[must_use]
pub fn expires_in_ms(context: &Context, name: Arg<'_>) -> Option<u64> {
    // SAFETY: context and name belong to the running entry; null means an absent key. The handle is closed once.
    unsafe {
        let handle = (api().open_key)(context.as_ptr(), name.as_ptr(), Mode::Read.bits());
        let left = if handle.is_null() { None } else { expiry_of(handle) };
        (api().close_key)(handle);
        left
    }
}

/// # Safety
/// The handle belongs to an open key.
unsafe fn expiry_of(handle: *mut raw::RedisModuleKey) -> Option<u64> {
    // SAFETY: as promised by the caller.
    u64::try_from(unsafe { (api().get_expire)(handle) }).ok()
}

impl driver::Key for Key<'_> {
    fn lock(&self) -> State<'_> {
        match &self.set {
            Some(set) => State::Several(&set.members.holders),
            None => State::of(self.value(), self.now),
        }
    }

    fn now(&self) -> UnixMicros {
        self.now
    }

    fn expires_in_ms(&self) -> Option<u64> {
        // Redis 8.6 crashes when asked for the expiry of an absent key that is open for writing.
        if self.handle.is_null() || self.kind == raw::REDISMODULE_KEYTYPE_EMPTY {
            return None;
        }
        // SAFETY: the handle is open.
        unsafe { expiry_of(self.handle) }
    }

    fn holders_read(&self) -> usize {
        self.set.as_ref().filter(|set| !set.was_kept()).map_or(0, |set| set.members.holders.len())
    }

    fn shape(&self) -> Shape {
        if self.set.is_some() {
            Shape::Several
        } else {
            Shape::One
        }
    }

    fn is_string(&self) -> bool {
        self.kind == raw::REDISMODULE_KEYTYPE_STRING
    }

    fn has_expiry(&self) -> bool {
        self.had_expiry.unwrap_or_else(|| self.has_native_expiry())
    }

    fn members(&mut self) -> Option<&mut Members> {
        self.set.as_mut().map(|set| &mut set.members)
    }

    fn close(&mut self) {
        if self.had_expiry.is_some() {
            return;
        }
        self.had_expiry = Some(self.set.is_some() && self.has_native_expiry());
        let handle = std::mem::replace(&mut self.handle, std::ptr::null_mut());
        // SAFETY: the handle was opened by this value and is closed once; null is allowed.
        unsafe { (api().close_key)(handle) };
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        if let Some(set) = self.set.take() {
            holder_sets::keep(&self.context, self.name, set);
        }
        // SAFETY: the handle was opened by this value and is closed once; null is allowed.
        unsafe { (api().close_key)(self.handle) };
    }
}
