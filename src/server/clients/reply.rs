//! Replies to requests for a lock, including replies to clients that waited, when no command runs.

use crate::driver::Outcome;
use crate::engine::grant::{Before, Granted};
use crate::engine::queue::ReplyShape;
use crate::engine::result::LockResult;
use crate::lock::record::Owner;
use crate::lock::token::Token;
use crate::server::api::context::Context;

/// Replies to a command that asked for a lock, unless it waits.
pub fn outcome(context: &Context, outcome: Outcome, shape: ReplyShape) {
    match outcome {
        Outcome::Granted(is) => granted(context, &is, shape),
        Outcome::Result(is) => result(context, &is),
        Outcome::NotGranted => not_granted(context, shape),
        Outcome::Waits => {}
        Outcome::Queued => context.reply_status(c"WAITING"),
    }
}

/// Replies with the token, or with the details: token, overdue-ms, previous token, previous owner.
pub fn granted(context: &Context, granted: &Granted, shape: ReplyShape) {
    if shape == ReplyShape::Token {
        context.reply_integer(granted.token.as_i64());
        return;
    }
    let before = granted.before(0);
    context.reply_array(4);
    context.reply_integer(granted.token.as_i64());
    context.reply_count_or_nil(before.map(|before| before.overdue_ms));
    context.reply_count_or_nil(before.and_then(|before| before.token).map(Token::get));
    context.reply_bytes_or_nil(before.and_then(Before::owner).map(Owner::as_bytes));
}

/// Replies with the holder's result.
pub fn result(context: &Context, result: &LockResult) {
    context.reply_array(1);
    context.reply_bytes(&result.bytes);
}

/// Replies that nothing was granted, in the shape of a grant.
pub fn not_granted(context: &Context, shape: ReplyShape) {
    match shape {
        ReplyShape::Token => context.reply_nil(),
        ReplyShape::Details => context.reply_nil_array(),
    }
}
