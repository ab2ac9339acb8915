//! The user pages show what a server does: their settings, commands and errors; `pages/sessions.rs` tests their
//! sessions. Links lead somewhere, and the README stays short.

mod codes;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use testkit::{Reply, Server};

const README: &str = include_str!("../../README.md");
const COMMANDS: &str = include_str!("../../docs/COMMANDS.md");
const OPERATING: &str = include_str!("../../docs/OPERATING.md");
const CLIENTS: &str = include_str!("../../docs/CLIENTS.md");
const DESIGN: &str = include_str!("../../docs/DESIGN.md");
const ERRORS: &str = include_str!("../../core/src/lock/error.rs");

/// The cells of each row in the table whose rows open with this.
fn rows<'a>(text: &'a str, opening: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().filter(|line| line.starts_with(opening));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The settings of the table: name, default, least and most.
pub fn settings() -> Vec<[&'static str; 4]> {
    let setting = |row: &Vec<&'static str>| {
        let (least, most) = row[2].split_once(" to ").expect("a range");
        [row[0].trim_matches('`'), row[1], least, most]
    };
    rows(OPERATING, "| `lock.").iter().map(setting).collect()
}

#[test]
fn the_settings_match_the_table() {
    let (_server, mut conn) = Server::connected();
    if conn.is_before_7() {
        return;
    }
    let shown: BTreeMap<String, String> =
        settings().iter().map(|[name, default, ..]| (name.to_string(), default.to_string())).collect();
    let reply = conn.execute(&["CONFIG", "GET", "lock.*"]);
    let real: BTreeMap<String, String> = reply.list().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect();
    assert_eq!(shown, real);
}

#[test]
fn the_commands_match_the_server() {
    let (_server, mut conn) = Server::connected();
    let table: BTreeSet<String> = rows(COMMANDS, "| [`LOCK.")
        .iter()
        .map(|row| row[0].split('`').nth(1).expect("a command").to_string())
        .collect();
    // `    LOCK.INFO key [FULL]`, below the command's heading; one line for each form.
    let syntax: BTreeSet<String> = COMMANDS
        .split("\n### ")
        .filter(|section| section.starts_with("LOCK."))
        .flat_map(|section| {
            let mut lines = section.lines();
            let heading = lines.next().unwrap();
            let forms: Vec<_> = lines.skip(1).map_while(|line| line.strip_prefix("    ")).collect();
            assert!(!forms.is_empty(), "{heading} has no syntax");
            for form in &forms {
                assert_eq!(form.split(' ').next(), Some(heading), "the syntax is another command's");
            }
            forms.into_iter().map(str::to_string)
        })
        .collect();
    let help = conn.execute(&["LOCK.HELP"]);
    // The first line has their common part.
    let said: BTreeSet<String> = help.list()[1..]
        .iter()
        .map(Reply::text)
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.replace("<seconds>", "s").replace("<milliseconds>", "ms").replace(['<', '>'], ""))
        .map(|line| format!("LOCK.{line}"))
        .collect();
    assert_eq!(syntax, said);
    let names = |lines: &BTreeSet<String>| -> BTreeSet<String> {
        lines.iter().map(|line| line.split(' ').next().unwrap().to_string()).collect()
    };
    assert_eq!(table, names(&said));
    if !conn.is_before_7() {
        let list = conn.execute(&["COMMAND", "LIST", "FILTERBY", "MODULE", "lock"]);
        assert_eq!(table, list.list().iter().map(|name| name.text().to_uppercase()).collect());
    }
}

/// The error texts in the source, cut at the placeholders.
fn error_texts() -> Vec<Vec<&'static str>> {
    let (product, _) = ERRORS.split_once("#[cfg(test)]").unwrap();
    let literals = product.lines().filter_map(|line| line.split_once('"')?.1.rsplit_once('"').map(|(text, _)| text));
    let texts: Vec<Vec<&str>> = literals.map(|text| text.split(['{', '}']).step_by(2).collect()).collect();
    assert!(texts.len() > 15 && texts.iter().all(|text| has_code(text[0])), "an unexpected source: {texts:?}");
    texts
}

/// Whether a text begins with an error code, as errors do.
fn has_code(text: &str) -> bool {
    const CODES: &str =
        "ERR WRONGTYPE DEADLOCK UNBLOCKED BUSYLOCKS GRACE CLOCK NOREPLICAS READONLY NOPERM CROSSSLOT TRYAGAIN";
    text.split_once(' ').is_some_and(|(code, _)| CODES.split(' ').any(|known| known == code))
}

fn is_text(quoted: &str, pieces: &[&str]) -> bool {
    let mut rest = quoted;
    for (at, piece) in pieces.iter().enumerate() {
        match rest.find(piece) {
            Some(0) => rest = &rest[piece.len()..],
            Some(found) if at > 0 => rest = &rest[found + piece.len()..],
            _ => return false,
        }
    }
    rest.is_empty() || pieces.last() == Some(&"")
}

#[test]
fn quoted_errors_exist_and_the_design_has_all() {
    let texts = error_texts();
    let quoted = |document: &'static str| -> Vec<&'static str> {
        document.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|text| has_code(text)).collect()
    };
    for (name, document) in [("docs/COMMANDS.md", COMMANDS), ("docs/DESIGN.md", DESIGN)] {
        for text in quoted(document) {
            let is_it = |known: &Vec<&str>| match text.strip_suffix(" ...") {
                Some(opening) => known[0].starts_with(opening),
                None => is_text(text, known),
            };
            assert!(texts.iter().any(is_it), "{name}: there is no error '{text}'");
        }
    }
    let designed = quoted(DESIGN);
    for known in &texts {
        assert!(
            designed.iter().any(|text| is_text(text, known)),
            "docs/DESIGN.md lacks the error '{}'",
            known.join("...")
        );
    }
}

/// All pages: those at the top level, and those in the folders that have some.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["", "docs", "examples", "benches"].map(|folder| root.join(folder));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// A heading's anchor.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
}

#[test]
fn links_lead_somewhere() {
    let mut checked = 0;
    for page in pages() {
        let name = page.display();
        let document = std::fs::read_to_string(&page).unwrap();
        for link in document.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, wanted) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let path = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(path.exists(), "{name}: {link} is not there");
            checked += 1;
            let Some(wanted) = wanted else { continue };
            let text = std::fs::read_to_string(&path).unwrap();
            let found = text.lines().any(|line| line.starts_with('#') && anchor(line) == wanted);
            assert!(found, "{name}: there is no heading for {link}");
        }
    }
    assert!(checked > 100, "only {checked} links were found");
}

#[test]
fn the_readme_is_short_and_links_every_page() {
    assert!(README.lines().count() <= 250, "the README has {} lines", README.lines().count());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for page in pages() {
        let name = page.strip_prefix(root).unwrap().to_str().unwrap();
        assert!(name == "README.md" || README.contains(&format!("]({name})")), "the README does not link {name}");
    }
}
