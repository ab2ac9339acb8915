//! The output of `--json`. Fields have the same names as in the replies; a field that does not apply is null.

use crate::graph::Graph;
use crate::held::{Hold, Sample};
use crate::model::{sorted, By, Holder, Info, Lock, Name, Party, Server, Waiter};
use crate::text::show;
use serde_json::{json, Map, Value};
use std::fmt::Write as _;

/// Everything that is known.
pub fn document(servers: &[Server], graph: &Graph, by: By) -> Value {
    let address = |at: usize| servers.get(at).map(|server| server.address.as_str());
    let locks: Vec<Value> = sorted(servers, by).into_iter().map(|(at, it)| lock(it, address(at))).collect();
    let edge = |number: usize| {
        let edge = graph.edge(number)?;
        let mut out = named(&edge.lock);
        out.insert("server".into(), json!(address(edge.server)));
        out.insert("waiting".into(), party(&graph.party(edge.from)));
        out.insert("for".into(), party(&graph.party(edge.to)));
        out.insert("waited-ms".into(), json!(edge.waited_ms));
        out.insert("in-cycle".into(), json!(graph.is_in_cycle(number)));
        Some(Value::Object(out))
    };
    let edges: Vec<Value> = (0..graph.edges.len()).filter_map(edge).collect();
    let cycles: Vec<Vec<Value>> =
        graph.cycles.iter().map(|cycle| cycle.iter().filter_map(|number| edge(*number)).collect()).collect();
    json!({
        "servers": servers.iter().map(server).collect::<Vec<_>>(),
        "locks": locks,
        "waits": edges,
        "cycles": cycles,
    })
}

/// What `--held-for` found.
pub fn held(samples: &[Sample], holds: &[(&Sample, &Hold)]) -> Value {
    let hold = |(sample, hold): &(&Sample, &Hold)| {
        let place = Value::Object(named(&hold.name));
        with(with(place, json!({ "server": sample.address })), holder(&hold.holder))
    };
    let server = |sample: &Sample| {
        json!({
            "address": sample.address,
            "error": sample.trouble,
            "notes": sample.notes,
            "role": sample.role,
            "held": sample.held,
            "held-for-too-long": sample.too_long,
            "of-unknown-age": sample.unknown,
            "oldest-held-ms": sample.oldest_ms(),
        })
    };
    json!({
        "servers": samples.iter().map(server).collect::<Vec<_>>(),
        "holds": holds.iter().map(hold).collect::<Vec<_>>(),
    })
}

fn server(server: &Server) -> Value {
    json!({
        "address": server.address,
        "error": server.trouble,
        "notes": server.notes,
        "version": server.version,
        "role": server.role,
        "max-waiters": server.max_waiters,
        "max-queued": server.max_queued,
        "failover-grace-ms": server.grace_ms,
        "info": info(&server.info),
    })
}

/// Fields of INFO: numbers as numbers.
fn info(info: &Info) -> Value {
    let value = |text: &String| text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
    info.0.iter().map(|(name, text)| (name.clone(), value(text))).collect::<Map<_, _>>().into()
}

/// A key that is not UTF-8: its bytes in `key-hex`, and a readable form in `key`.
fn named(name: &Name) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("db".into(), json!(name.db));
    if std::str::from_utf8(&name.key).is_err() {
        let hex = name.key.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        out.insert("key-hex".into(), json!(hex));
    }
    let text = std::str::from_utf8(&name.key).map_or_else(|_| show(&name.key), Into::into);
    out.insert("key".into(), json!(text));
    out
}

fn lock(lock: &Lock, address: Option<&str>) -> Value {
    let mut out = named(&lock.name);
    out.insert("server".into(), json!(address));
    out.insert("state".into(), json!(lock.state));
    out.insert("waiters".into(), json!(lock.waiters));
    out.insert("oldest-wait-ms".into(), json!(lock.oldest_wait_ms));
    out.insert("held-ms".into(), json!(lock.held_ms));
    out.insert("free-in-ms".into(), json!(lock.free_in_ms));
    out.insert("overdue-ms".into(), json!(lock.overdue_ms));
    out.insert("holders".into(), lock.holders.iter().map(holder).collect());
    out.insert("queue".into(), lock.queue.as_ref().map_or(Value::Null, |queue| queue.iter().map(waiter).collect()));
    out.into()
}

fn party(party: &Party) -> Value {
    json!({ "client": party.client, "addr": party.addr, "name": party.name, "owner": party.owner })
}

fn with(party: Value, more: Value) -> Value {
    let (Value::Object(mut out), Value::Object(more)) = (party, more) else { return Value::Null };
    out.extend(more);
    out.into()
}

fn holder(holder: &Holder) -> Value {
    let more = json!({
        "token": holder.token,
        "id": holder.id,
        "held-ms": holder.held_ms,
        "lease-ms": holder.lease_ms,
        "overdue-ms": holder.overdue_ms,
        "has-session": holder.has_session,
    });
    with(party(&holder.who), more)
}

fn waiter(waiter: &Waiter) -> Value {
    let more = json!({
        "id": waiter.id,
        "waited-ms": waiter.waited_ms,
        "left-ms": waiter.left_ms,
        "channel": waiter.channel.as_deref().map(show),
    });
    with(party(&waiter.who), more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests as make;

    #[test]
    fn a_script_finds_locks_waits_and_cycles() {
        let locks = vec![
            make::lock("a", make::party(1, "x"), vec![make::party(2, "y")]),
            make::lock("b", make::party(2, "y"), vec![make::party(1, "x")]),
        ];
        let info = Info::of("lock_grants:12\nlock_wait_percentiles_usec:p50=1\n");
        let servers =
            [Server { address: "h:1".into(), locks, info, ..Server::default() }, Server::without("h:2", "gone")];
        let document = document(&servers, &Graph::of(&servers), By::Waiters);
        assert_eq!(document["servers"][0]["info"]["lock_grants"], 12);
        assert_eq!(document["servers"][0]["info"]["lock_wait_percentiles_usec"], "p50=1");
        assert_eq!(document["servers"][1]["error"], "gone");
        assert_eq!((&document["locks"][0]["key"], &document["locks"][0]["server"]), (&json!("a"), &json!("h:1")));
        assert_eq!(document["locks"][0]["holders"][0]["token"], 7);
        assert_eq!(document["locks"][0]["queue"][0]["client"], 2);
        assert_eq!(document["waits"][0]["waiting"]["owner"], "y");
        assert_eq!(document["waits"][0]["for"]["owner"], "x");
        assert_eq!(document["cycles"][0].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_key_of_any_bytes_is_named_exactly() {
        assert_eq!(named(&Name { db: 0, key: b"a\xff".to_vec() })["key-hex"], "61ff");
        assert_eq!(named(&Name { db: 0, key: b"a\n".to_vec() })["key"], "a\n");
    }
}
