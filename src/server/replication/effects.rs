//! Replicates the changes that a command made in place. Without an AOF or a replica it builds no effects, and only
//! counts the change.

use crate::driver::WriteRefused;
use crate::lock::record::Encoded;
use crate::server::api::api;
use crate::server::api::context::{Arg, Context, OwnString};
use crate::server::state::{module, Expiry};
use redis_module::raw;

/// Replicates `SET key value [PXAT ms]`.
pub fn set(context: &Context, name: Arg<'_>, value: &Encoded, expire_at_ms: Option<u64>) -> Result<(), WriteRefused> {
    if module().sinks.only_count(context) {
        return Ok(());
    }
    let (context, set, name) = (context.as_ptr(), c"SET".as_ptr(), name.as_ptr());
    let (bytes, length) = (value.as_bytes().as_ptr(), value.as_bytes().len());
    let Some(ms) = expire_at_ms else {
        // SAFETY: the format matches what follows it: s a server string, b a buffer with its length (size_t). The
        // server copies or retains all of them.
        unsafe { (api().replicate)(context, set, c"sb".as_ptr(), name, bytes, length) };
        return Ok(());
    };
    // SAFETY: as above.
    with_expiry(ms, |pxat, ms| unsafe {
        (api().replicate)(context, set, c"sbss".as_ptr(), name, bytes, length, pxat, ms)
    })
}

/// Replicates the deletion of keys as one command.
pub fn del(context: &Context, names: &[Arg<'_>]) {
    if module().sinks.only_count(context) {
        return;
    }
    let (context, del) = (context.as_ptr(), c"DEL".as_ptr());
    // SAFETY: s takes a server string, v an array of them with its length (size_t); a name is just such a string.
    unsafe {
        match names {
            [name] => (api().replicate)(context, del, c"s".as_ptr(), name.as_ptr()),
            names => (api().replicate)(context, del, c"v".as_ptr(), names.as_ptr(), names.len()),
        };
    }
}

/// Replicates `ZADD key score member`.
pub fn zadd(context: &Context, name: Arg<'_>, score: &[u8], member: Arg<'_>) {
    if module().sinks.only_count(context) {
        return;
    }
    let (name, member) = (name.as_ptr(), member.as_ptr());
    // SAFETY: the format takes a server string, a buffer with its length (size_t) and another string, which the server
    // copies or retains.
    unsafe {
        let (zadd, format) = (c"ZADD".as_ptr(), c"sbs".as_ptr());
        (api().replicate)(context.as_ptr(), zadd, format, name, score.as_ptr(), score.len(), member);
    }
}

/// Replicates `ZREM key member`.
pub fn zrem(context: &Context, name: Arg<'_>, member: Arg<'_>) {
    if module().sinks.only_count(context) {
        return;
    }
    // SAFETY: the format takes two server strings, which the server copies or retains.
    unsafe {
        let (zrem, format) = (c"ZREM".as_ptr(), c"ss".as_ptr());
        (api().replicate)(context.as_ptr(), zrem, format, name.as_ptr(), member.as_ptr());
    }
}

/// Replicates `PEXPIREAT key ms`.
pub fn pexpireat(context: &Context, name: Arg<'_>, ms: u64) -> Result<(), WriteRefused> {
    if module().sinks.only_count(context) {
        return Ok(());
    }
    with_expiry(ms, |_, ms| {
        // SAFETY: the format takes two server strings, which the server copies or retains.
        unsafe {
            let (context, name) = (context.as_ptr(), name.as_ptr());
            (api().replicate)(context, c"PEXPIREAT".as_ptr(), c"ss".as_ptr(), name, ms)
        }
    })
}

/// Replicates `PERSIST key`.
pub fn persist(context: &Context, name: Arg<'_>) {
    if module().sinks.only_count(context) {
        return;
    }
    // SAFETY: the format takes the one server string that follows.
    unsafe { (api().replicate)(context.as_ptr(), c"PERSIST".as_ptr(), c"s".as_ptr(), name.as_ptr()) };
}

/// Lends `PXAT` and an expiry as server strings, reused from the last grant if possible.
fn with_expiry(
    ms: u64,
    replicate: impl FnOnce(*mut raw::RedisModuleString, *mut raw::RedisModuleString) -> i32,
) -> Result<(), WriteRefused> {
    let own = |bytes| OwnString::of(bytes).ok_or(WriteRefused::ForNow);
    let mut last = module().expiry.borrow_mut();
    if last.as_ref().is_none_or(|last| last.ms != ms) {
        let pxat = last.take().map_or_else(|| own(b"PXAT"), |last| Ok(last.pxat))?;
        let text = own(i64::try_from(ms).unwrap_or(i64::MAX).to_string().as_bytes())?;
        *last = Some(Expiry { ms, pxat, text });
    }
    if let Some(last) = last.as_ref() {
        replicate(last.pxat.as_arg().as_ptr(), last.text.as_arg().as_ptr());
    }
    Ok(())
}
