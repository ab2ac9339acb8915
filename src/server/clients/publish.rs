//! Messages on channels, for attempts that wait without a connection.

use crate::driver::ChannelName;
use crate::engine::queue::Channel;
use crate::lock::error::Error;
use crate::server::api::api;
use crate::server::api::context::{Arg, Context, OwnString};
use crate::server::clients::permissions::Reader;
use crate::server::slot;
use redis_module::raw;

/// Checks that an attempt can be notified on a channel.
///
/// # Errors
/// [`Error::ChannelVersion`], [`Error::NoPermission`], [`Error::ChannelSlot`].
pub fn check(context: &Context, key: &[u8], channel: ChannelName<'_>) -> Result<(), Error> {
    let ChannelName { name: channel, is_sharded } = channel;
    if api().publish_message.is_none() || api().publish_message_shard.is_none() {
        return Err(Error::ChannelVersion);
    }
    if is_sharded && is_cluster(context) && slot::of(key) != slot::of(channel) {
        return Err(Error::ChannelSlot);
    }
    let channel = OwnString::of(channel).ok_or(Error::NoPermission)?;
    let reader = Reader::of(context);
    if reader.may_use(channel.as_arg()) {
        return Ok(());
    }
    reader.log_refused_channel(context, channel.as_arg());
    Err(Error::NoPermission)
}

/// Publishes a message to this server's subscribers, or to those of all nodes on an ordinary channel in a cluster.
/// Returns whether a subscriber may have received it.
#[must_use]
pub fn publish(context: &Context, channel: &Channel, message: &[u8]) -> bool {
    let function = if channel.is_sharded { api().publish_message_shard } else { api().publish_message };
    let (Some(publish), Some(name), Some(message)) = (function, OwnString::of(&channel.name), OwnString::of(message))
    else {
        return false;
    };
    let (name, message): (Arg<'_>, Arg<'_>) = (name.as_arg(), message.as_arg());
    // SAFETY: the context is valid; the server copies the strings.
    let receivers = unsafe { publish(context.as_ptr(), name.as_ptr(), message.as_ptr()) };
    // Subscribers on other nodes are not counted.
    receivers > 0 || (!channel.is_sharded && is_cluster(context))
}

fn is_cluster(context: &Context) -> bool {
    context.has_flags(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
}
