//! A key changed by the server's own commands, which know whether the slot is ours: outside of commands, and
//! where a string makes room for a sorted set.

use super::api::api;
use super::context::{log_warning, Arg, Context};
use super::key::Key;
use super::main_thread::MainThread;
use super::set::{NewExpiry, Retentions};
use super::several::{self, Set};
use super::{session, state, tell, waiting};
use crate::lock::holders::Holder;
use crate::lock::record::Encoded;
use crate::lock::rules::Holds;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use redis_module::raw;
use std::ffi::CStr;

/// Why a write through the server's own commands was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// The slot of the key is not ours, or the cluster is down.
    NotOurs,
    /// Anything else: it may be done later.
    ForNow,
}

/// A key that was looked at and closed, to be changed by the server's own commands.
pub struct Closed<'a> {
    context: &'a Context,
    name: Arg<'a>,
    is_string: bool,
    has_expiry: bool,
    several: Option<Box<Set>>,
    now: UnixMicros,
}

impl<'a> Key<'a> {
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
            now: self.now(),
        }
    }
}

impl Closed<'_> {
    /// As [`Key::store`], also where no command runs.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn store(self, value: &Encoded, holds: Holds, events: &[&CStr]) -> Result<(), WriteRefused> {
        let (context, name) = (self.context, self.name);
        let is_among = holds.is_among(self.several.is_some());
        if is_among {
            tell::writing(|| self.change(Some(value), holds.replaces()))?;
        } else {
            tell::writing(|| self.set(value))?;
        }
        tell::own_events(context, name, events);
        waiting::written(context, name, value, is_among);
        Ok(())
    }

    /// As [`Key::release`], also where no command runs.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn release(self) -> Result<(), WriteRefused> {
        let (context, name) = (self.context, self.name);
        let token = self.several.as_ref().and_then(|set| set.ended.first()).map(|ended| ended.token);
        if self.several.is_some() {
            tell::writing(|| self.change(None, None))?;
        } else {
            self.delete()?;
        }
        tell::own_events(context, name, &[tell::RELEASE]);
        session::released(context, name, token);
        Ok(())
    }

    fn set(&self, value: &Encoded) -> Result<(), WriteRefused> {
        let bytes = value.as_bytes();
        let expire_at = state::retention(self.context).expire_at_ms(value.timestamp());
        clear_errno();
        // SAFETY: the formats match what follows them: s, b and l as in `Written::tell`, c a C string;
        // ! replicates.
        done(c"SET", unsafe {
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
        done(command, unsafe {
            (api().call)(self.context.as_ptr(), command.as_ptr(), c"!s".as_ptr(), self.name.as_ptr())
        })
    }

    fn delete(&self) -> Result<(), WriteRefused> {
        self.call(c"DEL")
    }

    /// Changes a sorted set of holders.
    fn change(mut self, value: Option<&Encoded>, replaces: Option<Token>) -> Result<(), WriteRefused> {
        let retention = Retentions::now(self.context);
        let set = self.several.take().unwrap_or_default();
        let change = set.change(value, replaces, &retention, self.has_expiry, self.now);
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
        done(c"ZADD", unsafe {
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
        done(c"ZREM", unsafe {
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
        done(c"PEXPIREAT", unsafe {
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
    done(c"EXISTS", reply) != Err(WriteRefused::NotOurs)
}

pub(super) fn clear_errno() {
    // SAFETY: the address of this thread's errno is valid.
    unsafe { *libc::__errno_location() = 0 };
}

/// Whether the server has a command of that name. One that was called with too few arguments is not carried out, and one
/// that is not there is said to be so.
pub(super) fn is_known(context: &Context, command: &CStr) -> bool {
    clear_errno();
    // SAFETY: the context is valid, and the empty format takes nothing.
    let reply = unsafe { (api().call)(context.as_ptr(), command.as_ptr(), c"".as_ptr()) };
    let is_known = !reply.is_null() || errno() != libc::ENOENT;
    if !reply.is_null() {
        // SAFETY: the reply is not null and freed once.
        unsafe { (api().free_call_reply)(reply) };
    }
    is_known
}

pub(super) fn errno() -> i32 {
    // SAFETY: the address of this thread's errno is valid.
    unsafe { *libc::__errno_location() }
}

/// Whether a command that the module called was carried out; gives its reply back.
fn done(command: &CStr, reply: *mut raw::RedisModuleCallReply) -> Result<(), WriteRefused> {
    if reply.is_null() {
        return match errno() {
            libc::EPERM | libc::ENETDOWN => Err(WriteRefused::NotOurs),
            errno => {
                log_refused(command, &std::io::Error::from_raw_os_error(errno).to_string());
                Err(WriteRefused::ForNow)
            }
        };
    }
    // SAFETY: the reply is not null, and freed once, after its text was copied.
    unsafe {
        let kind = (api().call_reply_type)(reply);
        let is_error = isize::try_from(kind).is_ok_and(|kind| kind == raw::REDISMODULE_REPLY_ERROR);
        if is_error {
            let mut length = 0;
            let text = (api().call_reply_string_ptr)(reply, &raw mut length);
            let text = if text.is_null() { &[] } else { std::slice::from_raw_parts(text.cast(), length) };
            log_refused(command, &String::from_utf8_lossy(text));
        }
        (api().free_call_reply)(reply);
        if is_error {
            Err(WriteRefused::ForNow)
        } else {
            Ok(())
        }
    }
}

/// So many different refusals are logged.
const MOST_LOGGED: usize = 16;
static LOGGED: MainThread<Vec<String>> = MainThread::new(Vec::new());

/// Logs why the server does not do what the module wants, each reason once: it is tried again and again.
fn log_refused(command: &CStr, reason: &str) {
    let text = format!("the server refuses {} to the module: {}", command.to_string_lossy(), reason.trim());
    let is_new = LOGGED.with(|logged| {
        let is_new = logged.len() < MOST_LOGGED && !logged.contains(&text);
        if is_new {
            logged.push(text.clone());
        }
        is_new
    });
    if is_new == Some(true) {
        log_warning(&format!("{text}; locks that need it pass on later, the others do now"));
    }
}

/// Gives back what was remembered: the module is unloaded.
pub(super) fn unload() {
    LOGGED.with(|logged| *logged = Vec::new());
}
