//! Replays what the fuzzers kept (`fuzz/corpus`), and what they once failed on, with the same checks and
//! any compiler.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects)]

#[path = "../fuzz/properties/mod.rs"]
mod properties;

use std::fs;
use std::path::Path;

fn replay(target: &str, least: usize, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut count = 0;
    for file in fs::read_dir(&corpus).unwrap() {
        let path = file.unwrap().path();
        let input = fs::read(&path).unwrap();
        // The name of the input is what helps, if it fails.
        if let Err(failure) = std::panic::catch_unwind(|| check(&input)) {
            eprintln!("{}", path.display());
            std::panic::resume_unwind(failure);
        }
        count += 1;
    }
    assert!(count >= least, "only {count} inputs in {}", corpus.display());
}

#[test]
fn values_of_the_corpus_are_read_as_the_contract_says() {
    replay("value", 100, properties::value::check);
}

#[test]
fn arguments_of_the_corpus_are_read_as_the_contract_says() {
    replay("arguments", 100, properties::arguments::check);
}

#[test]
fn steps_of_the_corpus_leave_the_queue_as_a_plain_list() {
    replay("queue", 100, properties::queue::check);
}
