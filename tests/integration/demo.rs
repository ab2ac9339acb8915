//! `make demo` runs to the end, and its output is true.

use std::process::Command;

/// Asserts that the example runs without an error, and prints these words in this order.
pub fn shows(example: &str, in_this_order: &[&str]) {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--example", example])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut rest = &*said;
    for words in in_this_order {
        let at = rest.find(words).unwrap_or_else(|| panic!("'{words}' is missing or misplaced:\n{said}"));
        rest = &rest[at + words.len()..];
    }
}

#[test]
fn the_demo_runs_and_its_claims_hold() {
    let in_this_order = [
        "C1  > DEL lock.foo",
        "C2  > DEL lock.foo",
        "C1 and C2 BOTH HOLD THE LOCK",
        "C3  > LOCK.ACQUIRE lock.foo PX 500 OWNER C3",
        "C5  > LOCK.RECOVER lock.foo EX 60 OWNER C5",
        "EXACTLY ONE GOT IT",
        "C3  > LOCK.RELEASE lock.foo",
        "UPDATES LOST",
        "The counter says 4000: 0 UPDATES LOST",
        "Done",
    ];
    shows("demo", &in_this_order);
}
