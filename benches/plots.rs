//! Draws the plots of the README from the newest raw runs on one server: `benches/plots/*.svg`.
//!
//! Bars: what a pair costs. Lines, both axes logarithmic: latency and server CPU of a hand-off against the number of
//! clients that want the lock. Nothing is measured here.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod common;
#[path = "../tests/support/mod.rs"]
mod support;

use anyhow::{Context as _, Result};
use common::median;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SERVER: &str = "redis-7.0.15";
const SIZE: (u32, u32) = (760, 420);
const FONT: &str = "sans-serif";

/// One line of a raw run: column name to text.
type Row = BTreeMap<String, String>;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches").join(name)
}

/// The newest raw run of a bench: the name of its file and its lines.
fn newest(bench: &str) -> Result<(String, Vec<Row>)> {
    let end = format!("-{bench}-{SERVER}.csv");
    let names = std::fs::read_dir(folder("runs"))?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let name = names.filter(|name| name.ends_with(&end)).max().with_context(|| format!("no run ends with {end}"))?;
    let text = std::fs::read_to_string(folder("runs").join(&name))?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(split);
    let header = lines.next().context("an empty run")?;
    let rows = lines.map(|line| header.iter().cloned().zip(line).collect()).collect();
    Ok((name, rows))
}

/// Splits at commas outside of quotes.
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

fn number(row: &Row, column: &str) -> Option<f64> {
    row.get(column)?.parse().ok()
}

/// Medians over the rounds: contender, then number of clients.
fn medians(rows: &[Row], is_wanted: impl Fn(&Row) -> bool, value: impl Fn(&Row) -> Option<f64>) -> Lines {
    let mut found: BTreeMap<String, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_wanted(row)) {
        let clients = number(row, "clients").map_or(0, |clients| format!("{clients:.0}").parse().unwrap_or(0));
        if let Some(value) = value(row) {
            found.entry(row["contender"].clone()).or_default().entry(clients).or_default().push(value);
        }
    }
    let points = |of: BTreeMap<u32, Vec<f64>>| of.into_iter().map(|(at, values)| (at, median(values))).collect();
    found.into_iter().map(|(contender, of)| (contender, points(of))).collect()
}

type Lines = BTreeMap<String, Vec<(u32, f64)>>;

fn pair_bars() -> Result<()> {
    let (run, rows) = newest("pair")?;
    let per_operation = |row: &Row| Some(number(row, "cpu_ns")? / number(row, "operations")? / 1_000.0);
    let found = medians(&rows, |row| row["operation"] == "acquire and release", per_operation);
    let mut bars: Vec<(String, f64)> =
        found.into_iter().filter_map(|(name, points)| Some((name, points.first()?.1))).collect();
    bars.sort_by(|a, b| a.1.total_cmp(&b.1));
    let most = bars.iter().map(|bar| bar.1).fold(0.0, f64::max);
    let path = folder("plots/pair.svg");
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let names: Vec<String> = bars.iter().map(|bar| bar.0.clone()).collect();
    let count = i32::try_from(bars.len())?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("Acquire and release: server CPU, µs ({SERVER})"), (FONT, 18))
        .margin(14)
        .x_label_area_size(36)
        .y_label_area_size(170)
        .build_cartesian_2d(0.0..most * 1.15, (0..count - 1).into_segmented())?;
    let name_of = |at: &SegmentValue<i32>| match at {
        SegmentValue::CenterOf(at) => {
            usize::try_from(*at).ok().and_then(|at| names.get(at).cloned()).unwrap_or_default()
        }
        _ => String::new(),
    };
    chart.configure_mesh().disable_y_mesh().y_label_formatter(&name_of).label_style((FONT, 14)).x_desc(&run).draw()?;
    chart.draw_series((0..count).zip(&bars).map(|(at, (name, value))| {
        let color = if name == "LOCK.*" { RED.mix(0.8) } else { BLUE.mix(0.4) };
        let mut bar =
            Rectangle::new([(0.0, SegmentValue::Exact(at)), (*value, SegmentValue::Exact(at + 1))], color.filled());
        bar.set_margin(6, 6, 0, 0);
        bar
    }))?;
    chart.draw_series(
        (0..count).zip(&bars).map(|(at, (_, value))| {
            Text::new(format!(" {value:.2}"), (*value, SegmentValue::CenterOf(at)), (FONT, 14))
        }),
    )?;
    area.present()?;
    Ok(())
}

fn lines(file: &str, caption: &str, x: &str, run: &str, lines: &Lines) -> Result<()> {
    let all = || lines.values().flatten();
    let ends =
        |of: &mut dyn Iterator<Item = f64>| of.fold((f64::MAX, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    let (low_x, high_x) = ends(&mut all().map(|point| f64::from(point.0)));
    let (low_y, high_y) = ends(&mut all().map(|point| point.1));
    let path = folder("plots").join(file);
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{caption} ({SERVER})"), (FONT, 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d((low_x * 0.9..high_x * 1.1).log_scale(), (low_y * 0.7..high_y * 1.6).log_scale())?;
    chart.configure_mesh().x_desc(format!("{x}; {run}")).label_style((FONT, 13)).draw()?;
    for (at, (contender, points)) in lines.iter().enumerate() {
        let is_ours = contender.starts_with("LOCK.*");
        let color = if contender == "LOCK.*" { RED.to_rgba() } else { Palette99::pick(at + 1).to_rgba() };
        let style = color.stroke_width(if is_ours { 3 } else { 1 });
        let points = points.iter().map(|(clients, value)| (f64::from(*clients), *value));
        chart
            .draw_series(LineSeries::new(points, style).point_size(3))?
            .label(contender)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    let labels = &mut chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3));
    labels.label_font((FONT, 13)).draw()?;
    area.present()?;
    Ok(())
}

fn hand_off_lines() -> Result<()> {
    let (run, rows) = newest("handoff")?;
    let is_hot = |row: &Row| row["part"] == "hot lock";
    let p99 = medians(&rows, is_hot, |row| Some(number(row, "p99_us")? / 1_000.0));
    lines("latency.svg", "A hot lock: 99 % wait no longer than, ms", "clients that want the lock", &run, &p99)?;
    let cpu = |row: &Row| Some(number(row, "cpu_ns")? / number(row, "hand_offs")? / 1_000.0);
    lines(
        "hot-cpu.svg",
        "A hot lock: server CPU of a hand-off, µs",
        "clients that want the lock",
        &run,
        &medians(&rows, is_hot, cpu),
    )?;
    let crowd = medians(&rows, |row| row["part"] == "crowd", cpu);
    lines("crowd-cpu.svg", "Hand-off before a crowd: server CPU, µs", "clients that wait", &run, &crowd)
}

fn main() -> Result<()> {
    std::fs::create_dir_all(folder("plots"))?;
    pair_bars()?;
    hand_off_lines()?;
    println!("plots: {}", folder("plots").display());
    Ok(())
}
