//! What the server gives the module to keep: a client that is blocked, a timer.

use redis_module::raw;

/// A client that the server keeps blocked; given back exactly once, also when it is gone.
#[derive(Debug)]
pub struct Handle(pub(super) *mut raw::RedisModuleBlockedClient);

/// A timer of the server.
#[derive(Clone, Copy, Debug)]
pub struct TimerId(pub(super) raw::RedisModuleTimerID);

/// What the server calls: set when the module is loaded, so that whoever asks for a call need not know who is called.
#[derive(Clone, Copy)]
pub struct Callbacks {
    /// A blocked client is to be answered.
    pub reply: raw::RedisModuleCmdFunc,
    /// Its answer is given back.
    pub free: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut libc::c_void),
    /// It is gone.
    pub disconnect: raw::RedisModuleDisconnectFunc,
    /// CLIENT UNBLOCK ... TIMEOUT ends its wait.
    pub unblock: raw::RedisModuleCmdFunc,
    /// The timer fires.
    pub timer: raw::RedisModuleTimerProc,
    /// Something happened to a key.
    pub key: raw::RedisModuleNotificationFunc,
    /// A connection began or ended.
    pub client: raw::RedisModuleEventCallback,
}
