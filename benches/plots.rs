//! Draws the plots of benches/README.md and docs/COMPARED.md from the newest raw runs: `benches/plots/*.svg`.
//!
//! Bars: what a pair costs, on each server; one hot lock beside other systems. Lines, on one server, both axes
//! logarithmic: latency and server CPU of a hand-off against the number of clients that want the lock. Nothing is
//! measured here.

use crate::bounds::list::{OURS, PAIR};
use crate::measure::runs::{cpu_us, number, servers, Row, Run};
use crate::measure::state::State;
use crate::measure::{median, root, Call};
use anyhow::{Context as _, Result};
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeMap;
use std::path::PathBuf;

const SERVER: &str = "redis-7.0.15";
const SIZE: (u32, u32) = (760, 420);
/// The width of the labels of bars.
const LABELS: u32 = 300;
const FONT: &str = "sans-serif";

fn folder() -> PathBuf {
    root().join("benches/plots")
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

/// A bar of the plot of pairs: its label, and what it costs; the name of a server has no bar.
struct Bar {
    label: String,
    value: Option<f64>,
}

/// The cost of a pair in each way, the cheapest first, on each server on which it was measured.
fn pairs() -> Vec<Bar> {
    let mut bars = Vec::new();
    for server in servers() {
        let Some(run) = Run::newest("pair", &server, |row| row["operation"] == PAIR) else { continue };
        let found = medians(&run.rows, |row| row["operation"] == PAIR && State::NoSink.is_of(row), cpu_us);
        let mut of_server: Vec<(String, f64)> =
            found.into_iter().filter_map(|(name, points)| Some((name, points.first()?.1))).collect();
        of_server.sort_by(|a, b| a.1.total_cmp(&b.1));
        bars.push(Bar { label: server, value: None });
        bars.extend(of_server.into_iter().map(|(label, value)| Bar { label, value: Some(value) }));
    }
    // The plot counts bars from the bottom.
    bars.reverse();
    bars
}

/// Bars from the bottom to the top; those of `ours` have another color.
fn bars(file: &str, caption: &str, x: &str, bars: &[Bar], digits: usize, ours: impl Fn(&str) -> bool) -> Result<()> {
    let most = bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
    let path = folder().join(file);
    let count = i32::try_from(bars.len())?;
    let size = (SIZE.0, 90 + 19 * u32::try_from(bars.len())?);
    let area = SVGBackend::new(&path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(caption, (FONT, 18))
        .margin(14)
        .x_label_area_size(36)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(0.0..most * 1.1, (0..count - 1).into_segmented())?;
    let name_of = |at: &SegmentValue<i32>| match at {
        SegmentValue::CenterOf(at) => {
            let bar = usize::try_from(*at).ok().and_then(|at| bars.get(at));
            bar.map(|bar| bar.label.clone()).unwrap_or_default()
        }
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(bars.len())
        .y_label_formatter(&name_of)
        .label_style((FONT, 13))
        .x_desc(x)
        .draw()?;
    let valued = || (0..count).zip(bars).filter_map(|(at, bar)| Some((at, bar, bar.value?)));
    chart.draw_series(valued().map(|(at, bar, value)| {
        let color = if ours(&bar.label) { RED.mix(0.8) } else { BLUE.mix(0.4) };
        let ends = [(0.0, SegmentValue::Exact(at)), (value, SegmentValue::Exact(at + 1))];
        let mut bar = Rectangle::new(ends, color.filled());
        bar.set_margin(3, 3, 0, 0);
        bar
    }))?;
    chart.draw_series(valued().map(|(at, _, value)| {
        let text = format!(" {value:.digits$}");
        let anchored = (FONT, 13).into_font().into_text_style(&area).pos(Pos::new(HPos::Left, VPos::Center));
        Text::new(text, (value, SegmentValue::CenterOf(at)), anchored)
    }))?;
    area.present()?;
    Ok(())
}

fn pair_bars() -> Result<()> {
    let x = "the newest run in benches/runs for each server";
    bars("pair.svg", "Acquire and release: server CPU, µs", x, &pairs(), 2, |label| label == OURS)
}

/// The newest comparisons with other systems.
fn peer_bars() -> Result<()> {
    let plots = [
        ("peers-hand-offs.svg", "hot", "64", "64 clients, one lock: hand-offs/s", "per_second"),
        ("peers-p99.svg", "hot", "64", "64 clients, one lock: 99% wait no longer than, ms", "p99_ms"),
        ("peers-cpu.svg", "hot", "64", "64 clients, one lock: server CPU of a hand-off, µs", "server_us"),
        ("peers-crowd.svg", "crowd", "10000", "10,000 clients, 1,000 locks: hand-offs/s", "per_second"),
    ];
    for (file, part, clients, caption, measure) in plots {
        let is_of = |row: &Row| row["part"] == part && row["clients"] == clients;
        let run = Run::newest("peers", "", is_of).with_context(|| format!("no run of peers: {part}"))?;
        let found = medians(&run.rows, |row| is_of(row) && row["measure"] == measure, |row| number(row, "value"));
        // Zero: it has no server. A lock in one process is the limit, and would hide the others.
        let mut found: Vec<Bar> = found
            .into_iter()
            .map(|(label, points)| Bar { label, value: points.first().map(|point| point.1) })
            .filter(|bar| bar.value.is_some_and(|value| value > 0.0) && !bar.label.contains("one process"))
            .collect();
        found.sort_by(|a, b| b.value.partial_cmp(&a.value).unwrap());
        if measure == "per_second" {
            found.reverse();
        }
        bars(file, caption, &run.name, &found, 0, |label| label.starts_with(OURS))?;
    }
    Ok(())
}

fn lines(file: &str, caption: &str, x: &str, run: &str, lines: &Lines) -> Result<()> {
    let all = || lines.values().flatten();
    let ends =
        |of: &mut dyn Iterator<Item = f64>| of.fold((f64::MAX, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    let (low_x, high_x) = ends(&mut all().map(|point| f64::from(point.0)));
    let (low_y, high_y) = ends(&mut all().map(|point| point.1));
    let path = folder().join(file);
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
        let is_ours = contender.starts_with(OURS);
        let color = if contender == OURS { RED.to_rgba() } else { Palette99::pick(at + 1).to_rgba() };
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

/// The newest run of that part of the bench handoff.
fn part_of(name: &str) -> Result<Run> {
    let run = Run::newest("handoff", SERVER, |row| row["part"] == name);
    Ok(run.with_context(|| format!("no run of {name} on {SERVER}"))?.filtered("part", name))
}

fn hand_off_lines() -> Result<()> {
    let Run { name, rows, .. } = part_of("hot lock")?;
    let p99 = medians(&rows, |_| true, |row| Some(number(row, "p99_us")? / 1_000.0));
    lines("latency.svg", "A hot lock: 99% wait no longer than, ms", "clients that want the lock", &name, &p99)?;
    let cpu = medians(&rows, |_| true, cpu_us);
    lines("hot-cpu.svg", "A hot lock: server CPU of a hand-off, µs", "clients that want the lock", &name, &cpu)?;
    let Run { name, rows, .. } = part_of("crowd")?;
    let crowd = medians(&rows, |_| true, cpu_us);
    lines("crowd-cpu.svg", "Hand-off before a crowd: server CPU, µs", "clients that wait", &name, &crowd)
}

pub fn draw(call: &Call) {
    if call.smoke {
        return;
    }
    std::fs::create_dir_all(folder()).unwrap();
    pair_bars().unwrap();
    peer_bars().unwrap();
    hand_off_lines().unwrap();
    println!("plots: {}", folder().display());
}
