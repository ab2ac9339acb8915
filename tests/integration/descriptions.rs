//! `docs/commands` describes each command as the server does (COMMAND DOCS and COMMAND INFO), and each reply fits its
//! schema there.

use serde_json::{json, Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use testkit::{until, Reply, Server};

/// The description of each command.
pub fn descriptions() -> BTreeMap<String, Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let all: Map<String, Value> =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let (name, description) = all.into_iter().next().expect("a command");
            let file = format!("{}.json", name.to_lowercase());
            assert_eq!(path.file_name().unwrap().to_str(), Some(&*file), "the file is named after its command");
            (name, description)
        })
        .collect()
}

/// A reply as JSON; status replies are strings.
fn as_json(reply: &Reply) -> Value {
    match reply {
        Reply::Nil => Value::Null,
        Reply::Int(number) => json!(number),
        Reply::Text(bytes) => json!(String::from_utf8_lossy(bytes)),
        Reply::Status(text) => json!(text),
        Reply::List(items) => items.iter().map(as_json).collect(),
        Reply::Map(pairs) => {
            pairs.iter().map(|(name, value)| (name.text(), as_json(value))).collect::<Map<_, _>>().into()
        }
        other => panic!("not a command's reply: {other:?}"),
    }
}

/// The arguments of COMMAND DOCS in the format of the server's files: flags are fields there.
fn arguments(docs: &Value) -> Value {
    let of = |argument: &Value| {
        let mut own = argument.as_object().unwrap().clone();
        for flag in own.remove("flags").iter().flat_map(|flags| flags.as_array().unwrap()) {
            own.insert(flag.as_str().unwrap().into(), json!(true));
        }
        if let Some(inner) = own.get("arguments").map(arguments) {
            own.insert("arguments".into(), inner);
        }
        own.remove("display_text");
        Value::from(own)
    };
    docs.as_array().unwrap().iter().map(of).collect()
}

fn upper(words: &Value) -> Vec<String> {
    words.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_uppercase()).collect()
}

/// The key specifications of COMMAND INFO in the same format.
fn key_specs(info: &Value) -> Value {
    let of = |spec: &Value| {
        let (found, of) = (&spec["find_keys"]["spec"], spec["find_keys"]["type"].as_str().unwrap());
        let names: &[(&str, &str)] = match of {
            "range" => &[("lastkey", "lastkey"), ("keystep", "step"), ("limit", "limit")],
            _ => &[("keynumidx", "keynumidx"), ("firstkey", "firstkey"), ("keystep", "step")],
        };
        let find: Map<_, _> = names.iter().map(|(from, to)| ((*to).into(), found[from].clone())).collect();
        json!({
            "flags": upper(&spec["flags"]),
            "begin_search": { "index": { "pos": spec["begin_search"]["spec"]["index"] } },
            "find_keys": { of: find },
        })
    };
    info.as_array().unwrap().iter().map(of).collect()
}

#[test]
fn the_descriptions_match_the_server() {
    let server = Server::start();
    let mut conn = server.conn();
    if conn.is_before_7() {
        return;
    }
    conn.execute(&["HELLO", "3"]);
    let listed = conn.execute(&["COMMAND", "LIST", "FILTERBY", "MODULE", "lock"]);
    let descriptions = descriptions();
    let mut names: Vec<String> = listed.list().iter().map(|name| name.text().to_uppercase()).collect();
    names.sort_unstable();
    assert_eq!(descriptions.keys().cloned().collect::<Vec<_>>(), names);
    for (name, description) in descriptions {
        let docs = as_json(&conn.execute(&["COMMAND", "DOCS", &name]))[name.to_lowercase()].clone();
        for field in ["summary", "complexity", "group", "since"] {
            assert_eq!(description[field], docs[field], "{field} of {name}");
        }
        let summary = docs["summary"].as_str().unwrap();
        assert!(summary.ends_with('.') && (20..120).contains(&summary.len()), "{name}: {summary}");
        let real = docs.get("arguments").map(arguments).unwrap_or_default();
        assert_eq!(description.get("arguments").cloned().unwrap_or_default(), real, "arguments of {name}");
        let info = as_json(&conn.execute(&["COMMAND", "INFO", &name]))[0].clone();
        assert_eq!(description["arity"], info[1], "arity of {name}");
        let mut flags = upper(&info[2]);
        // The server adds these itself.
        flags.retain(|flag| flag != "MODULE" && flag != "MOVABLEKEYS");
        assert_eq!(upper(&description["command_flags"]), flags, "flags of {name}");
        let specs = description.get("key_specs").cloned().unwrap_or(json!([]));
        assert_eq!(specs, key_specs(&info[8]), "keys of {name}");
    }
}

/// Whether a reply fits a schema. Supports the JSON Schema keywords that the descriptions use.
fn fits(schema: &Value, reply: &Value) -> bool {
    let all = |name: &str, is: &dyn Fn(&Value) -> bool| schema.get(name).is_none_or(is);
    let length = reply.as_array().map_or(0, Vec::len) as u64;
    all("oneOf", &|of| of.as_array().unwrap().iter().filter(|one| fits(one, reply)).count() == 1)
        && all("const", &|value| value == reply)
        && all("type", &|kind| {
            kind == match reply {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "integer",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            }
        })
        && all("minimum", &|least| reply.as_i64() >= least.as_i64())
        && all("maximum", &|most| reply.as_i64() <= most.as_i64())
        && all("minItems", &|least| length >= least.as_u64().unwrap())
        && all("maxItems", &|most| length <= most.as_u64().unwrap())
        && all("items", &|items| {
            let mut own = reply.as_array().unwrap().iter();
            match items {
                Value::Array(each) => each.iter().all(|item| own.next().is_some_and(|own| fits(item, own))),
                item => own.all(|own| fits(item, own)),
            }
        })
        && all("required", &|names| {
            names.as_array().unwrap().iter().all(|name| reply.get(name.as_str().unwrap()).is_some())
        })
        && all("properties", &|properties| {
            reply
                .as_object()
                .unwrap()
                .iter()
                .all(|(name, own)| properties.get(name).is_some_and(|schema| fits(schema, own)))
        })
}

#[test]
fn every_reply_fits_its_schema() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    if conn.is_before_7() {
        return;
    }
    conn.execute(&["HELLO", "3"]);
    let descriptions = descriptions();
    let mut seen = BTreeSet::new();
    let mut call = |line: &str| -> Value {
        let words: Vec<&str> = line.split(' ').collect();
        let reply = as_json(&conn.execute(&words));
        let schema = &descriptions[words[0]]["reply_schema"];
        assert!(fits(schema, &reply), "{line} replied {reply}, which is not {schema}");
        seen.insert(words[0].to_string());
        reply
    };
    server.conn().ok(&["SET", "foreign", "value"]);
    call("LOCK.INFO foreign FULL");
    call("LOCK.HELP");
    let token = call("LOCK.ACQUIRE door EX 30 ID 7 OWNER alice SESSION").to_string();
    let mut waiter = server.conn();
    waiter.send(&["LOCK.ACQUIRE", "door", "EX", "30", "WAIT", "60000", "ID", "8", "OWNER", "bob"]);
    until("it waits", || (call("LOCK.INFO door FULL")["waiters"] == 1).then_some(()));
    call("LOCK.TOP");
    call("LOCK.ACQUIRE door EX 30");
    call(&format!("LOCK.CHECK door {token}"));
    call("LOCK.CHECK door 1");
    call(&format!("LOCK.EXTEND door {token} EX 40"));
    call("LOCK.EXTEND door 1 EX 40");
    call("LOCK.CANCEL door 8");
    call("LOCK.CANCEL door 8");
    call(&format!("LOCK.RELEASE door {token}"));
    call(&format!("LOCK.RELEASE door {token}"));
    call("LOCK.INFO door");
    for owner in ["one", "two"] {
        call(&format!("LOCK.ACQUIRE shared EX 30 SHARED DETAILS OWNER {owner}"));
    }
    call("LOCK.INFO shared FULL");
    let expired = call("LOCK.ACQUIRE job PX 1 OWNER carol").to_string();
    until("it has expired", || (call("LOCK.INFO job")["state"] == "expired").then_some(()));
    call("LOCK.SCAN 0 COUNT 1000");
    assert_eq!(call(&format!("LOCK.RELEASE job {expired}")), -1);
    call("LOCK.ACQUIRE job PX 1 OWNER carol");
    until("it has expired", || (call("LOCK.INFO job")["state"] == "expired").then_some(()));
    let details = call("LOCK.RECOVER job EX 30 OWNER dave");
    assert_eq!(details[3], "carol");
    call("LOCK.RECOVER job EX 30");
    call("LOCK.ACQUIRE shared EX 30 WAIT 30000 ID 9 NOTIFY c");
    call("LOCK.MACQUIRE 2 free shared EX 30 WAIT 30000 ID 10 OWNER erin SNOTIFY d");
    assert_eq!(call("LOCK.INFO shared FULL")["queue"][1]["channel"], "d");
    assert_eq!(call("LOCK.CANCEL shared CHANNEL c"), 1);
    assert_eq!(call("LOCK.CANCEL shared CHANNEL d"), 1);
    call("LOCK.ACQUIRE shared EX 30 WAIT 30000 ID 9 DETAILS NOTIFY c");
    let token = call("LOCK.MACQUIRE 2 a b EX 30").to_string();
    call("LOCK.MACQUIRE 2 b c EX 30");
    call(&format!("LOCK.MEXTEND 2 a b {token} EX 30"));
    call(&format!("LOCK.MRELEASE 2 a b {token}"));
    call(&format!("LOCK.MEXTEND 2 a b {token} EX 30"));
    call("LOCK.SCAN 0 COUNT 1000 STATE foreign");
    assert_eq!(seen, descriptions.keys().cloned().collect(), "a reply to each command was seen");
}

#[test]
fn a_reply_that_does_not_fit_is_found() {
    let schema = json!({ "oneOf": [
        { "type": "integer", "minimum": 0 },
        { "type": "array", "minItems": 1, "items": { "type": "object", "required": ["a"], "properties": { "a": { "const": 1 } } } },
    ] });
    for good in [json!(0), json!([{ "a": 1 }])] {
        assert!(fits(&schema, &good), "{good}");
    }
    for bad in
        [json!(-1), json!(null), json!("0"), json!([]), json!([{}]), json!([{ "a": 2 }]), json!([{ "a": 1, "b": 1 }])]
    {
        assert!(!fits(&schema, &bad), "{bad}");
    }
}
