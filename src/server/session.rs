//! Locks that end with their connection.

use super::api::api;
use super::blocked;
use super::closed::WriteRefused;
use super::context::{Arg, Context, OwnString};
use super::grant::Taken;
use super::key::Key;
use super::stats::{self, Counter};
use super::{clock, events, settings, state};
use crate::broken::{self, Mutant};
use crate::engine::sessions::{Binding, LockKey};
use crate::lock::error::Error;
use crate::lock::rules::{self, Holds};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use redis_module::raw;
use std::ffi::CStr;

/// A grant whose connection has ended, which the key does not say yet.
pub struct Ended {
    at: UnixMicros,
}

/// Makes sure that the caller is a connection of its own, and that the server tells when it ends.
///
/// # Errors
/// [`Error::Session`] in scripts, functions and calls by other modules.
pub fn prepare(context: &Context) -> Result<(), Error> {
    if context.has_flags(raw::REDISMODULE_CTX_FLAGS_LUA) || Client::find(blocked::client(context)).is_none() {
        return Err(Error::Session);
    }
    events::watch_clients(context);
    Ok(())
}

/// Binds a grant to a connection.
///
/// # Errors
/// [`Error::Internal`]
pub fn bind(db: i32, name: &[u8], client: u64, taken: &Taken) -> Result<(), Error> {
    let binding = Binding { client, token: taken.token, until: taken.until };
    state::with(|state| state.sessions.bind(db, name, binding, clock::now()))
}

/// A grant of a key ends with no connection, or none of its grants does.
pub fn released(context: &Context, name: Arg<'_>, token: Option<Token>) {
    let _ = state::with(|state| {
        if state.sessions.is_empty() {
            return;
        }
        let (db, name) = (context.selected_db(), name.as_bytes());
        match token {
            Some(token) => state.sessions.unbind(db, name, token),
            None => state.sessions.unbind_others(db, name, None),
        }
    });
}

/// A grant was renewed after its connection had ended: that end counts no longer.
pub fn renewed(context: &Context, name: Arg<'_>, token: Token) {
    let _ = state::with(|state| {
        if !state.ended.is_empty() {
            state.ended.remove(&((context.selected_db(), name.as_bytes().into()), token));
        }
    });
}

/// A connection has ended: its locks are noted, to be ended soon. The server can be in the middle of
/// anything here.
pub(super) fn client_ended(client: u64) {
    if broken::is(Mutant::SessionStays) {
        return;
    }
    let at = clock::now();
    let _ = state::with(|state| {
        let locks = state.sessions.end(client);
        state.ended.extend(locks.into_iter().map(|lock| (lock, Ended { at })));
    });
}

/// Ends the grant of a connection that has ended: its timestamp becomes the margin after that.
pub(super) fn end(
    context: &Context,
    ((db, bytes), token): &(LockKey, Token),
    ended: &Ended,
) -> Result<(), WriteRefused> {
    let Some(name) = OwnString::in_db(context, *db, bytes) else { return Ok(()) };
    let key = Key::open_read_only(context, name.as_arg(), clock::now()).and_then(|key| key.with_grant(*token));
    let Ok(key) = key else { return Ok(()) };
    let value = rules::end_session(key.state(), *token, settings::terms(), ended.at).map(|record| record.encode());
    match value {
        Some(value) => match key.close().store(&value, Holds::AsBefore, &[]) {
            // The lock has moved with its slot: there its lease bounds it.
            Err(WriteRefused::NotOurs) => Ok(()),
            Ok(()) => {
                stats::add(Counter::SessionsEnded);
                Ok(())
            }
            refused => refused,
        },
        None => Ok(()),
    }
}

/// The connection that a grant ends with.
///
/// # Errors
/// [`Error::Internal`]
pub fn client_of(context: &Context, name: Arg<'_>, token: Option<Token>) -> Result<Option<u64>, Error> {
    let Some(token) = token else { return Ok(None) };
    state::with(|state| {
        let binding = state.sessions.binding(context.selected_db(), name.as_bytes(), token)?;
        Some(binding.client)
    })
}

/// A client of the server.
pub struct Client(raw::RedisModuleClientInfo);

impl Client {
    /// The client with that number, while it is connected.
    #[must_use]
    pub fn find(id: u64) -> Option<Self> {
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
        // Chars are signed on some machines and unsigned on others.
        let bytes = self.0.addr.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()));
        let host = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default();
        if host.contains(':') {
            format!("[{host}]:{}", self.0.port)
        } else {
            format!("{host}:{}", self.0.port)
        }
    }

    /// The name that the client with that number gave itself, where the server tells (7.0).
    #[must_use]
    pub fn name(context: &Context, id: u64) -> Option<Box<[u8]>> {
        let get = api().get_client_name_by_id?;
        // SAFETY: the context is valid; the string is ours and freed when the value is dropped.
        let name = unsafe { OwnString::given(get(context.as_ptr(), id)) }?;
        let bytes = name.as_arg().as_bytes();
        (!bytes.is_empty()).then(|| bytes.into())
    }
}
