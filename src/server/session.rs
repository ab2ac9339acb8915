//! Locks that end with their connection, and circles of connections that wait for each other.

use super::api::api;
use super::blocked;
use super::context::{Arg, Context, OwnString};
use super::grant::Taken;
use super::key::{self, Key, WriteRefused};
use super::stats::{self, Counter};
use super::{clock, events, settings, state, waiting};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::rules::{self, State};
use crate::lock::sessions::{Binding, LockKey};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use redis_module::raw;
use std::ffi::CStr;

/// A grant whose connection has ended, which the key does not say yet.
pub struct Ended {
    token: Token,
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

/// The lock of a key ends with no connection.
pub fn released(context: &Context, name: Arg<'_>) {
    let _ = state::with(|state| {
        if !state.sessions.is_empty() {
            state.sessions.unbind(context.selected_db(), name.as_bytes());
        }
    });
}

/// A grant was renewed after its connection had ended: that end counts no longer.
pub fn renewed(context: &Context, name: Arg<'_>) {
    let _ = state::with(|state| {
        if !state.ended.is_empty() {
            state.ended.remove(&(context.selected_db(), name.as_bytes().into()));
        }
    });
}

/// A connection has ended: its locks are noted, to be ended soon. The server can be in the middle of
/// anything here.
pub(super) fn client_ended(context: &Context, client: u64) {
    if broken::is(Mutant::SessionStays) {
        return;
    }
    let at = clock::now();
    let any = state::with(|state| {
        let locks = state.sessions.end(client);
        let any = !locks.is_empty();
        state.ended.extend(locks.into_iter().map(|(lock, token)| (lock, Ended { token, at })));
        any
    });
    if any == Ok(true) {
        waiting::schedule(context);
    }
}

/// Ends the lock of a connection that has ended: its timestamp becomes the margin after that.
pub(super) fn end(context: &Context, (db, bytes): &LockKey, ended: &Ended) -> Result<(), WriteRefused> {
    let Some(name) = OwnString::in_db(context, *db, bytes) else { return Ok(()) };
    let Ok(key) = Key::open_read_only(context, name.as_arg()) else { return Ok(()) };
    let lock = State::of(key.value(), clock::now());
    let value = rules::end_session(lock, ended.token, settings::terms(), ended.at).map(|record| record.encode());
    drop(key);
    match value {
        Some(value) => match key::store_outside_command(context, name.as_arg(), &value, &[]) {
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

/// The connection that the lock of a key ends with, if its grant has that token.
///
/// # Errors
/// [`Error::Internal`]
pub fn client_of(context: &Context, name: Arg<'_>, token: Option<Token>) -> Result<Option<u64>, Error> {
    state::with(|state| {
        let binding = state.sessions.binding(context.selected_db(), name.as_bytes())?;
        (Some(binding.token) == token).then_some(binding.client)
    })
}

/// Whether the client of a call, if it waited for a key, would wait for itself: the session that
/// holds the key waits for a key whose session waits ..., and the last is this client.
///
/// A client waits for one key, and one session holds a key, so this is a walk along a chain, no
/// search. Those who wait ahead add nothing to it: all that each of them waits for is the same key.
///
/// # Errors
/// [`Error::Internal`]
pub fn closes_circle(context: &Context, db: i32, name: Arg<'_>) -> Result<bool, Error> {
    if state::with(|state| state.sessions.is_empty())? {
        return Ok(false);
    }
    let own = blocked::client(context);
    let mut at: LockKey = (db, name.as_bytes().into());
    let most = state::with(|state| state.queues.waiters())?;
    let mut closes = false;
    for _ in 0..=most {
        let binding = state::with(|state| state.sessions.binding(at.0, &at.1).cloned())?;
        let Some(binding) = binding else { break };
        // What the binding says counts only while the key says so too.
        if !is_held_as(context, &at, binding.token) {
            break;
        }
        if binding.client == own {
            closes = true;
            break;
        }
        match state::with(|state| state.queues.waits_for(binding.client))? {
            Some(next) => at = next,
            None => break,
        }
    }
    context.select_db(db);
    Ok(closes)
}

fn is_held_as(context: &Context, (db, name): &LockKey, token: Token) -> bool {
    let Some(name) = OwnString::in_db(context, *db, name) else { return false };
    let Ok(key) = Key::open_read_only(context, name.as_arg()) else { return false };
    let lock = State::of(key.value(), clock::now());
    rules::release(lock, token) == rules::Release::InTime
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
        let bytes: Vec<u8> = self.0.addr.iter().map(|byte| byte.cast_unsigned()).collect();
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
