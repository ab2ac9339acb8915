//! An open sorted set: its size, a member's score, and all members in order.

use crate::lock::record::timestamp_of;
use crate::lock::time::UnixMicros;
use crate::server::api::api;
use crate::server::api::context::{Arg, Context, OwnString};
use redis_module::raw;

/// The return value of the server's functions on success.
const OK: i32 = 0;

/// An open key that is a sorted set.
pub struct Zset<'k> {
    context: &'k Context,
    name: Arg<'k>,
    handle: *mut raw::RedisModuleKey,
}

/// An end of a set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The smallest score.
    First,
    /// The largest.
    Last,
}

impl<'k> Zset<'k> {
    /// # Safety
    /// The handle belongs to the key with this name, which is an open sorted set as long as the result is used.
    pub(in crate::server) const unsafe fn of(
        context: &'k Context,
        name: Arg<'k>,
        handle: *mut raw::RedisModuleKey,
    ) -> Self {
        Self { context, name, handle }
    }

    /// The context in which it was opened.
    pub(in crate::server) const fn context(&self) -> &'k Context {
        self.context
    }

    /// The name of its key.
    pub(in crate::server) const fn name(&self) -> Arg<'k> {
        self.name
    }

    /// The number of members.
    pub(in crate::server) fn len(&self) -> usize {
        // SAFETY: the handle is open.
        unsafe { (api().value_length)(self.handle) }
    }

    /// The timestamp in the score of a member; `None` if there is no such member. O(1).
    pub(in crate::server) fn timestamp(&self, member: &[u8]) -> Option<UnixMicros> {
        let member = OwnString::of(member)?;
        let mut score = 0.0;
        // SAFETY: the handle is an open sorted set, the string is valid, the score may be written.
        let found = unsafe { (api().zset_score)(self.handle, member.as_arg().as_ptr(), &raw mut score) };
        (found == OK).then(|| timestamp_of(score)).flatten()
    }

    /// The number of members that have not expired at `now`, by the server's ZCOUNT.
    pub(in crate::server) fn live(&self, now: UnixMicros) -> Option<usize> {
        let after = format!("({}.{:06}", now.0 / 1_000_000, now.0 % 1_000_000);
        // SAFETY: the format takes a server string, a buffer with its length (size_t) and a C string. The reply is
        // freed once, after being read.
        unsafe {
            let (name, after, length) = (self.name.as_ptr(), after.as_ptr(), after.len());
            let (zcount, largest) = (c"ZCOUNT".as_ptr(), c"+inf".as_ptr());
            let reply = (api().call)(self.context.as_ptr(), zcount, c"sbc".as_ptr(), name, after, length, largest);
            if reply.is_null() {
                return None;
            }
            let count = (api().call_reply_integer)(reply);
            (api().free_call_reply)(reply);
            usize::try_from(count).ok()
        }
    }

    /// Passes the members to `see` from one end on, until it returns false.
    pub(in crate::server) fn walk(&self, from: End, see: impl FnMut(f64, &[u8]) -> bool) {
        self.walk_between(from, [f64::NEG_INFINITY, f64::INFINITY], see);
    }

    /// Passes the members with this timestamp to `see`, until it returns false.
    pub(in crate::server) fn walk_at(&self, timestamp: UnixMicros, mut see: impl FnMut(f64, &[u8]) -> bool) {
        // Its neighbours too: a score is the double nearest to the seconds.
        let range = [timestamp.0.saturating_sub(1), timestamp.0.saturating_add(1)];
        let range = range.map(|micros| UnixMicros(micros).as_seconds());
        self.walk_between(End::First, range, |score, member| {
            timestamp_of(score) != Some(timestamp) || see(score, member)
        });
    }

    fn walk_between(&self, from: End, [low, high]: [f64; 2], mut see: impl FnMut(f64, &[u8]) -> bool) {
        // SAFETY: the handle is an open sorted set; nothing changes it until the walk ends. Each string from the server
        // is freed by its owner here.
        unsafe {
            let begun = match from {
                End::First => (api().zset_first_in_score_range)(self.handle, low, high, 0, 0),
                End::Last => (api().zset_last_in_score_range)(self.handle, low, high, 0, 0),
            };
            if begun != OK {
                return;
            }
            loop {
                let mut score = 0.0;
                let member = (api().zset_range_current_element)(self.handle, &raw mut score);
                let Some(member) = OwnString::given(member) else { break };
                if !see(score, member.as_arg().as_bytes()) || (api().zset_range_next)(self.handle) == 0 {
                    break;
                }
            }
            (api().zset_range_stop)(self.handle);
        }
    }
}
