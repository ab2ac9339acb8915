//! Inspects keys continuously: their holders and their queues.

use super::script::queue_of;
use super::Client;
use crate::history::Inspection;
use testkit::Reply;

pub fn work(client: &mut Client<'_>, keys: &[&str]) {
    while !client.world.is_over() {
        for key in keys {
            if client.link.server().is_none() {
                return;
            }
            let from = client.world.now();
            let seen = if client.world.has_module { by_command(client, key) } else { by_script(client, key) };
            let until = client.world.now();
            let Some((holders, queue)) = seen else { continue };
            let inspection = Inspection { from, until, holders, queue };
            if !inspection.queue.is_empty() || !inspection.holders.is_empty() {
                client.log.inspections.push((key.to_string(), inspection));
            }
        }
        client.sleep_up_to(10);
    }
}

/// The IDs of the holders, and those in the queue.
fn by_command(client: &mut Client<'_>, key: &str) -> Option<(Vec<i64>, Vec<i64>)> {
    // A replica has no queue, and errors come and go.
    let info = client.link.execute(&["LOCK.INFO", key, "FULL"]).filter(|reply| matches!(reply, Reply::List(_)))?;
    let Reply::List(queue) = info.field("queue") else { return None };
    Some((holders(&info), queue.iter().map(id).collect()))
}

/// Reads both keys of a lock of portable/lock.lua at once.
const BOTH: &str = "local value = redis.pcall('GET', KEYS[1]) \
    if value and value.err then value = redis.call('ZRANGE', KEYS[1], 0, -1) end \
    return { type(value) == 'table' and value or { value or nil }, redis.call('ZRANGE', KEYS[2], 0, -1) }";

fn by_script(client: &mut Client<'_>, key: &str) -> Option<(Vec<i64>, Vec<i64>)> {
    let reply = client.link.execute(&["EVAL", BOTH, "2", key, &queue_of(key)]);
    let Some(Reply::List(lists)) = reply else { return None };
    let ids =
        |list: &Reply, id: fn(&str) -> Option<i64>| list.list().iter().filter_map(|text| id(&text.text())).collect();
    Some((ids(&lists[0], id_of_holder), ids(&lists[1], id_in_queue)))
}

/// The ID follows the token, and ends before the owner. A lock with one holder has its timestamp before the token.
fn id_of_holder(text: &str) -> Option<i64> {
    let digits = text.split(' ').next()?.rsplit('.').next()?;
    let at = [6 + 16, 16].into_iter().find(|at| at + 19 == digits.len())?;
    digits[at..].parse().ok()
}

/// A member that begins with a space is not an attempt.
fn id_in_queue(member: &str) -> Option<i64> {
    member.split(' ').next()?.parse().ok()
}

/// The ID in a row, else 0.
fn id(row: &Reply) -> i64 {
    match row.field("id") {
        Reply::Text(text) => String::from_utf8_lossy(&text).parse().unwrap(),
        _ => 0,
    }
}

/// The IDs of all holders; a lock with one holder has no list of them.
fn holders(info: &Reply) -> Vec<i64> {
    let Reply::List(items) = info else { return Vec::new() };
    let at = items.iter().step_by(2).position(|name| *name == Reply::Text(b"holders".to_vec()));
    let rows = at.and_then(|at| items.get(at * 2 + 1));
    let ids = rows.map_or_else(|| vec![id(info)], |rows| rows.list().iter().map(id).collect());
    ids.into_iter().filter(|id| *id != 0).collect()
}
