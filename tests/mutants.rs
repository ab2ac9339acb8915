//! Checks that the mutants in `tests/mutants` still fit the product: each edit applies in one place, and each test that
//! must catch a mutant exists. `make mutants` takes an hour and checks that they compile and that the tests catch them.
#![allow(missing_docs, clippy::unwrap_used, clippy::arithmetic_side_effects)]

use xtask::mutants::mutant::{Mutant, Suite, Test};
use xtask::root;

fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}

/// Whether the sources have a test: in the file that its name says, or in a module of that file.
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

/// The parts of a mutant that no longer fit, and edits outside the product.
fn rot(mutant: &Mutant, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut rot: Vec<String> = mutant.changed(&read).err().into_iter().collect();
    let mut say = |what: String| rot.push(format!("{}: {what}", mutant.name));
    if !mutant.name.split('-').all(|word| !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase())) {
        say("its name is not in kebab-case".into());
    }
    if mutant.what.lines().count() != 1 {
        say("its description is not one line".into());
    }
    if mutant.edits.is_empty() {
        say("it changes nothing".into());
    }
    for edit in &mutant.edits {
        // The fake server stands in for the product if both can have the mutant.
        let is_product =
            ["src/", "core/src/", "core/tests/model/fake/"].iter().any(|folder| edit.file.starts_with(folder));
        if !is_product || edit.file.ends_with("tests.rs") {
            say(format!("{} is not part of the product", edit.file));
        }
    }
    if mutant.tests.is_empty() {
        say("no test has to find it".into());
    }
    for test in mutant.tests.iter().filter(|test| !is_there(test, &read)) {
        say(format!("there is no test {test}"));
    }
    if mutant.report.is_some() && mutant.tests.iter().any(|test| test.suite == Suite::Model) {
        say("the sanitizer sees servers, and the model has none".into());
    }
    rot
}

#[test]
fn every_mutant_applies_and_names_existing_tests() {
    let mutants = Mutant::all(root()).unwrap();
    assert!(mutants.len() >= 40, "{} mutants are too few to be all", mutants.len());
    let rot: Vec<String> = mutants.iter().flat_map(|mutant| rot(mutant, read)).collect();
    assert!(rot.is_empty(), "\n{}\n", rot.join("\n"));
    let count = mutants.iter().filter(|mutant| mutant.report.is_none()).count();
    let figure = format!("| `make mutants` | {count} of {count} found |");
    assert!(read("docs/TESTING.md").unwrap().contains(&figure), "docs/TESTING.md does not say: {figure}");
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
        "tests/integration/wire.rs" => "fn not_a_test() {}\n#[test]\nfn is_two() {}\nfn is_help() {}",
        "tests/integration/wire/deep.rs" => "mod inner {\n#[test]\n#[cfg(unix)]\nfn is_two() {} }",
        "core/tests/model/scopes.rs" => "#[test]\nfn is_two() {}",
        _ => return None,
    };
    Some(text.into())
}

#[test]
fn a_mutant_is_its_edits_applied() {
    let mutant = Mutant::parse("one", FILE).unwrap();
    assert_eq!(rot(&mutant, small), [""; 0]);
    let changed = mutant.changed(small).unwrap();
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
        ("It says one.", "It says\\none.", "one: its description is not one line"),
        ("It says one.", "", "one: its description is not one line"),
        ("wire::is_two", "wire::is_help", "one: there is no test wire::is_help"),
        ("wire::is_two", "wire::not_a_test", "one: there is no test wire::not_a_test"),
        ("wire::is_two", "wire::is_", "one: there is no test wire::is_"),
        ("wire::is_two", "is_two", "one: there is no test is_two"),
        ("deep::inner", "deep::outer", "one: there is no test wire::deep::outer::is_two"),
        ("model/scopes::is_two", "model/wire::is_two", "one: there is no test model/wire::is_two"),
        ("what = ", "report = 'LeakSanitizer'\nwhat = ", "one: the sanitizer sees servers, and the model has none"),
    ];
    for (good, bad, found) in cases {
        let mutant = Mutant::parse("one", &FILE.replacen(good, bad, 1)).unwrap();
        assert_eq!(rot(&mutant, small), [found], "{bad}");
    }
    let other_file = |file: &str| rot(&Mutant::parse("one", &FILE.replace("src/a.rs", file)).unwrap(), small);
    let gone = ["one: src/b.rs: there is no such file: \"2\""];
    assert_eq!(other_file("src/b.rs"), gone);
    let outside = "one: tests/integration/wire.rs is not part of the product";
    assert!(other_file("tests/integration/wire.rs").iter().any(|what| what == outside));
    let (head, _) = FILE.split_once("[[edit]]").unwrap();
    let nothing = Mutant::parse("one", &format!("{head}edit = []")).unwrap();
    assert_eq!(rot(&nothing, small), ["one: it changes nothing"]);
    let no_tests = FILE.lines().filter(|line| !line.starts_with("tests")).collect::<Vec<_>>().join("\n");
    let untested = Mutant::parse("one", &format!("tests = []\n{no_tests}")).unwrap();
    assert_eq!(rot(&untested, small), ["one: no test has to find it"]);
    for name in ["One", "one_two", "one--two", ""] {
        let misnamed = Mutant::parse(name, FILE).unwrap();
        assert_eq!(rot(&misnamed, small), [format!("{name}: its name is not in kebab-case")]);
    }
    let unread = [
        FILE.replacen("what =", "mutant =", 1),
        FILE.replacen("replace =", "with =", 1),
        FILE.replacen("find =", "once = true\nfind =", 1),
        format!("seen = true\n{FILE}"),
        no_tests,
        head.into(),
    ];
    for text in unread {
        let error = Mutant::parse("one", &text).unwrap_err();
        assert!(error.starts_with("one: ") && error.contains("field"), "{error}");
    }
}
