//! Time bounds go through `testkit::bound`: no assertion compares a time with its own limit, and the list of tests with
//! a bound names only tests that exist.

use crate::documents::{has_test, sources_below};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};
use testkit::{project_file, root};

/// The test folders, each with its binary in the list.
const TESTS: [(&str, &str); 3] =
    [("integration", "tests/integration"), ("program", "tools/lock-top/tests/program"), ("torture", "tests/torture")];

/// Functions that measure a time that other work on the machine can lengthen.
const MEASURES: [&str; 5] =
    ["elapsed", "duration_since", "saturating_duration_since", "used_cpu_user", "used_cpu_user_main_thread"];

/// Comparisons whose smaller side is a time: upper bounds.
#[derive(Default)]
struct Bounds {
    /// The variables that hold a measured time.
    times: BTreeSet<String>,
    found: Vec<String>,
}

fn words(tokens: &TokenStream, found: &mut Vec<String>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => words(&group.stream(), found),
            TokenTree::Ident(word) => found.push(word.to_string()),
            TokenTree::Literal(text) => found.extend(text.to_string().split([' ', '"', ':', '=']).map(Into::into)),
            TokenTree::Punct(_) => {}
        }
    }
}

impl Bounds {
    fn has_time(&self, tokens: &[TokenTree]) -> bool {
        let mut found = Vec::new();
        words(&tokens.iter().cloned().collect(), &mut found);
        found.iter().any(|word| MEASURES.contains(&&**word) || word == "usec" || self.times.contains(word))
    }

    /// Whether a condition has an upper bound on a time.
    fn is_bound(&self, tokens: TokenStream) -> bool {
        let all: Vec<TokenTree> = tokens.into_iter().collect();
        let is_sign = |at: usize, sign: char| matches!(&all[at], TokenTree::Punct(it) if it.as_char() == sign);
        // The parts between `,`, `&&` and `||`.
        let is_end = |at: usize| is_sign(at, ',') || is_sign(at, '&') || is_sign(at, '|');
        (0..all.len()).any(|at| {
            let from = (0..at).rev().find(|at| is_end(*at)).map_or(0, |end| end + 1);
            let until = (at..all.len()).find(|at| is_end(*at)).unwrap_or(all.len());
            match &all[at] {
                TokenTree::Punct(sign) if sign.as_char() == '<' => self.has_time(&all[from..at]),
                TokenTree::Punct(sign) if sign.as_char() == '>' => self.has_time(&all[at + 1..until]),
                TokenTree::Ident(word) if word == "contains" => {
                    matches!(all.get(at + 1), Some(TokenTree::Group(_))) && self.has_time(&all[at + 1..at + 2])
                }
                _ => false,
            }
        })
    }
}

impl<'ast> Visit<'ast> for Bounds {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.times.clear();
        visit::visit_item_fn(self, function);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        visit::visit_local(self, local);
        let Some(init) = &local.init else { return };
        let value: Vec<TokenTree> = quote(&init.expr);
        if self.has_time(&value) {
            let mut names = Vec::new();
            words(&quote(&local.pat).into_iter().collect(), &mut names);
            self.times.extend(names.into_iter().filter(|name| name != "mut" && !name.starts_with(char::is_uppercase)));
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.is_ident("assert") && self.is_bound(call.tokens.clone()) {
            self.found.push(call.tokens.to_string());
        }
    }
}

fn quote(it: &impl quote::ToTokens) -> Vec<TokenTree> {
    it.to_token_stream().into_iter().collect()
}

/// The upper bounds in a source.
fn bounds(source: &str) -> Vec<String> {
    let mut bounds = Bounds::default();
    bounds.visit_file(&syn::parse_file(source).unwrap());
    bounds.found
}

#[test]
fn no_assertion_has_a_time_limit_of_its_own() {
    let folders = TESTS.iter().map(|(_, folder)| *folder).chain(["core/tests", "tests/clients"]);
    let files = folders.flat_map(|folder| sources_below(&root().join(folder)));
    let files: Vec<_> = files.filter(|file| file.extension().is_some_and(|it| it == "rs")).collect();
    assert!(files.len() > 100, "{} files", files.len());
    let found = |file: &Path| bounds(&fs::read_to_string(file).unwrap());
    let found: Vec<_> = files.iter().flat_map(|file| found(file).into_iter().map(move |it| (file, it))).collect();
    assert!(found.is_empty(), "use testkit::bound: {found:#?}");
}

#[test]
fn an_upper_bound_on_a_time_is_found() {
    for bound in [
        "assert!(begin.elapsed() < SOON, \"{:?}\", begin.elapsed());",
        "let took = begin.elapsed(); assert!(is_well && took <= LONG);",
        "let (a, b) = (1, at.elapsed()); assert!(SOON > b);",
        "let took = line.split(\"usec=\").next(); assert!(took < 5);",
        "let took = at.saturating_duration_since(then); assert!((1..5).contains(&took));",
    ] {
        assert_eq!(bounds(&format!("fn test() {{ {bound} }}")).len(), 1, "{bound}");
    }
    for other in [
        "assert!(begin.elapsed() >= Duration::from_secs(5));",
        "let took = begin.elapsed(); assert!(value <= took + 1);",
        "let took = begin.elapsed(); bound::wall(\"it\", SOON, took); assert!(1 < 2);",
        "let took = begin.elapsed(); while took < SOON {}",
    ] {
        assert_eq!(bounds(&format!("fn test() {{ {other} }}")), [""; 0], "{other}");
    }
}

#[test]
fn the_list_of_bounded_tests_is_sorted() {
    let list = project_file("tests/fixtures/bounds.txt");
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines.is_sorted_by(|one, next| one < next), "sort it: LC_ALL=C sort -u");
    let missing = lines.iter().filter(|line| !is_there(line)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "not there: {missing:?}");
    assert!(!is_there("integration bounds::no_such_test") && !is_there("torture bounds::no_such_file::test"));
}

fn is_there(line: &str) -> bool {
    let (binary, path) = line.split_once(' ').unwrap();
    let folder = TESTS.iter().find(|(name, _)| *name == binary).unwrap().1;
    let (module, test) = path.rsplit_once("::").unwrap();
    let file = root().join(folder).join(module.replace("::", "/"));
    let files = [file.with_extension("rs"), file.join("mod.rs")];
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).any(|source| has_test(&source, test))
}
