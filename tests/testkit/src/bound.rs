//! Time bounds. Every assertion that something takes at most a given time goes through this file, so that other work on
//! the machine does not make it fail. `make busy-tests` runs the tests with a bound, which `tests/fixtures/bounds.txt`
//! lists; a test that is not listed fails here.

use super::{compiled, project_file};
use std::process::Command;
use std::time::Duration;

/// The number of tries. The cache and the hypervisor can slow down any try, and other work can slow down several in a
/// row.
const TRIES: usize = 20;
/// The time of `speed.c` on the machine on which the bounds were set, when idle.
const USUAL: Duration = Duration::from_micros(1_800);
/// No bound is extended by more than this factor.
const SLOWEST: f64 = 5.0;

/// How many times slower this machine is now than the one on which the bounds were set; at least 1.
pub fn slowness() -> f64 {
    let Some(speed) = compiled("speed", "cc", &["-O2"]) else { return 1.0 };
    let output = Command::new(speed).output().unwrap();
    let took = Duration::from_nanos(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap());
    (took.as_secs_f64() / USUAL.as_secs_f64()).clamp(1.0, SLOWEST)
}

/// Asserts that the CPU time returned by `measure` is below `bound`, on a machine as fast as the one on which the bound
/// was set. It is measured up to twenty times, and one good time is enough, because code that is really too slow is too
/// slow each time. Asserts nothing if nothing could be measured.
pub fn cpu(what: &str, bound: Duration, mut measure: impl FnMut() -> Option<Duration>) {
    assert_is_listed();
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let before = slowness();
        let Some(took) = measure() else { return };
        let slow = before.max(slowness());
        println!("{what}: {took:.1?} of CPU, bound {bound:?} x {slow:.1}");
        if took < bound.mul_f64(slow) {
            return;
        }
        seen.push(format!("{took:.1?} (bound x {slow:.1})"));
    }
    panic!("{what}: each try took more than {bound:?} of CPU: {}", seen.join(", "));
}

/// Asserts that something took less than `limit` of wall time. Use it only for what CPU time does not show. The limit
/// is at least ten times the usual time, or so long that only something forgotten takes longer.
pub fn wall(what: &str, limit: Duration, took: Duration) {
    assert_is_listed();
    println!("{what}: {took:.1?}, limit {limit:?}");
    assert!(took < limit, "{what}: {took:?}, limit {limit:?}");
}

/// Like [`wall`], for a measurement that can be repeated: one good time of twenty is enough.
pub fn wall_once(what: &str, limit: Duration, mut measure: impl FnMut() -> Duration) {
    assert_is_listed();
    let seen: Vec<Duration> = (0..TRIES).map(|_| measure()).take_while(|took| *took >= limit).collect();
    assert!(seen.len() < TRIES, "{what}: limit {limit:?}, each try took longer: {seen:?}");
}

/// A test that calls this has a bound, and `make busy-tests` runs it.
pub fn assert_is_listed() {
    let thread = std::thread::current();
    // With a single thread, threads are not named after tests; other threads belong to the test.
    let Some(test) = thread.name().filter(|name| name.contains("::")) else { return };
    let program = std::env::current_exe().unwrap();
    // cargo appends a hash to the name of the suite; scripts/test-matrix.sh runs a copy without it.
    let program = program.file_stem().and_then(|stem| stem.to_str()).unwrap();
    let suite = program.rsplit_once('-').map_or(program, |(suite, _)| suite);
    let line = format!("{suite} {test}");
    let list = project_file("tests/fixtures/bounds.txt");
    assert!(list.lines().any(|listed| listed == line), "tests/fixtures/bounds.txt does not list '{line}'");
}
