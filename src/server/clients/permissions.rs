//! A caller's permissions where the server does not check them: for the keys that LOCK.SCAN finds, and for the channels
//! on which attempts are notified.
//!
//! The user is looked up once per command.

use crate::server::api::context::{Arg, Context, OwnString};
use crate::server::api::{api, Api};
use crate::server::clients::client::{self, Client};
use crate::server::server_call::{clear_errno, errno};
use redis_module::raw;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The caller of a command.
pub enum Reader<'a> {
    /// A caller that may do anything: the server does not report permissions (before 7.0), or the command has no
    /// user, such as a command from the master or another module.
    Everything,
    /// A caller with its user's permissions.
    User(User<'a>),
    /// A caller that may do nothing: the server does not know its user, so its permissions are unknown.
    Nothing,
}

/// A user of the server; valid until the entry returns.
pub struct User<'a> {
    handle: NonNull<raw::RedisModuleUser>,
    check: Check,
    free: unsafe extern "C" fn(*mut raw::RedisModuleUser),
    call: PhantomData<&'a Context>,
}

type Check = unsafe extern "C" fn(*mut raw::RedisModuleUser, *mut raw::RedisModuleString, libc::c_int) -> libc::c_int;

impl<'a> Reader<'a> {
    /// Whether the server reports what a user may read.
    #[must_use]
    pub fn can_be_known() -> bool {
        matches!(
            api(),
            Api {
                acl_check_key_permissions: Some(_),
                free_module_user: Some(_),
                get_current_user_name: Some(_),
                get_module_user_from_user_name: Some(_),
                ..
            }
        )
    }

    /// The caller of a command.
    #[must_use]
    pub fn of(context: &'a Context) -> Self {
        let &Api {
            acl_check_key_permissions: Some(check),
            free_module_user: Some(free),
            get_current_user_name: Some(get_name),
            get_module_user_from_user_name: Some(get_user),
            ..
        } = api()
        else {
            return Self::Everything;
        };
        if !has_user(context) {
            return Self::Everything;
        }
        // SAFETY: the context belongs to a command whose client has a user. The string and the user are ours, and freed
        // once.
        let user = unsafe {
            OwnString::given(get_name(context.as_ptr())).and_then(|name| NonNull::new(get_user(name.as_arg().as_ptr())))
        };
        user.map_or(Self::Nothing, |handle| Self::User(User { handle, check, free, call: PhantomData }))
    }

    /// Whether it may use a channel.
    #[must_use]
    pub fn may_use(&self, channel: Arg<'_>) -> bool {
        match (self, api().acl_check_channel_permissions) {
            (Self::Everything, _) => true,
            (Self::User(user), Some(check)) => {
                let access = raw::REDISMODULE_CMD_CHANNEL_SUBSCRIBE.cast_signed();
                // SAFETY: as for keys, below.
                unsafe { check(user.handle.as_ptr(), channel.as_ptr(), access) == 0 }
            }
            (Self::Nothing, _) | (Self::User(_), None) => false,
        }
    }

    /// Records in ACL LOG that a channel was refused: the server records only its own refusals.
    pub fn log_refused_channel(&self, context: &Context, channel: Arg<'_>) {
        if let (Self::User(user), Some(add)) = (self, api().acl_add_log_entry) {
            let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CHANNEL;
            // SAFETY: the context belongs to the running command; the user is freed when this value is dropped, and the
            // server copies the channel.
            unsafe { add(context.as_ptr(), user.handle.as_ptr(), channel.as_ptr(), reason) };
        }
    }

    /// Whether it may read a key.
    #[must_use]
    pub fn may_read(&self, key: Arg<'_>) -> bool {
        match self {
            Self::Everything => true,
            Self::Nothing => false,
            Self::User(user) => {
                let access = raw::REDISMODULE_CMD_KEY_ACCESS.cast_signed();
                // SAFETY: the user is not freed before this value is dropped, and no command that changes users runs
                // before the entry returns.
                unsafe { (user.check)(user.handle.as_ptr(), key.as_ptr(), access) == 0 }
            }
        }
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        // SAFETY: given by the server to this value, freed once. The user itself stays.
        unsafe { (self.free)(self.handle.as_ptr()) };
    }
}

/// Whether a command's client has a user: if not, asking for the user's name crashes the server.
fn has_user(context: &Context) -> bool {
    if api().set_context_user.is_none() {
        // Before 7.0.6.
        let obeyed = raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_REPLICATED;
        let is_script = context.has_flags(raw::REDISMODULE_CTX_FLAGS_LUA);
        let is_connected = || Client::find(context, client::caller(context)).is_some();
        return !context.has_flags(obeyed) && (is_script || is_connected());
    }
    clear_errno();
    // SAFETY: C runs a command as the client's user. The server looks up that user first, and there is no command of
    // this name, so nothing runs and nothing is counted.
    let reply = unsafe { (api().call)(context.as_ptr(), c"lock.nothing".as_ptr(), c"C".as_ptr()) };
    if !reply.is_null() {
        // SAFETY: freed once.
        unsafe { (api().free_call_reply)(reply) };
    }
    errno() != libc::ENOTSUP
}
