//! Inspects keys all the time: their holders and their queues.

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
            let reply = client.link.call(&["LOCK.INFO", key, "FULL"]);
            let until = client.world.now();
            // A replica knows no queue, and errors come and go.
            let Some(info @ Reply::List(_)) = reply else { continue };
            let Reply::List(queue) = info.field("queue") else { continue };
            let inspection = Inspection { from, until, holders: holders(&info), queue: queue.iter().map(id).collect() };
            if !inspection.queue.is_empty() || !inspection.holders.is_empty() {
                client.log.inspections.push((key.to_string(), inspection));
            }
        }
        client.sleep_up_to(10);
    }
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
