//! Lanes of bars over time, from left to right, and arrows between them.

use super::svg::{is_colour, width, Ends, Svg, SMALL};
use anyhow::{ensure, Context as _, Result};
use serde::Deserialize;

const WIDE: f64 = 880.0;
/// Where the names of the lanes begin, and where time begins.
const NAMES: f64 = 20.0;
const BEGIN: f64 = 168.0;
const END: f64 = WIDE - 20.0;
/// The height of a bar, and of a line of text.
const BAR: f64 = 30.0;
const LINE: f64 = 19.0;
/// The space between a text and the line beside it.
const GAP: f64 = 5.0;
/// The space between two lanes, without arrows and with them.
const CLOSE: f64 = 14.0;
const ROOM: f64 = 26.0;

/// The picture's text. Times are in any unit, from 0 to `span`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    title: String,
    description: String,
    span: f64,
    panel: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    heading: String,
    /// Moments in all lanes: dashed lines.
    #[serde(default)]
    moments: Vec<Mark>,
    lane: Vec<Lane>,
    #[serde(default)]
    arrows: Vec<Arrow>,
    /// A period in which something is wrong, in all lanes.
    alarm: Option<Bar>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lane {
    name: String,
    bars: Vec<Bar>,
    /// Texts above the bars, with a line at each moment.
    #[serde(default)]
    marks: Vec<Mark>,
    /// The moments of refused requests: crosses.
    #[serde(default)]
    refused: Vec<f64>,
    /// Names for several bars together, written below them.
    #[serde(default)]
    braces: Vec<Bar>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bar {
    from: f64,
    to: f64,
    /// A colour class; `none`: a line, for times without a key.
    #[serde(default)]
    look: String,
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    at: f64,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrow {
    at: f64,
    /// Names of lanes.
    from: String,
    to: String,
    text: String,
}

impl Timeline {
    /// The picture.
    pub fn draw(&self, source: &str) -> Result<String> {
        let mut svg = Svg::default();
        let mut y = 8.0;
        for panel in &self.panel {
            y = self.panel(&mut svg, panel, y).with_context(|| format!("the panel {:?}", panel.heading))?;
        }
        let high = y + 8.0;
        let mut whole = Svg::default();
        whole.rect("card", (0.5, WIDE - 0.5), (0.5, high - 0.5), 8.0);
        whole.append(&svg);
        Ok(whole.file(source, &self.title, &self.description, (WIDE, high)))
    }

    fn x(&self, at: f64) -> f64 {
        BEGIN + (END - BEGIN) * at / self.span
    }

    fn ends(&self, bar: &Bar) -> Result<Ends> {
        ensure!(0.0 <= bar.from && bar.from < bar.to && bar.to <= self.span, "the bar {:?} is out of time", bar.text);
        Ok((self.x(bar.from), self.x(bar.to)))
    }

    /// Draws a panel that begins at this height. Returns where it ends.
    fn panel(&self, svg: &mut Svg, panel: &Panel, top: f64) -> Result<f64> {
        let mut y = top + 24.0;
        svg.text("bold ink", (NAMES, y), &panel.heading);
        y += 10.0;
        if !panel.moments.is_empty() {
            y += LINE;
        }
        let first = y;
        // The lines under the bars end at the last lane, so its height is needed first.
        let mut lanes = Svg::default();
        let mut heights: Vec<(&str, Ends)> = Vec::new();
        let gap = if panel.arrows.is_empty() { CLOSE } else { ROOM };
        for lane in &panel.lane {
            let bar = self.lane(&mut lanes, lane, &mut y).with_context(|| format!("the lane {:?}", lane.name))?;
            heights.push((&lane.name, bar));
            y += gap;
        }
        y += CLOSE - gap;
        if let Some(alarm) = &panel.alarm {
            let x = self.ends(alarm)?;
            svg.rect("alarm", x, (first, y + LINE), 4.0);
            svg.text("middle bold warning", (f64::midpoint(x.0, x.1), y + 12.0), &alarm.text);
            ensure!(width(&alarm.text, SMALL) < x.1 - x.0, "{:?} is too long", alarm.text);
        }
        for moment in &panel.moments {
            let x = self.x(moment.at);
            svg.path("rule dashed", &[(x, first - LINE + 6.0), (x, y)]);
        }
        self.texts(svg, "soft", &panel.moments, first - GAP)?;
        svg.append(&lanes);
        for arrow in &panel.arrows {
            let height = |name: &str| heights.iter().find(|(lane, _)| *lane == name).map(|(_, height)| *height);
            let (Some(from), Some(to)) = (height(&arrow.from), height(&arrow.to)) else {
                anyhow::bail!("no lanes for the arrow {:?}", arrow.text)
            };
            let is_down = from.0 < to.0;
            let (begin, end) = if is_down { (from.1, to.0) } else { (from.0, to.1) };
            let x = self.x(arrow.at);
            let wing = if is_down { end - 6.0 } else { end + 6.0 };
            svg.path("rule", &[(x, begin), (x, end)]);
            svg.path("rule", &[(x - 4.0, wing), (x, end), (x + 4.0, wing)]);
            let y = if is_down { begin + ROOM / 2.0 } else { begin - ROOM / 2.0 };
            svg.text("ink", (x + GAP + 3.0, y + 4.5), &arrow.text);
        }
        Ok(y + if panel.alarm.is_some() { LINE + 8.0 } else { 4.0 })
    }

    /// Draws a lane that begins at this height, and moves to its end. Returns the height of its bars.
    fn lane(&self, svg: &mut Svg, lane: &Lane, y: &mut f64) -> Result<Ends> {
        if !lane.marks.is_empty() {
            *y += LINE;
        }
        let height = (*y, *y + BAR);
        let base = *y + BAR / 2.0 + 4.5;
        ensure!(width(&lane.name, SMALL) < BEGIN - NAMES, "the name is too long");
        svg.text("ink", (NAMES, base), &lane.name);
        for bar in &lane.bars {
            let x = self.ends(bar)?;
            let (middle, long) = (f64::midpoint(x.0, x.1), width(&bar.text, SMALL));
            ensure!(long < x.1 - x.0, "{:?} is too long for its bar", bar.text);
            ensure!(bar.look == "none" || is_colour(&bar.look), "there is no colour for {:?}", bar.look);
            if bar.look == "none" {
                let y = base - 4.5;
                let around = if long > 0.0 { long / 2.0 + 2.0 } else { 0.0 };
                for (from, to) in [(x.0 + 3.0, middle - around), (middle + around, x.1)] {
                    if from + 8.0 < to {
                        svg.path("faint dashed", &[(from, y), (to, y)]);
                    }
                }
            } else {
                svg.rect(&bar.look, x, height, 4.0);
            }
            if !bar.text.is_empty() {
                svg.text(if bar.look == "none" { "middle soft" } else { "middle ink" }, (middle, base), &bar.text);
            }
        }
        for at in &lane.refused {
            let (x, y) = (self.x(*at), base - 4.5);
            svg.path("rule", &[(x - 4.0, y - 4.0), (x + 4.0, y + 4.0)]);
            svg.path("rule", &[(x - 4.0, y + 4.0), (x + 4.0, y - 4.0)]);
        }
        for mark in &lane.marks {
            let x = self.x(mark.at);
            svg.path("rule", &[(x, height.0 - LINE + 4.0), (x, height.1)]);
        }
        self.texts(svg, "ink", &lane.marks, height.0 - GAP)?;
        *y = height.1;
        for brace in &lane.braces {
            let (x, y) = (self.ends(brace)?, height.1 + GAP);
            svg.path("rule", &[(x.0 + 1.0, y), (x.0 + 1.0, y + 4.0), (x.1 - 1.0, y + 4.0), (x.1 - 1.0, y)]);
            if width(&brace.text, SMALL) < x.1 - x.0 {
                svg.text("middle soft halo", (f64::midpoint(x.0, x.1), y + LINE), &brace.text);
            } else {
                svg.text("soft halo", (x.0 + GAP, y + LINE), &brace.text);
            }
        }
        *y += if lane.braces.is_empty() { 0.0 } else { LINE + GAP };
        Ok(height)
    }

    /// Writes the texts of marks in one line, each beside its mark.
    fn texts(&self, svg: &mut Svg, class: &str, marks: &[Mark], y: f64) -> Result<()> {
        let mut free = BEGIN;
        for mark in marks {
            let begin = self.x(mark.at) + GAP;
            let end = begin + width(&mark.text, SMALL);
            ensure!(free <= begin && end <= END + GAP, "there is no room for {:?}", mark.text);
            svg.text(class, (begin, y), &mark.text);
            free = end;
        }
        Ok(())
    }
}
