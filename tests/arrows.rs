//! Draws the arrows between modules from the source, for the Rust client too. Fails on an arrow that points
//! backwards between the layers, on a cycle of modules inside a folder, and on `unsafe` outside `src/server`.
//!
//! [`BACKWARDS`] and [`CYCLES`] list the known violations. They may only shrink: an entry that no longer occurs is a
//! failure too. Comments, tests and method calls draw no arrows, because they name no module.
#![allow(missing_docs, clippy::unwrap_used, clippy::arithmetic_side_effects)]

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, UseTree};

/// The layers, each a file or a folder. A layer knows only those after it. The two crates themselves stand for their
/// `lib.rs` and for files without a layer.
const LAYERS: &str = "src src/load src/commands src/server \
                      core/src core/src/driver core/src/engine core/src/lock";
const CRATES: [&str; 3] = ["src", "core/src", "clients/rust/src"];

/// Arrows that still point backwards, each from one module to some others.
const BACKWARDS: &[&str] = &[];

/// The cycles that remain: a folder, and modules in it that all lead to each other.
const CYCLES: &[&str] = &[];

/// The paths and names in one file. Only the [`Graph`] knows which modules they mean.
#[derive(Default)]
struct Source {
    file: String,
    paths: Vec<(usize, Vec<String>)>,
    /// The names that `use` brings in, and what they stand for. `*` stands for any name.
    bound: Vec<(String, Vec<String>)>,
    tests: Vec<std::ops::RangeInclusive<usize>>,
    unsafes: Vec<String>,
    only_declares: bool,
}

impl Source {
    fn read(file: &str, text: &str) -> Self {
        let tokens: TokenStream = text.parse().unwrap();
        let syntax: syn::File = syn::parse2(tokens.clone()).unwrap();
        let only_declares = syntax.items.iter().all(|it| matches!(it, Item::Mod(_) | Item::Use(_)));
        let mut source = Self { file: file.into(), only_declares, ..Self::default() };
        source.visit_file(&syntax);
        let lines = unsafe_lines(tokens).into_iter().filter(|line| !source.tests.iter().any(|it| it.contains(line)));
        source.unsafes = lines.map(|line| format!("unsafe: {file}:{line}")).collect();
        source
    }

    fn add(&mut self, place: Span, path: Vec<String>, name: Option<String>) {
        self.bound.extend(name.map(|name| (name, path.clone())));
        // On their own, these lead to a module and use nothing in it.
        if path.last().is_some_and(|it| !["crate", "super", "self"].contains(&&**it)) {
            self.paths.push((place.start().line, path));
        }
    }

    fn read_use(&mut self, tree: &UseTree, left: &[String]) {
        let with = |name: &Ident| [left, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.read_use(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.read_use(tree, left)),
            UseTree::Name(it) if it.ident == "self" => self.add(it.span(), left.into(), left.last().cloned()),
            UseTree::Name(it) => self.add(it.span(), with(&it.ident), Some(it.ident.to_string())),
            UseTree::Rename(it) => self.add(it.span(), with(&it.ident), Some(it.rename.to_string())),
            UseTree::Glob(it) => self.add(it.span(), left.into(), Some("*".into())),
        }
    }

    /// Reads the paths in a macro. Its tokens have no syntax: a path is names with `::` between them.
    fn read_macro(&mut self, tokens: TokenStream, left: &[String]) {
        let (mut path, mut colons) = (Vec::new(), 0);
        for token in tokens {
            let is_colon = matches!(&token, TokenTree::Punct(sign) if sign.as_char() == ':');
            match token {
                TokenTree::Ident(name) => {
                    path = [if colons == 2 { &path } else { left }, &[name.to_string()]].concat();
                    self.add(name.span(), path.clone(), None);
                }
                TokenTree::Group(group) => self.read_macro(group.stream(), if colons == 2 { &path } else { &[] }),
                _ if is_colon => {}
                _ => path.clear(),
            }
            colons = if is_colon { colons + 1 } else { 0 };
        }
    }
}

impl<'a> Visit<'a> for Source {
    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        let mut cfgs = module.attrs.iter().filter(|it| it.path().is_ident("cfg"));
        if cfgs.any(|it| it.parse_args::<Ident>().is_ok_and(|it| it == "test")) {
            self.tests.push(module.span().start().line..=module.span().end().line);
        } else {
            let is_plain = module.content.is_none() && !module.attrs.iter().any(|it| it.path().is_ident("path"));
            assert!(is_plain, "{}: put {} in a file named after it", self.file, module.ident);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.read_use(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.add(path.span(), path.segments.iter().map(|it| it.ident.to_string()).collect(), None);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        visit::visit_macro(self, call);
        self.read_macro(call.tokens.clone(), &[]);
    }
}

/// The lines with `unsafe`: read from tokens, so no macro can hide it.
fn unsafe_lines(tokens: TokenStream) -> Vec<usize> {
    let lines = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => unsafe_lines(group.stream()),
        TokenTree::Ident(word) if word == "unsafe" => vec![word.span().start().line],
        _ => vec![],
    });
    lines.collect()
}

/// `src/a` for `src/a.rs` and for `src/a/mod.rs`, `src` for `src/lib.rs`.
fn module_of(file: &str) -> &str {
    let stem = file.trim_end_matches(".rs");
    stem.strip_suffix("/mod").or(stem.strip_suffix("/lib")).unwrap_or(stem)
}

fn parent(module: &str) -> &str {
    module.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_in(module: &str, folder: &str) -> bool {
    module.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The module directly in a folder that this one belongs to. A layer's own file is one of its modules, `mod`. A
/// subfolder's own file is not: children may use their parent, since in Rust a child sees its parent's private types.
fn member<'a>(folder: &str, module: &'a str) -> Option<&'a str> {
    if module == folder {
        return LAYERS.split(' ').any(|it| it == folder).then_some("mod");
    }
    module.strip_prefix(folder)?.strip_prefix('/')?.split('/').next()
}

/// Whether a cycle, written as in [`CYCLES`], contains another.
fn covers(cycle: &str, other: &str) -> bool {
    other.split(' ').all(|word| cycle.split(' ').any(|it| it == word))
}

struct Graph {
    sources: BTreeMap<String, Source>,
    /// From, to, and the first place where the arrow occurs.
    arrows: BTreeMap<(String, String), String>,
}

impl Graph {
    fn draw(files: &[(&str, &str)]) -> Self {
        let files = files.iter().filter(|(file, _)| !file.ends_with("_tests.rs") && !file.ends_with("/tests.rs"));
        let sources = files.map(|(file, text)| (module_of(file).into(), Source::read(file, text))).collect();
        let mut graph = Self { sources, arrows: BTreeMap::new() };
        for (from, source) in &graph.sources {
            for (line, path) in &source.paths {
                for to in graph.resolve(from, from, path, 4) {
                    let target = graph.sources.get(&to).filter(|it| to != *from && !it.only_declares);
                    if let Some(place) = target.map(|it| format!("{}:{line} -> {}", source.file, it.file)) {
                        graph.arrows.entry((from.clone(), to)).or_insert(place);
                    }
                }
            }
        }
        graph
    }

    /// The modules that a path in `scope` may refer to, resolved from `at`: several only after a `*`. It looks through
    /// what `use` brings into the scope, the modules around it and files that only declare, and through no other
    /// re-export.
    fn resolve(&self, scope: &str, at: &str, path: &[String], hops: usize) -> Vec<String> {
        let Some((name, rest)) = path.split_first() else { return vec![at.into()] };
        let child = format!("{at}/{name}");
        let next = match name.as_str() {
            "self" => Some(at),
            "super" => Some(parent(at)),
            "crate" => CRATES.into_iter().find(|it| is_in(at, it)),
            "redis_lock_core" => Some("core/src"),
            _ => self.sources.contains_key(&child).then_some(&*child),
        };
        if let Some(next) = next {
            return self.resolve(scope, next, rest, hops);
        }
        let Some(source) = self.sources.get(at) else { return vec![] };
        // The number of hops is limited, because a name may stand for itself: `use a::a`, where `a` is a crate.
        let is_open = hops > 0 && (source.only_declares || is_in(scope, at));
        let bound = source.bound.iter().filter(|(it, _)| is_open && (it == name || it == "*"));
        let through = bound.map(|(it, left)| [left.as_slice(), if it == "*" { path } else { rest }].concat());
        let found: Vec<String> = through.flat_map(|it| self.resolve(at, at, &it, hops - 1)).collect();
        Some(found).filter(|it| !it.is_empty()).unwrap_or_else(|| vec![at.into()])
    }

    fn cycles(&self) -> BTreeSet<String> {
        let mut cycles = BTreeSet::new();
        // The order of the layers is checked in these two folders.
        let folders = self.sources.keys().map(|it| parent(it)).filter(|it| !["src", "core/src"].contains(it));
        for folder in folders.collect::<BTreeSet<_>>() {
            let ends = self.arrows.keys().filter_map(|(from, to)| Some((member(folder, from)?, member(folder, to)?)));
            let mut paths: BTreeSet<(&str, &str)> = ends.filter(|(from, to)| from != to).collect();
            let modules: BTreeSet<&str> = paths.iter().map(|it| it.0).collect();
            for via in &modules {
                let (before, after) = (paths.iter().filter(|it| it.1 == *via), paths.iter().filter(|it| it.0 == *via));
                let longer: Vec<_> = before.flat_map(|from| after.clone().map(|to| (from.0, to.1))).collect();
                paths.extend(longer);
            }
            for module in &modules {
                let back = |it: &&str| paths.contains(&(*module, *it)) && paths.contains(&(*it, *module));
                let cycle: Vec<&str> = modules.iter().copied().filter(back).collect();
                if !cycle.is_empty() {
                    cycles.insert(format!("{folder}: {}", cycle.join(" ")));
                }
            }
        }
        cycles
    }

    /// The message for a cycle that is not in the list. It leaves out the arrows of listed cycles.
    fn explain(&self, cycle: &str, known: &[&str]) -> Vec<String> {
        let text = if known.iter().any(|it| covers(it, cycle)) { "shrink the list:" } else { "cycle in" };
        let mut lines = vec![format!("{text} {cycle}")];
        let (folder, _) = cycle.split_once(':').unwrap();
        for ((from, to), place) in &self.arrows {
            let ends = [member(folder, from), member(folder, to)].map(Option::unwrap_or_default);
            let pair = format!("{folder}: {}", ends.join(" "));
            if ends.first() != ends.last() && covers(cycle, &pair) && !known.iter().any(|it| covers(it, &pair)) {
                lines.push(format!("    {place}"));
            }
        }
        lines
    }

    /// Problems that are not in the lists, and entries of the lists that no longer occur.
    fn violations(&self, backwards: &[&str], cycles: &[&str]) -> Vec<String> {
        let outside = self.sources.iter().filter(|it| !is_in(it.0, "src/server"));
        let mut violations: Vec<String> = outside.flat_map(|it| it.1.unsafes.clone()).collect();
        let known = backwards.iter().filter_map(|it| it.split_once(" -> "));
        let known = known.flat_map(|(from, all)| all.split(' ').map(move |to| (from.into(), to.into())));
        let known: BTreeSet<(String, String)> = known.collect();
        let level = |module: &str| LAYERS.split(' ').enumerate().filter(|it| is_in(module, it.1)).last().map(|it| it.0);
        let found: BTreeMap<_, _> = self.arrows.iter().filter(|((from, to), _)| level(to) < level(from)).collect();
        let new = found.iter().filter(|it| !known.contains(*it.0));
        violations.extend(new.map(|(_, place)| format!("backwards: {place}")));
        let gone = known.iter().filter(|it| !found.contains_key(it));
        violations.extend(gone.map(|(from, to)| format!("remove it: {from} -> {to}")));
        let found = self.cycles();
        let new = found.iter().filter(|it| !cycles.contains(&it.as_str()));
        violations.extend(new.flat_map(|it| self.explain(it, cycles)));
        let gone = cycles.iter().filter(|known| !found.iter().any(|it| covers(it, known)));
        violations.extend(gone.map(|it| format!("remove it: {it}")));
        violations
    }
}

#[test]
fn the_source_has_only_listed_problems() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut paths, mut files) = (CRATES.map(|it| root.join(it)).to_vec(), Vec::new());
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(path.read_dir().unwrap().map(|it| it.unwrap().path()));
        } else if path.extension().is_some_and(|it| it == "rs") {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            files.push((name.to_owned(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    let graph = Graph::draw(&files.iter().map(|(name, text)| (&**name, &**text)).collect::<Vec<_>>());
    assert!(graph.arrows.len() > 300, "only {} arrows were found", graph.arrows.len());
    let violations = graph.violations(BACKWARDS, CYCLES);
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn a_backwards_arrow_is_found_however_it_is_written() {
    let files = [
        ("src/lib.rs", "pub use redis_lock_core::{lock}; mod server; mod commands;"),
        ("src/load.rs", "use crate::{commands::doc, lock}; fn f() { lock::time::now(doc::NAME) }"),
        ("src/commands/mod.rs", "pub mod doc; pub use doc as renamed; pub use doc::Doc;"),
        ("src/commands/doc.rs", "use crate::server::key::Key; use lazy::lazy; struct Doc;"),
        ("core/src/lock/time.rs", "fn now() {}"),
    ];
    let ways = [
        "use crate::commands::doc::Doc;",
        "use super::{super::{commands::{self}}}; fn f() { commands::doc::open() }",
        "use super::super::commands::Doc as Short;",
        "use crate::commands::*; fn f() { doc::open() }",
        "use crate::{self as top}; fn f() -> top::commands::doc::Doc { todo!() }",
        "fn f(it: impl Into<crate::commands::Doc>) {}",
        "fn f() { assert!(now(|| crate::commands::renamed::Doc { lazy: 1 })) }",
        "macro_rules! m { () => { use $crate::{lock, commands::{doc as x}}; } }",
    ];
    for way in ways {
        let graph = Graph::draw(&[&files[..], &[("src/server/key/mod.rs", way)]].concat());
        assert_eq!(graph.violations(&[], &[]), ["backwards: src/server/key/mod.rs:1 -> src/commands/doc.rs"], "{way}");
    }
}

#[test]
fn a_cycle_is_found_in_a_layer_and_below() {
    let files = [
        ("src/server/a.rs", "mod x; mod y; use x::X; struct A;"),
        ("src/server/a/x.rs", "use super::A;\nuse super::y::Y; struct X;"),
        ("src/server/a/y.rs", "fn f(_: super::X, _: super::super::b::B) {}"),
        ("src/server/b.rs", "use super::c::C; struct B;"),
        ("src/server/c.rs", "use super::b; use super::a::A; struct C;"),
    ];
    let (below, layer) = ("src/server/a: x y", "src/server: a b c");
    let arrow = |from: &str, to: &str| format!("    src/server/{from} -> src/server/{to}");
    let found = Graph::draw(&files);
    assert_eq!(found.violations(&[], &[below, layer]), [""; 0]);
    let text = ["cycle in src/server/a: x y".into(), arrow("a/x.rs:2", "a/y.rs"), arrow("a/y.rs:1", "a/x.rs")];
    assert_eq!(found.violations(&[], &[layer]), text);
    let text = ["cycle in src/server: a b c".into(), arrow("a/y.rs:1", "b.rs"), arrow("c.rs:1", "a.rs")];
    assert_eq!(found.violations(&[], &[below, "src/server: b c"]), text);
    let found = found.violations(&["src/server/b -> src/load"], &[below, "src/server: a b c d", "src/load: a b"]);
    let (shrink, gone) = ("shrink the list: src/server: a b c", "remove it: src/server: a b c d");
    assert_eq!(found, ["remove it: src/server/b -> src/load", shrink, gone, "remove it: src/load: a b"]);
}

#[test]
fn unsafe_is_found_and_tests_and_comments_are_not() {
    let back = "use crate::engine::queue::Queue; unsafe fn f() {}";
    let found = Graph::draw(&[
        ("src/server/key.rs", "unsafe fn f() {}"),
        ("core/src/engine/queue.rs", "//! unsafe\n/// [`super::sessions`]\nmacro_rules! m { () => { unsafe {} } }"),
        ("core/src/lock/time.rs", &format!("fn now() {{}}\n#[cfg(test)]\nmod tests {{\n{back} }}")),
        ("core/src/lock/time_tests.rs", back),
    ]);
    assert_eq!(found.violations(&[], &[]), ["unsafe: core/src/engine/queue.rs:3"]);
}
