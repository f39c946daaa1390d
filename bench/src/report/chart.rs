//! The chart: producer cost per record, and records delivered per second.

use super::Report;
use crate::contender::Contender;
use anyhow::{Result, anyhow};
use clap::ValueEnum;
use plotters::prelude::*;
use std::path::Path;

const OURS: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const THEIRS: RGBColor = RGBColor(0xb0, 0xb0, 0xb0);
const BAR: u32 = 26;

/// One bar: its label and its length.
struct Bar {
    contender: Contender,
    value: f64,
    label: String,
}

pub(crate) fn draw(report: &Report, path: &Path) -> Result<()> {
    let all = report.machine.cpus;
    let cost = bars(report, 1, |row| row.producer_ns_net, |ns| format!("{ns:.0} ns"));
    let rate =
        bars(report, all, |row| row.delivered_per_s, |rate| format!("{:.1} M/s", rate / 1e6));
    let height = 170 + BAR * (cost.len() + rate.len()) as u32;
    let root = SVGBackend::new(path, (860, height)).into_drawing_area();
    let drawn = (|| {
        root.fill(&WHITE)?;
        let (upper, lower) = root.split_vertically(95 + BAR * cost.len() as u32);
        let what = "Producer cost per record: 1 CPU, 64-byte payload (log scale)";
        panel(&upper, what, &cost)?;
        let what = format!("Records delivered per second: {all} producing CPUs (log scale)");
        panel(&lower, &what, &rate)?;
        let note = report.machine.to_string();
        root.draw(&Text::new(note, (12, height as i32 - 24), ("sans-serif", 13).into_font()))?;
        root.present()
    })();
    drawn.map_err(|error| anyhow!("{error}"))
}

fn bars(
    report: &Report,
    producers: usize,
    of: impl Fn(&super::Row) -> Option<f64>,
    label: impl Fn(f64) -> String,
) -> Vec<Bar> {
    let all = Contender::value_variants().iter();
    all.filter_map(|&contender| {
        let value = of(report.row(contender, producers)?)?;
        Some(Bar { contender, value, label: label(value) })
    })
    .collect()
}

type Drawn<'p> =
    std::result::Result<(), DrawingAreaErrorKind<<SVGBackend<'p> as DrawingBackend>::ErrorType>>;

fn panel<'p>(
    area: &DrawingArea<SVGBackend<'p>, plotters::coord::Shift>,
    title: &str,
    bars: &[Bar],
) -> Drawn<'p> {
    let longest = bars.iter().map(|bar| bar.value).fold(1.0, f64::max).log10();
    let shortest = bars.iter().map(|bar| bar.value).fold(f64::MAX, f64::min).log10() - 0.3;
    area.draw(&Text::new(title.to_owned(), (12, 14), ("sans-serif", 17).into_font()))?;
    for (at, bar) in (0..).zip(bars) {
        let top = 46 + at * BAR as i32;
        let length = ((bar.value.log10() - shortest) / (longest - shortest) * 460.0) as i32;
        let color = if bar.contender.is_ours() { OURS } else { THEIRS };
        let font = ("sans-serif", 14).into_font();
        area.draw(&Text::new(bar.contender.to_string(), (12, top + 3), font.clone()))?;
        area.draw(&Rectangle::new([(270, top), (270 + length, top + 19)], color.filled()))?;
        area.draw(&Text::new(bar.label.clone(), (276 + length, top + 3), font))?;
    }
    Ok(())
}
