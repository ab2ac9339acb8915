//! A document's session, as shown in a terminal.

use super::svg::{width, Svg};
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::path::Path;

const SIZE: f64 = 13.0;
const LINE: f64 = 21.0;
const SIDE: f64 = 20.0;
/// The bar with the title.
const BAR: f64 = 34.0;

/// The picture's text: the session itself is in the document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    title: String,
    description: String,
    /// The document; its first block fenced as `console` is shown.
    session: String,
    #[serde(default)]
    notes: Vec<Note>,
}

/// A remark beside the first line that begins with this text, after the previous note's line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    line: String,
    text: String,
}

/// The client's letter at the start of a line, and whether it sends or receives.
fn opening(line: &str) -> Option<(char, char)> {
    let mut letters = line.chars();
    match (letters.next()?, letters.next()?, letters.next()?) {
        (client @ 'A'..='Z', sign @ ('>' | '<'), ' ') => Some((client, sign)),
        _ => None,
    }
}

/// The duration that redis-cli prints after a wait. It is not part of the reply.
fn is_duration(line: &str) -> bool {
    line.starts_with('(') && line.ends_with("s)") && !line.contains(' ')
}

impl Terminal {
    /// The picture.
    pub fn draw(&self, source: &str, root: &Path) -> Result<String> {
        let document = std::fs::read_to_string(root.join(&self.session)).context("the document of the session")?;
        let block = document.split("\n```console\n").nth(1).and_then(|rest| rest.split("\n```").next());
        let lines: Vec<&str> =
            block.context("the document has no session")?.lines().filter(|line| !is_duration(line)).collect();
        let mut notes = self.notes.iter().peekable();
        // To the right of the longest line that has a note.
        let is_noted = |line: &str| self.notes.iter().any(|note| line.starts_with(&note.line));
        let noted = lines.iter().filter(|line| is_noted(line)).map(|line| width(line, SIZE)).fold(0.0, f64::max);
        let x_note = SIDE + noted + 5.0 * SIZE;
        let longest = lines.iter().map(|line| SIDE + width(line, SIZE)).fold(0.0, f64::max);
        let longest_note = self.notes.iter().map(|note| x_note + width(&note.text, SIZE)).fold(longest, f64::max);
        let wide = longest_note + SIDE;

        let mut svg = Svg::default();
        let mut body = Svg::default();
        let mut y = BAR + LINE;
        let mut indent = SIDE;
        let mut is_after_comment = false;
        for line in lines {
            let step = opening(line);
            let is_comment = line.starts_with("# ");
            if is_comment || step.is_some_and(|(_, sign)| sign == '>') {
                indent = SIDE;
                y += if is_after_comment { 0.0 } else { LINE * 0.4 };
            }
            is_after_comment = is_comment;
            if let Some((client, sign)) = step {
                let class = format!("mono bold client-{}", client.to_ascii_lowercase());
                let (prompt, rest) = line.split_at(2);
                let after = SIDE + width("A> ", SIZE);
                body.text(&class, (SIDE, y), prompt);
                body.text(if sign == '>' { "mono typed" } else { "mono output" }, (after, y), rest.trim_start());
                // The lines of a reply are aligned.
                indent = if sign == '<' { after } else { SIDE };
            } else {
                body.text(if is_comment { "mono comment" } else { "mono output" }, (indent, y), line);
            }
            if let Some(note) = notes.next_if(|note| line.starts_with(&note.line)) {
                body.text("note", (x_note, y), &note.text);
            }
            y += LINE;
        }
        if let Some(note) = notes.next() {
            anyhow::bail!("no line of the session is left for the note {:?}", note.line);
        }
        let high = y + LINE * 0.1;
        svg.rect("screen", (0.5, wide - 0.5), (0.5, high - 0.5), 8.0);
        svg.rect("bar", (1.0, wide - 1.0), (1.0, BAR), 8.0);
        for (class, x) in [("close", 20.0), ("shrink", 40.0), ("grow", 60.0)] {
            svg.dot(class, (x, BAR / 2.0), 6.0);
        }
        svg.text("comment middle", (wide / 2.0, BAR / 2.0 + 4.5), &self.title);
        svg.append(&body);
        Ok(svg.file(source, &self.title, &self.description, (wide, high)))
    }
}
