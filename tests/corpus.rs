//! Replays the inputs that the fuzzers kept (`fuzz/corpus`) with the same checks, on any compiler, and checks that
//! their packed form keeps the promises of `xtask/src/corpus/pack.rs`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects, clippy::indexing_slicing)]

#[path = "../fuzz/properties/mod.rs"]
mod properties;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use redis_lock::commands::doc::{Arg, Kind};
use redis_lock::commands::{
    acquire::Acquire, extend::Extend, info::Info, macquire::Macquire, mextend::Mextend, mrelease::Mrelease,
    recover::Recover, scan::Scan, top::Top,
};
use redis_lock::Command as _;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use xtask::corpus::pack;

fn replay(target: &str, least: usize, check: fn(&[u8])) {
    let inputs = pack::read(target).unwrap();
    assert!(inputs.len() >= least, "only {} inputs for {target}", inputs.len());
    for input in inputs {
        // On failure, print the input.
        if let Err(failure) = std::panic::catch_unwind(|| check(&input)) {
            eprintln!("input of {target}: b\"{}\"", input.escape_ascii());
            std::panic::resume_unwind(failure);
        }
    }
}

#[test]
fn corpus_values_are_read_as_the_contract_says() {
    replay("value", 100, properties::value::check);
}

#[test]
fn corpus_arguments_are_read_as_the_contract_says() {
    replay("arguments", 100, properties::arguments::check);
}

/// The check has its own list of commands and options, which could lack a new one.
#[test]
fn the_argument_check_knows_all_options() {
    fn tokens(args: &[Arg]) -> BTreeSet<String> {
        let own = args.iter().filter_map(|arg| Some(arg.token?.to_str().unwrap().to_owned()));
        let within =
            args.iter().filter_map(|arg| if let Kind::OneOf(args) = arg.kind { Some(tokens(args)) } else { None });
        own.chain(within.flatten()).collect()
    }
    let docs = [
        Acquire::DOC,
        Recover::DOC,
        Extend::DOC,
        Info::DOC,
        Top::DOC,
        Macquire::DOC,
        Mextend::DOC,
        Mrelease::DOC,
        Scan::DOC,
    ];
    for (name, options) in properties::arguments::options() {
        let doc = docs.iter().find(|doc| doc.name.to_str().unwrap().to_uppercase() == name).unwrap();
        assert_eq!(options, tokens(doc.args), "{name}");
    }
}

#[test]
fn the_queue_corpus_matches_a_plain_list() {
    replay("queue", 100, properties::queue::check);
}

proptest! {
    #[test]
    fn unpacking_restores_the_inputs(inputs in btree_set(vec(any::<u8>(), 0..300), 0..20)) {
        prop_assert_eq!(pack::unpack(&pack::pack(&inputs).unwrap()), Ok(inputs));
    }
}

#[test]
fn inputs_of_any_length_are_packed_or_refused() {
    let longest = BTreeSet::from([vec![], vec![7; 65535]]);
    assert_eq!(pack::unpack(&pack::pack(&longest).unwrap()).unwrap(), longest);
    assert_eq!(pack::pack(&BTreeSet::from([vec![7; 65536]])), Err("an input has 65536 bytes".into()));
}

#[test]
fn a_damaged_corpus_is_an_error() {
    let packed = pack::pack(&BTreeSet::from([vec![], b"a".to_vec(), b"LOCK.ACQUIRE".to_vec()])).unwrap();
    for place in 0..packed.len() {
        assert!(pack::unpack(&packed[..place]).is_err(), "only {place} bytes are left");
        let mut changed = packed.clone();
        changed[place] ^= 1;
        assert!(pack::unpack(&changed).is_err(), "byte {place} was changed");
    }
    let longer = [packed.as_slice(), b"\0\0"].concat();
    assert_eq!(pack::unpack(&longer), Err("its checksum is wrong: it was changed or cut off".into()));
    assert_eq!(pack::unpack(b"some other file"), Err("not a packed corpus".into()));
    let missing = pack::read("nothing").unwrap_err();
    assert!(missing.contains("fuzz/corpus/nothing.bin: "), "{missing}");
}

#[test]
fn the_documents_say_how_large_the_corpus_is() {
    let targets = ["arguments", "queue", "value"];
    let inputs: usize = targets.iter().map(|target| pack::read(target).unwrap().len()).sum();
    let bytes: u64 = targets.iter().map(|target| fs::metadata(pack::file(target)).unwrap().len()).sum();
    let count = format!("{},{:03}", inputs / 1000, inputs % 1000);
    let testing = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/TESTING.md");
    let figure = format!("(`fuzz/corpus`, {count} inputs, {} KB)", (bytes + 500) / 1000);
    assert!(fs::read_to_string(testing).unwrap().contains(&figure), "docs/TESTING.md does not say {figure}");
}
