//! A key of the server: opened, and read as a lock. How it is written: [`super::write`].

use super::api::api;
use super::context::{Arg, Context};
use super::several::{self, Set};
use crate::lock::error::Error;
use crate::lock::holders::{Holder, Holders};
use crate::lock::record::{number, Id, Record, Value};
use crate::lock::rules::State;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use redis_module::raw;

pub(super) const WRITE: i32 = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE).cast_signed();
const READ: i32 = (raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH).cast_signed();

/// An open key, as it is at one point in time; closed when dropped.
pub struct Key<'a> {
    pub(super) context: &'a Context,
    pub(super) name: Arg<'a>,
    /// Null: opened for reading, and it does not exist.
    pub(super) handle: *mut raw::RedisModuleKey,
    /// Several holders, where the key is a sorted set of them.
    pub(super) several: Option<Box<Set>>,
    now: UnixMicros,
}

impl<'a> Key<'a> {
    /// Opens a key that may be written, and tells of it as of `now`. Only a change is signalled to WATCH
    /// and client tracking: the module has turned the implicit signal off.
    ///
    /// # Errors
    /// [`Error::WrongType`] when it holds neither a string nor a sorted set of holders, [`Error::TooManyHolders`].
    pub fn open(context: &'a Context, name: Arg<'a>, now: UnixMicros) -> Result<Self, Error> {
        Self::open_as(context, name, WRITE, now, several::read)
    }

    /// Opens a key that is only read.
    ///
    /// # Errors
    /// [`Error::WrongType`] when it holds neither a string nor a sorted set of holders, [`Error::TooManyHolders`].
    pub fn open_read_only(context: &'a Context, name: Arg<'a>, now: UnixMicros) -> Result<Self, Error> {
        Self::open_as(context, name, READ, now, several::read)
    }

    /// Opens a key that is only read, for one row of many: of several holders it tells how many are live, and of the
    /// one that ends last, nothing of the others. That costs O(log n), however many there are.
    ///
    /// # Errors
    /// As [`Key::open_read_only`].
    pub fn glimpse(context: &'a Context, name: Arg<'a>, now: UnixMicros) -> Result<Self, Error> {
        Self::open_as(context, name, READ, now, several::glimpse)
    }

    fn open_as(
        context: &'a Context,
        name: Arg<'a>,
        mode: i32,
        now: UnixMicros,
        read: fn(&Self) -> Result<Box<Set>, Error>,
    ) -> Result<Self, Error> {
        // SAFETY: context and name are those of the running call.
        let handle = unsafe { (api().open_key)(context.as_ptr(), name.as_ptr(), mode) };
        let mut key = Self { context, name, handle, several: None, now };
        match key.kind() {
            raw::REDISMODULE_KEYTYPE_EMPTY | raw::REDISMODULE_KEYTYPE_STRING => Ok(key),
            raw::REDISMODULE_KEYTYPE_ZSET => {
                let mut set = read(&key)?;
                set.holders.look(now);
                key.several = Some(set);
                Ok(key)
            }
            _ => Err(Error::WrongType),
        }
    }

    /// Makes sure that what is known of a grant stands in the key, where that was not read just now: nobody is told
    /// that a grant is held unless the key says so.
    ///
    /// # Errors
    /// As [`Key::open`].
    pub fn with_grant(self, token: Token) -> Result<Self, Error> {
        self.confirmed(|holders| holders.get(token))
    }

    /// As [`Key::with_grant`], for the grant of an attempt.
    ///
    /// # Errors
    /// As [`Key::open`].
    pub fn with_attempt(self, id: Option<Id>) -> Result<Self, Error> {
        self.confirmed(|holders| holders.by_id(id?))
    }

    fn confirmed(mut self, holder: impl FnOnce(&Holders) -> Option<&Holder>) -> Result<Self, Error> {
        let Some(set) = &self.several else { return Ok(self) };
        if !set.was_kept() || holder(&set.holders).is_none_or(|holder| several::has(&self, holder)) {
            return Ok(self);
        }
        let now = self.now;
        let mut set = several::load(&self)?;
        set.holders.look(now);
        self.several = Some(set);
        Ok(self)
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

    /// Whether there is something in it.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.kind() != raw::REDISMODULE_KEYTYPE_EMPTY
    }

    /// The bytes in the key, if it is a string.
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

    /// What a string in the key means; `None` where there is none.
    #[must_use]
    pub fn value(&self) -> Option<Value<'_>> {
        self.bytes().map(|bytes| Value::read(bytes, || self.expires_in_ms().is_some()))
    }

    /// What the key is to everybody but its writer.
    #[must_use]
    pub fn state(&self) -> State<'_> {
        match &self.several {
            Some(set) => State::Several(&set.holders),
            None => State::of(self.value(), self.now),
        }
    }

    /// The time that it tells of.
    #[must_use]
    pub const fn now(&self) -> UnixMicros {
        self.now
    }

    /// Whether it is a sorted set of holders.
    #[must_use]
    pub const fn has_several(&self) -> bool {
        self.several.is_some()
    }

    /// Whether somebody is left in it.
    #[must_use]
    pub fn has_holders(&self) -> bool {
        self.several.as_ref().is_some_and(|set| !set.holders.is_empty())
    }

    /// A grant among several ends: the key tells of it as if it had, until it is changed. Whether it was one.
    pub fn end(&mut self, token: Token) -> bool {
        self.several.as_mut().is_some_and(|set| set.end(token))
    }

    /// A holder that was replaced by one whose grant has ended is there again.
    pub fn put_back(&mut self, record: &Record<'_>) {
        if let Some(set) = &mut self.several {
            set.holders.put(Holder::of(record));
        }
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
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        if let Some(set) = self.several.take() {
            several::keep(self.context, self.name, set);
        }
        // SAFETY: the handle was opened by this value and is closed once; null is allowed.
        unsafe { (api().close_key)(self.handle) };
    }
}

/// The cursor and the names of the keys that one step of the server's SCAN gives.
pub type Scanned = (Box<[u8]>, Vec<Box<[u8]>>);

/// A step of the server's SCAN of the selected database; nothing if it does not accept the arguments.
#[must_use]
pub fn scan(context: &Context, cursor: &[u8], pattern: Option<&[u8]>, count: usize) -> Option<Scanned> {
    number(cursor)?;
    let pattern = pattern.unwrap_or(b"*");
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    // SAFETY: the format takes two buffers with their lengths (size_t), C strings and a long long, as
    // they follow. What is read of the reply is copied before that is freed, once.
    unsafe {
        let reply = (api().call)(
            context.as_ptr(),
            c"SCAN".as_ptr(),
            c"bcbcl".as_ptr(),
            cursor.as_ptr(),
            cursor.len(),
            c"MATCH".as_ptr(),
            pattern.as_ptr(),
            pattern.len(),
            c"COUNT".as_ptr(),
            count,
        );
        if reply.is_null() {
            return None;
        }
        let text = |element: *mut raw::RedisModuleCallReply| -> Option<Box<[u8]>> {
            let mut length = 0;
            if element.is_null() {
                return None;
            }
            let bytes = (api().call_reply_string_ptr)(element, &raw mut length);
            (!bytes.is_null()).then(|| std::slice::from_raw_parts(bytes.cast::<u8>(), length).into())
        };
        let cursor = text((api().call_reply_array_element)(reply, 0));
        let keys = (api().call_reply_array_element)(reply, 1);
        let names =
            (0..).map_while(|at| if keys.is_null() { None } else { text((api().call_reply_array_element)(keys, at)) });
        let names = names.collect();
        (api().free_call_reply)(reply);
        cursor.map(|cursor| (cursor, names))
    }
}
