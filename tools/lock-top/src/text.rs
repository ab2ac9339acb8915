//! Text that fits a terminal: readable bytes, times in four or five characters, cells of a fixed width.
//!
//! Nothing from a server reaches the terminal unchanged: unprintable characters are escaped, so that a key name cannot
//! move the cursor or change the screen.

use ratatui::text::Span;
use std::fmt::Write as _;

/// How many zero-width characters may follow a visible one: accents, of which few languages need two.
const MOST_ACCENTS: usize = 2;

/// A key or a channel: `""` if it is empty, to make it visible.
pub fn word(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "\"\"".into();
    }
    show(bytes)
}

/// Bytes as `redis-cli` shows them: printable UTF-8 unchanged, the rest as `\xff`.
pub fn show(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        // No accents are allowed before the first visible character, because they would belong to nothing.
        let mut accents = MOST_ACCENTS;
        for letter in chunk.valid().chars() {
            let has_width = width(letter.encode_utf8(&mut [0; 4])) > 0;
            accents = if has_width { 0 } else { accents.saturating_add(1) };
            match letter {
                '\\' => out.push_str("\\\\"),
                // Zero-width characters and those that change the direction would make the cell count wrong.
                _ if letter.is_control() || is_unseen(letter) || accents > MOST_ACCENTS => {
                    out.extend(letter.escape_default());
                }
                _ => out.push(letter),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Characters that are invisible, or that change how others are shown.
fn is_unseen(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A time, short: `7ms`, `3.2s`, `4m07s`, `2h05m`, `3d04h`.
pub fn time(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{seconds}.{}s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{minutes}m{:02}s", seconds % 60),
        3_600_000..86_400_000 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// Like [`time`], with a dash if unknown.
pub fn time_or_dash(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".into(), time)
}

/// How many cells a text occupies.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// At most this many cells of a text; a longer text ends in `~`.
pub fn cut(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.into();
    }
    let mut out = String::new();
    for letter in text.chars() {
        out.push(letter);
        if width(&out) >= cells {
            out.pop();
            break;
        }
    }
    if cells > 0 {
        out.push('~');
    }
    out
}

/// Breaks a text into lines of at most this many cells. If there are more than `most` lines, the middle ones are
/// replaced by a line that says so.
pub fn fold(text: &str, cells: usize, most: usize) -> Vec<String> {
    let (mut lines, mut filled) = (vec![String::new()], 0_usize);
    for letter in text.chars() {
        let wide = width(letter.encode_utf8(&mut [0; 4]));
        if filled.saturating_add(wide) > cells && filled > 0 {
            lines.push(String::new());
            filled = 0;
        }
        filled = filled.saturating_add(wide);
        if let Some(line) = lines.last_mut() {
            line.push(letter);
        }
    }
    let most = most.max(3);
    let left_out = lines.len().saturating_sub(most.saturating_sub(1));
    if lines.len() > most {
        let first = most / 2;
        lines.splice(first..first.saturating_add(left_out), [format!("~ {left_out} lines ~")]);
    }
    lines
}

/// Breaks a text into lines of at most this many cells, between words if possible.
pub fn wrap(text: &str, cells: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line).saturating_add(1).saturating_add(width(word)) <= cells => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// A cell with left-aligned text, cut and padded.
pub fn left(text: &str, cells: usize) -> String {
    let mut out = cut(text, cells);
    out.extend(std::iter::repeat_n(' ', cells.saturating_sub(width(&out))));
    out
}

/// A cell with right-aligned text, cut and padded.
pub fn right(text: &str, cells: usize) -> String {
    let text = cut(text, cells);
    let mut out = " ".repeat(cells.saturating_sub(width(&text)));
    out.push_str(&text);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_bytes_are_escaped() {
        assert_eq!(show(b"report"), "report");
        assert_eq!(show("Z\u{fc}rich".as_bytes()), "Z\u{fc}rich");
        assert_eq!(show(b"a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(show(b"a\xff\n\\"), "a\\xff\\n\\\\");
        assert_eq!(show("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!((word(b"").as_str(), word(b"a\x07").as_str(), show(b"").as_str()), ("\"\"", "a\\u{7}", ""));
    }

    #[test]
    fn invisible_and_bidirectional_characters_are_escaped() {
        let unseen = "\u{ad}\u{61c}\u{180e}\u{200f}\u{202e}\u{2066}\u{2800}\u{3164}\u{fe0f}\u{feff}\u{e0041}";
        for letter in unseen.chars() {
            assert_eq!(show(format!("a{letter}b").as_bytes()), format!("a{}b", letter.escape_default()));
        }
        // Right-to-left letters stay: they are part of the key.
        assert_eq!(show("\u{5e9}\u{5dc}".as_bytes()), "\u{5e9}\u{5dc}");
    }

    #[test]
    fn a_few_accents_stay_and_more_are_escaped() {
        assert_eq!(show("e\u{301}\u{323}t".as_bytes()), "e\u{301}\u{323}t");
        assert_eq!(show("e\u{301}\u{301}\u{301}".as_bytes()), "e\u{301}\u{301}\\u{301}");
        assert_eq!(show("\u{301}e".as_bytes()), "\\u{301}e");
        let heap = show("\u{301}".repeat(2_048).as_bytes());
        assert_eq!(width(&heap), heap.len());
    }

    #[test]
    fn a_long_text_is_folded_and_keeps_both_ends() {
        assert_eq!(fold("abcdefgh", 3, 9), ["abc", "def", "gh"]);
        assert_eq!(fold("", 3, 9), [""]);
        assert_eq!(fold("\u{4e2d}\u{4e2d}", 3, 9), ["\u{4e2d}", "\u{4e2d}"]);
        let lines = fold(&format!("first{}last", "k".repeat(4_096)), 10, 5);
        assert_eq!((lines.len(), lines[2].as_str()), (5, "~ 407 lines ~"));
        assert!(lines[0].starts_with("first") && lines.concat().ends_with("last"), "{lines:?}");
    }

    #[test]
    fn times_are_short() {
        let cases = [(0, "0ms"), (999, "999ms"), (1_000, "1.0s"), (59_999, "59.9s"), (60_000, "1m00s")];
        for (ms, text) in cases.into_iter().chain([(3_599_999, "59m59s"), (7_500_000, "2h05m"), (274_000_000, "3d04h")])
        {
            assert_eq!(time(ms), text);
        }
        assert_eq!(time_or_dash(None), "-");
    }

    #[test]
    fn a_cell_keeps_its_width_whatever_it_contains() {
        for text in ["", "abc", "abcdefgh", "\u{4e2d}\u{6587}\u{5b57}\u{7b26}", "a\u{4e2d}b\u{6587}"] {
            for cells in 0..10 {
                assert_eq!(width(&left(text, cells)), cells, "{text} in {cells}");
                assert_eq!(width(&right(text, cells)), cells, "{text} in {cells}");
            }
        }
        assert_eq!(left("abcdefgh", 4), "abc~");
        assert_eq!(right("abc", 5), "  abc");
    }
}
