//! The server's reply to one of its own commands that the module called: whether it was carried out, and if not, why.

use crate::driver::WriteRefused;
use crate::server::api::api;
use crate::server::api::context::Context;
use crate::server::log;
use crate::server::state::module;
#[cfg(not(target_vendor = "apple"))]
use libc::__errno_location as errno_location;
#[cfg(target_vendor = "apple")]
use libc::__error as errno_location;
use redis_module::raw;
use std::ffi::CStr;

/// Clears errno before a call whose [`errno`] matters.
pub fn clear_errno() {
    // SAFETY: the address of this thread's errno is valid.
    unsafe { *errno_location() = 0 };
}

/// Why the last call failed.
pub fn errno() -> i32 {
    // SAFETY: the address of this thread's errno is valid.
    unsafe { *errno_location() }
}

/// Whether the server has a command of this name. The call has too few arguments to be carried out, and an unknown
/// command is reported as such.
#[must_use]
pub fn has_command(context: &Context, command: &CStr) -> bool {
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

/// Whether a command that the module called was carried out. Frees its reply.
pub(in crate::server) fn done(command: &CStr, reply: *mut raw::RedisModuleCallReply) -> Result<(), WriteRefused> {
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

/// How many different refusals are logged.
const MOST_LOGGED: usize = 16;

/// Logs why the server refuses one of the module's server calls, each reason once: such calls are retried again and
/// again.
fn log_refused(command: &CStr, reason: &str) {
    let text = format!("the server refuses to run {} for the module: {}", command.to_string_lossy(), reason.trim());
    let mut logged = module().refusals.borrow_mut();
    if logged.len() >= MOST_LOGGED || logged.contains(&text) {
        return;
    }
    log::warning(&format!("{text}; locks that need it are passed on later, all others at once"));
    logged.push(text);
}
