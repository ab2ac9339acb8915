//! The faults of `tests/mutants` still fit the product: each edit applies at one place and compiles, and each test that
//! has to find one exists. `make mutants` checks in some minutes that the tests do find them.
#![allow(missing_docs, clippy::unwrap_used, clippy::arithmetic_side_effects)]

#[path = "mutants/fault.rs"]
#[allow(dead_code, reason = "the example that runs the tests uses the rest")]
mod fault;
#[path = "mutants/tree.rs"]
mod tree;

use fault::{Fault, Suite, Test};
use std::collections::BTreeMap;
use std::process::Command;
use tree::{root, said, target, Tree};

fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}

/// Whether a test is in the sources: in the file that its name says, or in a module within that.
fn is_there(test: &Test, read: impl Fn(&str) -> Option<String>) -> bool {
    let folder = match test.suite {
        Suite::Integration => "tests/integration",
        Suite::Model => "core/tests/model",
    };
    let segments: Vec<&str> = test.name.split("::").collect();
    let Some((name, modules)) = segments.split_last() else { return false };
    let file =
        |depth: usize| format!("{folder}/{}.rs", modules.iter().take(depth).copied().collect::<Vec<_>>().join("/"));
    let found = (1..=modules.len()).rev().find_map(|depth| Some((depth, read(&file(depth))?)));
    found.is_some_and(|(depth, text)| {
        let has_modules = modules.iter().skip(depth).all(|module| text.contains(&format!("mod {module} {{")));
        let mut tests = text.split("#[test]").skip(1).filter_map(|test| test.split_once("fn ")?.1.split_once('('));
        has_modules && tests.any(|(test, _)| test == *name)
    })
}

/// What no longer fits in a fault, or is no fault of the product.
fn rot(fault: &Fault, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut rot: Vec<String> = fault.changed(&read).err().into_iter().collect();
    let mut say = |what: String| rot.push(format!("{}: {what}", fault.name));
    if !fault.name.split('-').all(|word| !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase())) {
        say("its name is not in kebab-case".into());
    }
    if fault.what.lines().count() != 1 {
        say("what is wrong is not said in one line".into());
    }
    if fault.edits.is_empty() {
        say("it changes nothing".into());
    }
    for edit in &fault.edits {
        // The fake server stands in for the product where a fault is in both.
        let is_product =
            ["src/", "core/src/", "core/tests/model/fake/"].iter().any(|folder| edit.file.starts_with(folder));
        if !is_product || edit.file.ends_with("tests.rs") {
            say(format!("{} is no part of the product", edit.file));
        }
    }
    if fault.tests.is_empty() {
        say("no test has to find it".into());
    }
    for test in fault.tests.iter().filter(|test| !is_there(test, &read)) {
        say(format!("there is no test {test}"));
    }
    if fault.report.is_some() && fault.tests.iter().any(|test| test.suite == Suite::Model) {
        say("the sanitizer sees servers, and the model has none".into());
    }
    rot
}

#[test]
fn every_fault_fits_the_product_and_names_tests_that_are_there() {
    let faults = Fault::all(root()).unwrap();
    assert!(faults.len() >= 40, "{} faults are too few to be all", faults.len());
    let rot: Vec<String> = faults.iter().flat_map(|fault| rot(fault, read)).collect();
    assert!(rot.is_empty(), "\n{}\n", rot.join("\n"));
    let count = faults.iter().filter(|fault| fault.report.is_none()).count();
    let figure = format!("| `make mutants` | {count} of {count} found |");
    assert!(read("docs/TESTING.md").unwrap().contains(&figure), "docs/TESTING.md does not say: {figure}");
}

/// Faults that can be in one tree together, and the files with all of them.
#[derive(Default)]
struct Together<'f> {
    faults: Vec<&'f Fault>,
    files: BTreeMap<&'f str, String>,
}

impl<'f> Together<'f> {
    /// Takes a fault in; not if it edits what another one has edited.
    fn takes(&mut self, fault: &'f Fault) -> bool {
        let changed = fault.changed(|file| self.files.get(file).cloned().or_else(|| read(file)));
        let Ok(changed) = changed else { return false };
        self.files.extend(changed);
        self.faults.push(fault);
        true
    }

    fn compiles_in(&self, tree: &Tree) -> Result<(), String> {
        self.files.iter().try_for_each(|(file, text)| tree.put(file, text.as_bytes()))?;
        let mut check = Command::new(env!("CARGO"));
        check.args(["check", "--quiet", "--locked", "--lib", "--target-dir"]).arg(target().join("check"));
        let checked = said(check.current_dir(&tree.0).env("RUSTFLAGS", "--cap-lints=warn"));
        self.files.keys().try_for_each(|file| tree.take(file))?;
        checked.map(|_| ())
    }
}

/// The model's own stand-ins are left to `make mutants`.
#[test]
fn every_fault_compiles() {
    let faults = Fault::all(root()).unwrap();
    let mut groups: Vec<Together<'_>> = Vec::new();
    for fault in &faults {
        if !groups.iter_mut().any(|group| group.takes(fault)) {
            groups.push(Together::default());
            assert!(groups.last_mut().unwrap().takes(fault), "{} does not fit", fault.name);
        }
    }
    let tree = Tree::copy(target().join("check-tree")).unwrap();
    for group in groups.iter().filter(|group| group.compiles_in(&tree).is_err()) {
        // Which of them, if it is not that they do not go together.
        for fault in &group.faults {
            let mut alone = Together::default();
            assert!(alone.takes(fault));
            alone.compiles_in(&tree).unwrap_or_else(|error| panic!("{}: {error}", fault.name));
        }
    }
}

const FILE: &str = r#"
what = "It says one."
tests = ["wire::is_two", "wire::deep::inner::is_two", "model/scopes::is_two"]
[[edit]]
file = "src/a.rs"
find = "2"
replace = "1"
[[edit]]
file = "src/a.rs"
find = "fn f"
replace = "fn g"
"#;

/// A small product and its tests.
fn small(file: &str) -> Option<String> {
    let text = match file {
        "src/a.rs" => "fn f() -> u8 { 2 }",
        "tests/integration/wire.rs" => "fn is_no_test() {}\n#[test]\nfn is_two() {}\nfn is_help() {}",
        "tests/integration/wire/deep.rs" => "mod inner {\n#[test]\n#[cfg(unix)]\nfn is_two() {} }",
        "core/tests/model/scopes.rs" => "#[test]\nfn is_two() {}",
        _ => return None,
    };
    Some(text.into())
}

#[test]
fn a_fault_is_what_its_edits_come_to() {
    let fault = Fault::parse("one", FILE).unwrap();
    assert_eq!(rot(&fault, small), [""; 0]);
    let changed = fault.changed(small).unwrap();
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), [("src/a.rs", "fn g() -> u8 { 1 }".into())]);
}

#[test]
fn each_kind_of_rot_is_found() {
    let cases = [
        ("find = \"2\"", "find = \"3\"", "one: src/a.rs: not found: \"3\""),
        ("find = \"2\"", "find = \"f\"", "one: src/a.rs: found 2 times: \"f\""),
        ("find = \"2\"", "find = \"1\"", "one: src/a.rs: replaced by the same: \"1\""),
        ("find = \"2\"", "find = ''", "one: src/a.rs: nothing to find: \"\""),
        ("replace = \"1\"", "replace = 'fn f'", "one: src/a.rs: found 2 times: \"fn f\""),
        ("It says one.", "It says\\none.", "one: what is wrong is not said in one line"),
        ("It says one.", "", "one: what is wrong is not said in one line"),
        ("wire::is_two", "wire::is_help", "one: there is no test wire::is_help"),
        ("wire::is_two", "wire::is_no_test", "one: there is no test wire::is_no_test"),
        ("wire::is_two", "wire::is_", "one: there is no test wire::is_"),
        ("wire::is_two", "is_two", "one: there is no test is_two"),
        ("deep::inner", "deep::outer", "one: there is no test wire::deep::outer::is_two"),
        ("model/scopes::is_two", "model/wire::is_two", "one: there is no test model/wire::is_two"),
        ("what = ", "report = 'LeakSanitizer'\nwhat = ", "one: the sanitizer sees servers, and the model has none"),
    ];
    for (good, bad, found) in cases {
        let fault = Fault::parse("one", &FILE.replacen(good, bad, 1)).unwrap();
        assert_eq!(rot(&fault, small), [found], "{bad}");
    }
    let other_file = |file: &str| rot(&Fault::parse("one", &FILE.replace("src/a.rs", file)).unwrap(), small);
    let gone = ["one: src/b.rs: there is no such file: \"2\""];
    assert_eq!(other_file("src/b.rs"), gone);
    let no_product = "one: tests/integration/wire.rs is no part of the product";
    assert!(other_file("tests/integration/wire.rs").iter().any(|what| what == no_product));
    let (head, _) = FILE.split_once("[[edit]]").unwrap();
    let nothing = Fault::parse("one", &format!("{head}edit = []")).unwrap();
    assert_eq!(rot(&nothing, small), ["one: it changes nothing"]);
    let no_tests = FILE.lines().filter(|line| !line.starts_with("tests")).collect::<Vec<_>>().join("\n");
    let untested = Fault::parse("one", &format!("tests = []\n{no_tests}")).unwrap();
    assert_eq!(rot(&untested, small), ["one: no test has to find it"]);
    for name in ["One", "one_two", "one--two", ""] {
        let misnamed = Fault::parse(name, FILE).unwrap();
        assert_eq!(rot(&misnamed, small), [format!("{name}: its name is not in kebab-case")]);
    }
    let unread = [
        FILE.replacen("what =", "fault =", 1),
        FILE.replacen("replace =", "with =", 1),
        FILE.replacen("find =", "once = true\nfind =", 1),
        format!("seen = true\n{FILE}"),
        no_tests,
        head.into(),
    ];
    for text in unread {
        let error = Fault::parse("one", &text).unwrap_err();
        assert!(error.starts_with("one: ") && error.contains("field"), "{error}");
    }
}
