//! Server objects that the module keeps: blocked clients and timers.

use redis_module::raw;

/// A blocked client; released exactly once, even if it has disconnected.
#[derive(Debug)]
pub struct Handle(pub(in crate::server) *mut raw::RedisModuleBlockedClient);

#[derive(Clone, Copy, Debug)]
pub struct TimerId(pub(in crate::server) raw::RedisModuleTimerID);

/// The module's callbacks. They are set at load, so that code that registers a callback need not know its target.
#[derive(Clone, Copy)]
pub struct Callbacks {
    /// Replies to a blocked client.
    pub reply: raw::RedisModuleCmdFunc,
    /// Frees its answer.
    pub free: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut libc::c_void),
    /// Called when the client has disconnected.
    pub disconnect: raw::RedisModuleDisconnectFunc,
    /// Called when CLIENT UNBLOCK ... TIMEOUT ends its wait.
    pub unblock: raw::RedisModuleCmdFunc,
    /// Called when the timer fires.
    pub timer: raw::RedisModuleTimerProc,
    /// Called when something happened to a key.
    pub key: raw::RedisModuleNotificationFunc,
    /// Called when a connection began or ended.
    pub client: raw::RedisModuleEventCallback,
}
