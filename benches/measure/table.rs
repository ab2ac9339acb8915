//! Markdown tables: documents and the terminal show the same.

/// A Markdown table; the columns after the first `text_columns` are numbers and right-aligned.
pub fn markdown(text_columns: usize, header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(header[column].chars().count()).max(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < text_columns {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rule = |(column, &width): (usize, &usize)| {
        if column < text_columns {
            "-".repeat(width)
        } else {
            format!("{}:", "-".repeat(width - 1))
        }
    };
    let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
    let mut out = line(header.to_vec()) + &line(rules.iter().map(String::as_str).collect());
    for row in rows {
        out += &line(row.iter().map(String::as_str).collect());
    }
    out
}

/// Prints [`markdown`].
pub fn print_table(text_columns: usize, header: &[&str], rows: &[Vec<String>]) {
    println!("\n{}", markdown(text_columns, header, rows));
}
