//! Text, boxes, lines and dots, in colours for a light and a dark page.
//!
//! A picture has its own background, so it stays readable if the page and the browser's preference differ.

use std::fmt::Write as _;

/// The size of text in a chart.
pub const SMALL: f64 = 13.0;
/// The width of a letter in a monospaced font, which is more than the average in other fonts.
const LETTER_EM: f64 = 0.602;

const SANS: &str = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";
const MONO: &str = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";

/// A class, its property, and its colours for a light and a dark page.
const COLOURS: &[(&str, &str, &str, &str)] = &[
    ("card", "fill", "#ffffff", "#0d1117"),
    ("card", "stroke", "#d1d9e0", "#3d444d"),
    ("ink", "fill", "#1f2328", "#f0f6fc"),
    ("soft", "fill", "#59636e", "#9198a1"),
    ("rule", "stroke", "#59636e", "#9198a1"),
    ("faint", "stroke", "#c8d1da", "#3d444d"),
    ("halo", "stroke", "#ffffff", "#0d1117"),
    ("first", "fill", "#dafbe1", "#0f3d1f"),
    ("first", "stroke", "#1a7f37", "#3fb950"),
    ("second", "fill", "#ddf4ff", "#0c2d6b"),
    ("second", "stroke", "#0969da", "#58a6ff"),
    ("third", "fill", "#fbefff", "#341a5c"),
    ("third", "stroke", "#8250df", "#ab7df8"),
    ("margin", "fill", "#fff8c5", "#3b2e05"),
    ("margin", "stroke", "#9a6700", "#d29922"),
    ("kept", "fill", "#eff2f5", "#21262d"),
    ("kept", "stroke", "#818b98", "#818b98"),
    ("waits", "fill", "#ffffff", "#0d1117"),
    ("waits", "stroke", "#0969da", "#58a6ff"),
    ("alarm", "fill", "#ffebe9", "#4c1417"),
    ("alarm", "stroke", "#cf222e", "#ff7b72"),
    ("warning", "fill", "#cf222e", "#ff7b72"),
    // A terminal is dark on every page.
    ("screen", "fill", "#0d1117", "#0d1117"),
    ("screen", "stroke", "#d1d9e0", "#3d444d"),
    ("bar", "fill", "#30363d", "#21262d"),
    ("output", "fill", "#d1d7e0", "#d1d7e0"),
    ("typed", "fill", "#f0f6fc", "#f0f6fc"),
    ("comment", "fill", "#9198a1", "#9198a1"),
    ("client-a", "fill", "#7ee787", "#7ee787"),
    ("client-b", "fill", "#79c0ff", "#79c0ff"),
    ("note", "fill", "#e3b341", "#e3b341"),
    ("close", "fill", "#ff5f57", "#ff5f57"),
    ("shrink", "fill", "#febc2e", "#febc2e"),
    ("grow", "fill", "#28c840", "#28c840"),
];

/// The maximum width of a text, in pixels.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|_| size * LETTER_EM).sum()
}

/// Whether there is a colour for this class.
pub fn is_colour(class: &str) -> bool {
    COLOURS.iter().any(|(known, ..)| *known == class)
}

/// The left and right ends of something, or its upper and lower ends.
pub type Ends = (f64, f64);

/// A picture under construction.
#[derive(Default)]
pub struct Svg {
    body: String,
}

impl Svg {
    /// A text: its classes define its anchor, font and colour.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escaped(text);
        let _ = writeln!(self.body, r#"<text class="{class}" x="{}" y="{}">{text}</text>"#, short(x), short(y));
    }

    /// A box with rounded corners.
    pub fn rect(&mut self, class: &str, x: Ends, y: Ends, radius: f64) {
        let (left, top, wide, high) = (short(x.0), short(y.0), short(x.1 - x.0), short(y.1 - y.0));
        let radius = short(radius);
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" x="{left}" y="{top}" width="{wide}" height="{high}" rx="{radius}"/>"#
        );
    }

    /// Lines from point to point.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{} {}", short(*x), short(*y))).collect();
        let _ = writeln!(self.body, r#"<path class="{class}" d="M{}"/>"#, points.join(" L"));
    }

    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        let (x, y, radius) = (short(x), short(y), short(radius));
        let _ = writeln!(self.body, r#"<circle class="{class}" cx="{x}" cy="{y}" r="{radius}"/>"#);
    }

    /// Puts another picture on top of this one.
    pub fn append(&mut self, other: &Self) {
        self.body.push_str(&other.body);
    }

    /// The file: `source` is the path of its text.
    pub fn file(&self, source: &str, title: &str, description: &str, (wide, high): (f64, f64)) -> String {
        let (wide, high) = (short(wide), short(high));
        let (title, description) = (escaped(title), escaped(description));
        let style = style(&self.body);
        let body = &self.body;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="img" aria-labelledby="title description">
<!-- Made by `make pictures` from {source}: change that. -->
<title id="title">{title}</title>
<desc id="description">{description}</desc>
<style>
{style}</style>
{body}</svg>
"#
        )
    }
}

/// The rules of the classes that a picture uses.
fn style(body: &str) -> String {
    let classes: Vec<&str> = body.split("class=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let is_used = |class: &str| classes.iter().any(|used| used.split(' ').any(|used| used == class));
    let used = || COLOURS.iter().filter(|(class, ..)| is_used(class));
    let mut style = format!("text {{ font: {SMALL}px {SANS}; white-space: pre }}\n");
    for (class, rule) in [
        ("mono", format!("font-family: {MONO}")),
        ("middle", "text-anchor: middle".into()),
        ("end", "text-anchor: end".into()),
        ("bold", "font-weight: 600".into()),
        ("halo", "paint-order: stroke; stroke-width: 5".into()),
        ("rule", "fill: none; stroke-width: 1.2".into()),
        ("faint", "fill: none; stroke-width: 1.2".into()),
        ("dashed", "stroke-dasharray: 4 4".into()),
        ("waits", "stroke-dasharray: 4 3".into()),
        ("kept", "stroke-dasharray: 4 3".into()),
    ] {
        if is_used(class) {
            let _ = writeln!(style, ".{class} {{ {rule} }}");
        }
    }
    for (class, property, light, _) in used() {
        let _ = writeln!(style, ".{class} {{ {property}: {light} }}");
    }
    style.push_str("@media (prefers-color-scheme: dark) {\n");
    for (class, property, _, dark) in used().filter(|(_, _, light, dark)| light != dark) {
        let _ = writeln!(style, ".{class} {{ {property}: {dark} }}");
    }
    style.push_str("}\n");
    style
}

/// A number of pixels, to a tenth.
fn short(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
