//! The documents' pictures equal what `make pictures` draws from the texts beside them, appear in a document with
//! alternative text, and load nothing from elsewhere.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::{fs, iter};
use xtask::pictures as picture;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of a folder's files with this extension.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names
}

#[test]
fn the_pictures_match_their_texts() {
    let pictures = picture::all(root()).unwrap();
    let names: Vec<&String> = pictures.keys().collect();
    assert_eq!(files(picture::FOLDER, ".svg").iter().collect::<Vec<_>>(), names, "`make pictures` makes these");
    for (name, drawn) in &pictures {
        let kept = fs::read_to_string(root().join(picture::FOLDER).join(name)).unwrap();
        // Not assert_eq: a picture is long.
        assert!(kept == *drawn, "{name} does not match its text: run `make pictures`, and look at it");
    }
}

#[test]
fn each_picture_is_in_a_document_with_alternative_text() {
    let documents: Vec<String> = iter::once("README.md".to_string())
        .chain(files("docs", ".md").iter().map(|name| format!("docs/{name}")))
        .collect();
    let lines: Vec<(String, String)> = documents
        .iter()
        .flat_map(|name| {
            let folder = if name.starts_with("docs/") { "docs/" } else { "" };
            let text = fs::read_to_string(root().join(name)).unwrap();
            text.lines().map(|line| (folder.to_string(), line.to_string())).collect::<Vec<_>>()
        })
        .collect();
    for name in files(picture::FOLDER, ".svg") {
        let is_shown = |(folder, line): &(String, String)| {
            let link = format!("]({})", format!("{}/{name}", picture::FOLDER).trim_start_matches(folder.as_str()));
            line.strip_prefix("![")
                .and_then(|line| line.strip_suffix(&link))
                .is_some_and(|alternative| alternative.len() > 20)
        };
        assert!(lines.iter().any(is_shown), "no document shows {name} with alternative text");
    }
}

#[test]
fn a_picture_needs_nothing_from_elsewhere() {
    for (name, drawn) in picture::all(root()).unwrap() {
        let drawn = drawn.replacen("http://www.w3.org/2000/svg", "", 1);
        for foreign in ["http", "url(", "@import", "@font-face", "<script", "<image", "href"] {
            assert!(!drawn.contains(foreign), "{name} has {foreign}");
        }
        for part in ["<title id=", "<desc id=", "prefers-color-scheme: dark"] {
            assert!(drawn.contains(part), "{name} lacks {part}");
        }
    }
}

const TIMELINE: &str = r#"
title = "one & two"
description = "one < two"
span = 10
[[panel]]
heading = "a heading"
moments = [{ at = 1, text = "now" }]
arrows = [{ at = 5, from = "upper", to = "lower", text = "down" }]
alarm = { from = 2, to = 8, text = "alarm" }
[[panel.lane]]
name = "upper"
bars = [{ from = 0, to = 5, look = "first", text = "held" }]
marks = [{ at = 0, text = "ACQUIRE" }, { at = 5, text = "RELEASE" }]
[[panel.lane]]
name = "lower"
bars = [{ from = 5, to = 10, look = "second" }]
"#;

const TERMINAL: &str = r#"
title = "a session"
description = "a session"
session = "README.md"
notes = [{ line = "(integer)", text = "a token" }]
"#;

/// What is wrong with a text, in one line.
fn error(text: &str) -> Option<String> {
    picture::draw("a.toml", text, root()).err().map(|error| format!("{error:#}").replace('\n', " "))
}

#[test]
fn a_text_that_cannot_be_drawn_is_refused() {
    assert_eq!((error(TIMELINE), error(TERMINAL)), (None, None));
    let long = "x".repeat(80);
    let cases = [
        ("to = 5,", "to = 11,", "the bar \"held\" is out of time".to_string()),
        ("\"held\"", &format!("\"{long}\""), format!("{long:?} is too long for its bar")),
        ("\"alarm\"", &format!("\"{long}\""), format!("{long:?} is too long")),
        ("\"ACQUIRE\"", &format!("\"{long}\""), "there is no room for \"RELEASE\"".into()),
        ("\"RELEASE\"", &format!("\"{long}\""), format!("there is no room for {long:?}")),
        ("name = \"upper\"", &format!("name = {long:?}"), "the name is too long".into()),
        ("to = \"lower\"", "to = \"lowest\"", "no lanes for the arrow \"down\"".into()),
        ("look = \"first\"", "look = \"fist\"", "there is no colour for \"fist\"".into()),
        ("at = 1,", "on = 1,", "unknown field `on`".into()),
    ];
    for (good, bad, found) in cases {
        let error = error(&TIMELINE.replacen(good, bad, 1)).unwrap_or_default();
        assert!(error.contains(&found), "{good}: {error:?} lacks {found:?}");
    }
    let cases = [
        ("\"(integer)\"", "\"(float)\"", "no line of the session is left for the note \"(float)\""),
        ("README.md", "LICENSE", "the document has no session"),
        ("README.md", "README", "the document of the session"),
        ("notes", "note", "unknown field `note`"),
    ];
    for (good, bad, found) in cases {
        let error = error(&TERMINAL.replacen(good, bad, 1)).unwrap_or_default();
        assert!(error.contains(found), "{good}: {error:?} lacks {found:?}");
    }
}

#[test]
fn markup_in_a_picture_is_escaped() {
    let drawn = picture::draw("a.toml", TIMELINE, root()).unwrap();
    assert!(drawn.contains("<title id=\"title\">one &amp; two</title>"), "{drawn}");
    assert!(drawn.contains("<desc id=\"description\">one &lt; two</desc>"), "{drawn}");
}
