//! The raw runs in `benches/runs/`, read again.

use super::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// One line of a raw run: column name to text.
pub type Row = BTreeMap<String, String>;

/// A raw run.
pub struct Run {
    /// The name of its file.
    pub name: String,
    /// The lines of its header.
    pub facts: BTreeMap<String, String>,
    pub rows: Vec<Row>,
}

impl Run {
    fn read(name: String) -> Option<Self> {
        let text = fs::read_to_string(root().join("benches/runs").join(&name)).ok()?;
        let facts = text.lines().filter_map(|line| line.strip_prefix("# ")?.split_once(": "));
        let facts = facts.map(|(name, fact)| (name.into(), fact.into())).collect();
        let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(split);
        let header = lines.next()?;
        let row = |line: Vec<String>| {
            assert_eq!(line.len(), header.len(), "{name}: {line:?}");
            header.iter().cloned().zip(line).collect()
        };
        let rows = lines.map(row).collect();
        Some(Self { name, facts, rows })
    }

    /// The newest run of a bench on a server that has such a row. A bench of many servers has none in its name.
    pub fn newest(bench: &str, server: &str, has: impl Fn(&Row) -> bool) -> Option<Self> {
        let end = if server.is_empty() { format!("-{bench}.csv") } else { format!("-{bench}-{server}.csv") };
        let mut names: Vec<String> = names().filter(|name| name.ends_with(&end)).collect();
        names.sort();
        names.into_iter().rev().filter_map(Self::read).find(|run| run.rows.iter().any(&has))
    }

    /// The newest run of a bench on a server.
    pub fn newest_of(bench: &str, server: &str) -> Option<Self> {
        Self::newest(bench, server, |_| true)
    }

    pub fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("unknown", String::as_str)
    }

    /// The rows whose column `name` is `value`.
    pub fn filtered(mut self, name: &str, value: &str) -> Self {
        self.rows.retain(|row| row.get(name).is_some_and(|text| text == value));
        self
    }

    /// The values of the rows, in the order of the rounds.
    pub fn rounds(&self, is_wanted: impl Fn(&Row) -> bool, value: impl Fn(&Row) -> Option<f64>) -> Vec<f64> {
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| is_wanted(row)).collect();
        rows.sort_by_key(|row| number(row, "round").map(f64::to_bits));
        rows.into_iter().filter_map(value).collect()
    }
}

fn names() -> impl Iterator<Item = String> {
    let entries = fs::read_dir(root().join("benches/runs")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

/// The servers that have runs, by the names of the files.
pub fn servers() -> Vec<String> {
    let server = |name: String| {
        let name = name.strip_suffix(".csv")?;
        let at = ["-redis-", "-valkey-"].iter().find_map(|start| name.rfind(start))?;
        Some(name[at + 1..].to_string())
    };
    let mut found: Vec<String> = names().filter_map(server).collect::<BTreeSet<_>>().into_iter().collect();
    found.sort_by_key(|name| {
        let parts = name.split(['-', '.']).filter_map(|part| part.parse::<u32>().ok());
        (name.starts_with("valkey"), parts.collect::<Vec<_>>())
    });
    found
}

/// Splits at commas outside quotes.
fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("never empty").push(letter),
        }
    }
    fields
}

pub fn number(row: &Row, column: &str) -> Option<f64> {
    row.get(column)?.parse().ok()
}

/// CPU time of the server per operation, in µs.
pub fn cpu_us(row: &Row) -> Option<f64> {
    let count = number(row, "operations").or_else(|| number(row, "hand_offs"))?;
    Some(number(row, "cpu_ns")? / count / 1_000.0)
}
