//! Replies to requests for a lock, including replies to clients that waited, when no command runs.

use crate::engine::grant::{Before, Granted};
use crate::engine::queue::ReplyShape;
use crate::lock::record::Owner;
use crate::lock::token::Token;
use crate::server::api::context::Context;

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

/// Replies that nothing was granted, in the shape of a grant.
pub fn not_granted(context: &Context, shape: ReplyShape) {
    match shape {
        ReplyShape::Token => context.reply_nil(),
        ReplyShape::Details => context.reply_nil_array(),
    }
}
