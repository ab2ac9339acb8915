//! An entry from the server: its context, arguments and replies.

use crate::engine::KeyName;
use crate::lock::error::Error;
use crate::server::api::api;
use crate::server::api::command_docs::Keys;
use redis_module::raw;
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::ops::Range;

/// The context of an entry from the server; valid until the entry returns.
pub struct Context(*mut raw::RedisModuleCtx);

impl Context {
    /// # Safety
    /// `ctx` stays valid as long as the result is used.
    pub(in crate::server) const unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Self {
        Self(ctx)
    }

    /// A copy of the same context.
    ///
    /// # Safety
    /// The copy is not used after the entry has returned.
    pub(in crate::server) const unsafe fn copy(&self) -> Self {
        Self(self.0)
    }

    /// The server's own pointer.
    pub(in crate::server) const fn as_ptr(&self) -> *mut raw::RedisModuleCtx {
        self.0
    }

    /// A server setting as text; `None` if the operator disabled CONFIG.
    #[must_use]
    pub fn config(&self, name: &CStr) -> Option<String> {
        // SAFETY: the context is valid, the format takes the two C strings that follow. The reply's text lives as long
        // as the reply, which is freed only after the text has been copied.
        unsafe {
            let reply = (api().call)(self.0, c"CONFIG".as_ptr(), c"cc".as_ptr(), c"GET".as_ptr(), name.as_ptr());
            if reply.is_null() {
                return None;
            }
            let value = (api().call_reply_array_element)(reply, 1);
            let mut length = 0;
            let text =
                if value.is_null() { std::ptr::null() } else { (api().call_reply_string_ptr)(value, &raw mut length) };
            let found = (!text.is_null())
                .then(|| String::from_utf8_lossy(std::slice::from_raw_parts(text.cast(), length)).into_owned());
            (api().free_call_reply)(reply);
            found
        }
    }

    /// Whether the server only asks for the positions of the keys.
    #[must_use]
    pub fn is_asked_for_keys(&self) -> bool {
        // SAFETY: the context is valid.
        unsafe { (api().is_keys_position_request)(self.0) != 0 }
    }

    /// Reports the positions of the keys, counted from 0 after the command name; none if they cannot be found.
    pub fn report_keys(&self, keys: Result<Range<usize>, Error>, access: &Keys) {
        for at in keys.into_iter().flatten().filter_map(|at| i32::try_from(at).ok()) {
            // The server counts the command name too.
            let at = at.saturating_add(1);
            match api().key_at_pos_with_flags {
                // SAFETY: the context belongs to a request for the positions of keys.
                Some(report) => unsafe { report(self.0, at, access.flags()) },
                // SAFETY: as above.
                None => unsafe { (api().key_at_pos)(self.0, at) },
            }
        }
    }

    /// The database that the caller has selected.
    #[must_use]
    pub fn selected_db(&self) -> i32 {
        // SAFETY: the context is valid.
        unsafe { (api().get_selected_db)(self.0) }
    }

    /// Selects a database. Returns whether it exists. In a command this changes the caller's database, which has to be
    /// selected again afterwards.
    #[allow(clippy::must_use_candidate, reason = "a previously selected database exists")]
    pub fn select_db(&self, db: i32) -> bool {
        // SAFETY: the context is valid.
        unsafe { (api().select_db)(self.0, db) == 0 }
    }

    /// Whether any of the flags `REDISMODULE_CTX_FLAGS_*` is set.
    #[must_use]
    pub fn has_flags(&self, flags: u32) -> bool {
        // SAFETY: the context is valid.
        let set = unsafe { (api().get_context_flags)(self.0) };
        set.cast_unsigned() & flags != 0
    }

    /// Whether this server is a replica.
    #[must_use]
    pub fn is_replica(&self) -> bool {
        self.has_flags(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }

    /// Replies with an integer.
    pub fn reply_integer(&self, value: i64) {
        // SAFETY: the context is valid.
        unsafe { (api().reply_with_long_long)(self.0, value) };
    }

    /// Replies with a count, such as milliseconds.
    pub fn reply_count(&self, value: u64) {
        self.reply_integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Replies with an integer, or nil.
    pub fn reply_count_or_nil(&self, value: Option<u64>) {
        match value {
            Some(value) => self.reply_count(value),
            None => self.reply_nil(),
        }
    }

    /// Replies with a bulk string.
    pub fn reply_bytes(&self, bytes: &[u8]) {
        // SAFETY: the context is valid; the server copies the bytes.
        unsafe { (api().reply_with_string_buffer)(self.0, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Replies with a bulk string, or nil.
    pub fn reply_bytes_or_nil(&self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.reply_bytes(bytes),
            None => self.reply_nil(),
        }
    }

    /// Replies with a status.
    pub fn reply_status(&self, text: &CStr) {
        // SAFETY: the context is valid; the server copies the text.
        unsafe { (api().reply_with_simple_string)(self.0, text.as_ptr()) };
    }

    /// Replies nil in place of an integer or a string.
    pub fn reply_nil(&self) {
        // SAFETY: the context is valid.
        unsafe { (api().reply_with_null)(self.0) };
    }

    /// Replies nil in place of an array.
    pub fn reply_nil_array(&self) {
        // SAFETY: the context is valid.
        unsafe { (api().reply_with_null_array)(self.0) };
    }

    /// Opens an array of `length` replies that follow.
    pub fn reply_array(&self, length: i64) {
        // SAFETY: the context is valid.
        unsafe { (api().reply_with_array)(self.0, length) };
    }

    /// Opens a map of `length` pairs that follow; a flat array if the server has no maps (RESP2, 6.2).
    pub fn reply_map(&self, length: i64) {
        match api().reply_with_map {
            // SAFETY: the context is valid.
            Some(reply_with_map) => unsafe {
                reply_with_map(self.0, length);
            },
            None => self.reply_array(length.saturating_mul(2)),
        }
    }

    /// Replies with an error.
    pub fn reply_error(&self, error: Error) {
        // No text contains NUL; if one did, the error code would still be sent.
        let text = CString::new(error.to_string()).unwrap_or_else(|_| c"ERR".into());
        // SAFETY: the context is valid; the server copies the text.
        unsafe { (api().reply_with_error)(self.0, text.as_ptr()) };
    }

    /// Replies with the server's error for a wrong number of arguments.
    pub fn reply_wrong_arity(&self) {
        // SAFETY: the context is valid.
        unsafe { (api().wrong_arity)(self.0) };
    }

    /// A field of the server's INFO as text.
    #[must_use]
    pub fn server_info(&self, section: &CStr, field: &CStr) -> Option<String> {
        self.server_section(section)?.field(field)
    }

    /// A section of the server's INFO, built once for all fields read from it.
    #[must_use]
    pub fn server_section(&self, section: &CStr) -> Option<ServerInfo<'_>> {
        // SAFETY: the context is valid, the name is a C string.
        let info = unsafe { (api().get_server_info)(self.0, section.as_ptr()) };
        if info.is_null() {
            None
        } else {
            Some(ServerInfo { context: self, info })
        }
    }
}

/// A section of the server's INFO.
pub struct ServerInfo<'a> {
    context: &'a Context,
    info: *mut raw::RedisModuleServerInfoData,
}

impl ServerInfo<'_> {
    /// A field of the section as text.
    #[must_use]
    pub fn field(&self, name: &CStr) -> Option<String> {
        // SAFETY: `info` is not null and not freed, the name is a C string; the text that is found lives
        // as long as `info` and is copied here.
        unsafe {
            let text = (api().server_info_get_field)(self.info, name.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}

impl Drop for ServerInfo<'_> {
    fn drop(&mut self) {
        // SAFETY: given by the server with this context, freed once.
        unsafe { (api().free_server_info)(self.context.as_ptr(), self.info) };
    }
}

/// A server string that is an argument of an entry; valid until the entry returns.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Arg<'a> {
    string: *mut raw::RedisModuleString,
    call: PhantomData<&'a Context>,
}

impl<'a> Arg<'a> {
    /// A string that the server passes to an entry.
    ///
    /// # Safety
    /// The string is valid for `'a`.
    pub(in crate::server) const unsafe fn lent(string: *mut raw::RedisModuleString) -> Self {
        Self { string, call: PhantomData }
    }

    /// The server's own pointer.
    pub(in crate::server) const fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.string
    }

    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        let mut length = 0;
        // SAFETY: the string is an argument of the running entry, which outlives 'a, and does not change in the
        // meantime; the server gives its address and length.
        unsafe {
            let bytes = (api().string_ptr_len)(self.string, &raw mut length);
            std::slice::from_raw_parts(bytes.cast(), length)
        }
    }
}

/// A server string that the module owns.
pub struct OwnString(*mut raw::RedisModuleString);

impl OwnString {
    /// The name of a key. Selects its database in `context`.
    #[must_use]
    pub fn in_db(context: &Context, key: KeyName<'_>) -> Option<Self> {
        if context.select_db(key.db) {
            Self::of(key.name)
        } else {
            None
        }
    }

    /// A copy of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the server copies the bytes. Without a context only this value frees the
        // string.
        let string = unsafe { (api().create_string)(std::ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) };
        Self::not_null(string)
    }

    /// A string whose ownership the server passed to the module; `None` for a null pointer.
    ///
    /// # Safety
    /// The string is the module's to free.
    pub(in crate::server) unsafe fn given(string: *mut raw::RedisModuleString) -> Option<Self> {
        Self::not_null(string)
    }

    /// Never wraps a null pointer: dropping it would crash the server.
    fn not_null(string: *mut raw::RedisModuleString) -> Option<Self> {
        if string.is_null() {
            None
        } else {
            Some(Self(string))
        }
    }

    /// The string, valid as long as this value lives.
    #[must_use]
    pub const fn as_arg(&self) -> Arg<'_> {
        Arg { string: self.0, call: PhantomData }
    }
}

impl Drop for OwnString {
    fn drop(&mut self) {
        // SAFETY: this value created the string, and frees it once.
        unsafe { (api().free_string)(std::ptr::null_mut(), self.0) };
    }
}
