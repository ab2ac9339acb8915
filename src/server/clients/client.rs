//! A client of the server.

use crate::server::api::api;
use crate::server::api::context::{Context, OwnString};
use redis_module::raw;
use std::ffi::CStr;

/// The server's ID for an entry's client.
#[must_use]
pub fn caller(context: &Context) -> u64 {
    // SAFETY: the context is valid.
    unsafe { (api().get_client_id)(context.as_ptr()) }
}

/// Whether the caller may have a connection: its command is not one of a script or, outside a transaction, of another
/// module.
fn has_connection(context: &Context) -> bool {
    !context.has_flags(raw::REDISMODULE_CTX_FLAGS_LUA)
        && (!context.has_flags(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
            || context.has_flags(raw::REDISMODULE_CTX_FLAGS_MULTI))
}

/// A client of the server.
pub struct Client(raw::RedisModuleClientInfo);

impl Client {
    /// The client with this ID, while it is connected.
    ///
    /// Valkey 9.1 also finds the client that carries out a command of a script or of another module, and crashes,
    /// because that client has no connection. It can only be the caller.
    #[must_use]
    pub fn find(context: &Context, id: u64) -> Option<Self> {
        if id == caller(context) && !has_connection(context) {
            return None;
        }
        // SAFETY: all of the structure is integers, for which zero is a value.
        let mut info: raw::RedisModuleClientInfo = unsafe { std::mem::zeroed() };
        info.version = u64::from(raw::REDISMODULE_CLIENTINFO_VERSION);
        // SAFETY: `info` is of the version that it names, and valid for a write.
        let found = unsafe { (api().get_client_info_by_id)((&raw mut info).cast(), id) };
        (found == 0).then_some(Self(info))
    }

    /// Address and port.
    #[must_use]
    pub fn address(&self) -> String {
        // C's char is signed on some machines and unsigned on others.
        let bytes = self.0.addr.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()));
        let host = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default();
        if host.contains(':') {
            format!("[{host}]:{}", self.0.port)
        } else {
            format!("{host}:{}", self.0.port)
        }
    }

    /// The name that the client with this ID set, if the server reports it (7.0).
    #[must_use]
    pub fn name(context: &Context, id: u64) -> Option<Box<[u8]>> {
        let get = api().get_client_name_by_id?;
        // SAFETY: the context is valid; the string is ours and freed when the value is dropped.
        let name = unsafe { OwnString::given(get(context.as_ptr(), id)) }?;
        let bytes = name.as_arg().as_bytes();
        (!bytes.is_empty()).then(|| bytes.into())
    }
}
