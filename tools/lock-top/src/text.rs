//! Text that fits a terminal: bytes made readable, times in four or five letters, cells of a fixed width.
//!
//! Nothing that a server sends reaches the terminal as it is: what is not printable is escaped, so that a key name
//! cannot move the cursor or change the screen.

use ratatui::text::Span;
use std::fmt::Write as _;

/// Bytes as `redis-cli` shows them: UTF-8 that can be printed as it is, the rest as `\xff`.
pub fn show(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => out.push_str("\\\\"),
                // Letters of no width and those that change the direction would make the cells differ from what is seen.
                _ if letter.is_control() || is_unseen(letter) => out.extend(letter.escape_default()),
                _ => out.push(letter),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Letters that are not seen, or that change what is seen of others.
fn is_unseen(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
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

/// The same; a dash for what is not known.
pub fn time_or_dash(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".into(), time)
}

/// How many cells a text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// At most so many cells of a text; one that is longer ends in `~`.
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

/// A cell: text on the left, cut and filled.
pub fn left(text: &str, cells: usize) -> String {
    let mut out = cut(text, cells);
    out.extend(std::iter::repeat_n(' ', cells.saturating_sub(width(&out))));
    out
}

/// A cell: text on the right, cut and filled.
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
    fn what_cannot_be_printed_is_escaped() {
        assert_eq!(show(b"report"), "report");
        assert_eq!(show("Z\u{fc}rich".as_bytes()), "Z\u{fc}rich");
        assert_eq!(show(b"a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(show(b"a\xff\n\\"), "a\\xff\\n\\\\");
        assert_eq!(show("a\u{202e}b".as_bytes()), "a\\u{202e}b");
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
    fn a_cell_has_its_width_whatever_is_in_it() {
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
