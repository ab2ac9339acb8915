//! The server's SCAN.

use crate::lock::record::number;
use crate::server::api::api;
use crate::server::api::context::Context;
use redis_module::raw;

/// The next cursor and the key names that one step of the server's SCAN returns.
pub type Scanned = (Box<[u8]>, Vec<Box<[u8]>>);

/// One step of the server's SCAN over the selected database; `None` if the server does not accept the arguments.
#[must_use]
pub fn scan(context: &Context, cursor: &[u8], pattern: Option<&[u8]>, count: usize) -> Option<Scanned> {
    number(cursor)?;
    let pattern = pattern.unwrap_or(b"*");
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    // SAFETY: the format takes two buffers with their lengths (size_t), C strings and a long long, as
    // they follow. The text of the reply is copied before the reply is freed, once.
    unsafe {
        let reply = (api().call)(
            context.as_ptr(),
            c"SCAN".as_ptr(),
            c"bcbcl".as_ptr(),
            cursor.as_ptr(),
            cursor.len(),
            c"MATCH".as_ptr(),
            pattern.as_ptr(),
            pattern.len(),
            c"COUNT".as_ptr(),
            count,
        );
        if reply.is_null() {
            return None;
        }
        let text = |element: *mut raw::RedisModuleCallReply| -> Option<Box<[u8]>> {
            let mut length = 0;
            if element.is_null() {
                return None;
            }
            let bytes = (api().call_reply_string_ptr)(element, &raw mut length);
            (!bytes.is_null()).then(|| std::slice::from_raw_parts(bytes.cast::<u8>(), length).into())
        };
        let cursor = text((api().call_reply_array_element)(reply, 0));
        let keys = (api().call_reply_array_element)(reply, 1);
        let names =
            (0..).map_while(|at| if keys.is_null() { None } else { text((api().call_reply_array_element)(keys, at)) });
        let names = names.collect();
        (api().free_call_reply)(reply);
        cursor.map(|cursor| (cursor, names))
    }
}
