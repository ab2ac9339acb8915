//! The server's log.

use crate::driver::Level;
use crate::server::api::api;
use crate::server::api::context::Context;
use redis_module::raw;
use std::ffi::CString;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A context that outlives entries, so that every line names the module; null while the module is not loaded.
static OWN: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(std::ptr::null_mut());

/// Writes a line to the server's log.
pub fn log(level: Level, text: &str) {
    let level = match level {
        Level::Warning => c"warning",
        Level::Notice => c"notice",
    };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let context = OWN.load(Ordering::Relaxed);
    // SAFETY: the context is the module's own, or null, which is allowed; the format takes the one string that follows.
    unsafe { (api().log)(context, level.as_ptr(), c"%s".as_ptr(), text.as_ptr()) };
}

/// Logs something that an operator should check.
pub fn warning(text: &str) {
    log(Level::Warning, text);
}

/// Logs something for information.
pub fn notice(text: &str) {
    log(Level::Notice, text);
}

/// Makes log lines name the module from now on.
pub(super) fn open(context: &Context) {
    // SAFETY: the context comes from module load, in which the server knows the module's name.
    let own = unsafe { (api().get_detached_thread_safe_context)(context.as_ptr()) };
    OWN.store(own, Ordering::Relaxed);
}

/// Frees the context from [`open`], because the module is unloaded or failed to load.
pub(super) fn close() {
    let own = OWN.swap(std::ptr::null_mut(), Ordering::Relaxed);
    if !own.is_null() {
        // SAFETY: `open` created it, and it is freed once.
        unsafe { (api().free_thread_safe_context)(own) };
    }
}

/// The one log line for a server that is too old: names the missing function.
pub(super) fn without_api(ctx: *mut raw::RedisModuleCtx, missing: &str) {
    let text =
        CString::new(format!("the module is not loaded: it needs Redis 6.2 or later, this server has no {missing}"))
            .unwrap_or_default();
    // SAFETY: the function is looked up, not assumed; the format takes the one string that follows.
    unsafe {
        if let Some(log) = raw::RedisModule_Log {
            log(ctx, c"warning".as_ptr(), c"%s".as_ptr(), text.as_ptr());
        }
    }
}
