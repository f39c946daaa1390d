//! How long calls took, for people, for programs, and as a picture.

use super::json;
use super::value::Nanoseconds;
use crate::trace::latency::{Latencies, Latency};
use crate::trace::probe::Probe;
use plotters::prelude::*;
use probe_common::histogram::Histogram;
use std::io::{self, Write};

/// How latencies are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LatencyFormat {
    /// A histogram for each function.
    #[default]
    Table,
    /// One JSON object a line, for each function: `calls`, nanoseconds in all (`total`), and in
    /// `buckets`, how many calls took from so many nanoseconds to so many.
    Jsonl,
    /// A picture with a histogram for each function.
    Svg,
}

/// Columns of a bar in a table.
const BAR: u64 = 50;

impl Latencies {
    /// Writes what was called, those functions first that took longest in all.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, format: LatencyFormat, out: &mut dyn Write) -> io::Result<()> {
        let mut called: Vec<_> =
            self.probes.iter().filter(|(_, latency)| latency.histogram.calls() > 0).collect();
        called.sort_by(|(a, a_latency), (b, b_latency)| {
            let (a_total, b_total) = (a_latency.histogram.total, b_latency.histogram.total);
            b_total.cmp(&a_total).then_with(|| a.spec().name().cmp(b.spec().name()))
        });
        match format {
            LatencyFormat::Table => called.iter().enumerate().try_for_each(|(at, called)| {
                if at > 0 {
                    writeln!(out)?;
                }
                table(out, called)
            }),
            LatencyFormat::Jsonl => called.iter().try_for_each(|called| line(out, called)),
            LatencyFormat::Svg => out.write_all(picture(&called)?.as_bytes()),
        }
    }
}

/// `vfs_read: 22 calls, 81.4µs in all, mean 3.7µs, half up to 4.1µs, 99 % up to 8.2µs`
fn heading((probe, latency): &(Probe, Latency)) -> String {
    let histogram = &latency.histogram;
    let calls = histogram.calls();
    let up_to = |permille| {
        let bucket = histogram.permille(permille).unwrap_or_default();
        Nanoseconds(Histogram::times(bucket).1)
    };
    format!(
        "{}: {calls} {}, {} in all, mean {}, half up to {}, 99 % up to {}",
        probe.spec().name(),
        if calls == 1 { "call" } else { "calls" },
        Nanoseconds(histogram.total),
        Nanoseconds(histogram.mean().unwrap_or_default()),
        up_to(500),
        up_to(990),
    )
}

/// How many calls are in the bucket that has the most: what bars are measured by, so never 0.
fn fullest(histogram: &Histogram) -> u64 {
    histogram.buckets.iter().copied().max().unwrap_or_default().max(1)
}

fn table(out: &mut dyn Write, called: &(Probe, Latency)) -> io::Result<()> {
    let histogram = &called.1.histogram;
    writeln!(out, "{}", heading(called))?;
    writeln!(out, "{:>12} {:>12} {:>10}", "FROM", "TO", "CALLS")?;
    let most = fullest(histogram);
    for bucket in histogram.used() {
        let (from, to) = Histogram::times(bucket);
        let calls = histogram.buckets[bucket];
        write!(
            out,
            "{:>12} {:>12} {calls:>10}",
            Nanoseconds(from).to_string(),
            Nanoseconds(to).to_string()
        )?;
        // The most have a whole bar, and few have a bit of it.
        let width = (u128::from(calls) * u128::from(BAR)).div_ceil(u128::from(most)) as usize;
        if width > 0 {
            write!(out, " {}", "#".repeat(width))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, (probe, latency): &(Probe, Latency)) -> io::Result<()> {
    let Latency { histogram, untimed, missed } = latency;
    let mut line = Vec::with_capacity(256);
    line.extend_from_slice(b"{\"type\":\"latency\",\"probe\":");
    json::string(&mut line, probe.spec().name().as_bytes());
    for (name, value) in [
        ("calls", histogram.calls()),
        ("total", histogram.total),
        ("untimed", *untimed),
        ("missed", missed.calls()),
    ] {
        line.extend_from_slice(format!(",\"{name}\":").as_bytes());
        json::unsigned(&mut line, value);
    }
    line.extend_from_slice(b",\"buckets\":[");
    let used = histogram.used();
    for bucket in used.clone() {
        let (from, to) = Histogram::times(bucket);
        let comma = if bucket == used.start { "" } else { "," };
        line.extend_from_slice(format!("{comma}{{\"from\":").as_bytes());
        json::unsigned(&mut line, from);
        line.extend_from_slice(b",\"to\":");
        json::unsigned(&mut line, to);
        line.extend_from_slice(b",\"calls\":");
        json::unsigned(&mut line, histogram.buckets[bucket]);
        line.push(b'}');
    }
    line.extend_from_slice(b"]}\n");
    out.write_all(&line)
}

const WIDTH: u32 = 860;
const ROW: u32 = 20;
/// Above the bars of a histogram, and below them.
const HEAD: u32 = 44;
const FOOT: u32 = 16;
/// Where bars begin, and how long the longest is, in pixels.
const BARS: (i32, f64) = (220, 520.0);
const COLOR: RGBColor = RGBColor(0x1f, 0x77, 0xb4);

fn picture(called: &[&(Probe, Latency)]) -> io::Result<String> {
    let rows = |latency: &Latency| latency.histogram.used().len() as u32;
    let height = called.iter().map(|(_, latency)| HEAD + FOOT + ROW * rows(latency)).sum::<u32>();
    let mut picture = String::new();
    let size = (WIDTH, height.max(HEAD));
    let root = SVGBackend::with_string(&mut picture, size).into_drawing_area();
    let drawn = (|| {
        root.fill(&WHITE)?;
        let mut top = 0;
        for called in called {
            draw(&root, top, called)?;
            top += HEAD + FOOT + ROW * rows(&called.1);
        }
        if called.is_empty() {
            let text = Text::new("nothing was called", (12, 14), ("sans-serif", 15).into_font());
            root.draw(&text)?;
        }
        root.present()
    })();
    drop(root);
    drawn.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(picture)
}

type Drawn<'p> = Result<(), DrawingAreaErrorKind<<SVGBackend<'p> as DrawingBackend>::ErrorType>>;

fn draw<'p>(
    area: &DrawingArea<SVGBackend<'p>, plotters::coord::Shift>,
    top: u32,
    called: &(Probe, Latency),
) -> Drawn<'p> {
    let histogram = &called.1.histogram;
    let most = fullest(histogram);
    let font = |size: u32| ("sans-serif", size).into_font();
    let top = top as i32;
    area.draw(&Text::new(heading(called), (12, top + 14), font(15)))?;
    for (row, bucket) in (0..).zip(histogram.used()) {
        let (from, to) = Histogram::times(bucket);
        let calls = histogram.buckets[bucket];
        let top = top + (HEAD + ROW * row) as i32;
        let length = (calls as f64 / most as f64 * BARS.1).ceil() as i32;
        let times = format!("{} to {}", Nanoseconds(from), Nanoseconds(to));
        area.draw(&Text::new(times, (12, top + 3), font(13)))?;
        let corners = [(BARS.0, top), (BARS.0 + length, top + ROW as i32 - 4)];
        area.draw(&Rectangle::new(corners, COLOR.filled()))?;
        area.draw(&Text::new(calls.to_string(), (BARS.0 + length + 6, top + 3), font(13)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::missed::Missed;
    use crate::trace::output::tests::probe;

    fn latency(calls: &[(u64, u64)]) -> Latency {
        let mut histogram = Histogram::default();
        for (nanoseconds, calls) in calls {
            histogram.buckets[Histogram::bucket_of(*nanoseconds)] += calls;
            histogram.total += calls * nanoseconds;
        }
        Latency { histogram, ..Latency::default() }
    }

    fn written(probes: Vec<(Probe, Latency)>, format: LatencyFormat) -> String {
        let mut out = Vec::new();
        Latencies { probes, not_followed: 0 }.write(format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn some() -> Vec<(Probe, Latency)> {
        vec![
            (probe("vfs_open", &[]), latency(&[(700, 1)])),
            (probe("vfs_stat", &[]), latency(&[])),
            (probe("vfs_read", &[]), latency(&[(900, 1000), (5000, 1)])),
        ]
    }

    #[test]
    fn a_histogram_has_a_bar_for_all_that_were_called() {
        let expected = "\
vfs_read: 1001 calls, 905.0µs in all, mean 904ns, half up to 1.0µs, 99 % up to 1.0µs
        FROM           TO      CALLS
       512ns        1.0µs       1000 ##################################################
       1.0µs        2.0µs          0
       2.0µs        4.1µs          0
       4.1µs        8.2µs          1 #

vfs_open: 1 call, 700ns in all, mean 700ns, half up to 1.0µs, 99 % up to 1.0µs
        FROM           TO      CALLS
       512ns        1.0µs          1 ##################################################
";
        assert_eq!(written(some(), LatencyFormat::Table), expected);
        assert_eq!(written(Vec::new(), LatencyFormat::Table), "");
    }

    #[test]
    fn lines_are_json_with_all_calls() {
        let mut some = some();
        some[2].1.untimed = 3;
        some[2].1.missed = Missed { no_return: 2, ..Missed::default() };
        // Longer than a number of JSON can say.
        some[0].1.histogram.total = 1 << 60;
        let written = written(some, LatencyFormat::Jsonl);
        let lines: Vec<serde_json::Value> =
            written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (&lines[0]["probe"], &lines[0]["total"]),
            (&"vfs_open".into(), &"1152921504606846976".into())
        );
        assert_eq!(
            lines[1],
            serde_json::json!({
                "type": "latency", "probe": "vfs_read", "calls": 1001, "total": 905_000,
                "untimed": 3, "missed": 2,
                "buckets": [
                    {"from": 512, "to": 1023, "calls": 1000}, {"from": 1024, "to": 2047, "calls": 0},
                    {"from": 2048, "to": 4095, "calls": 0}, {"from": 4096, "to": 8191, "calls": 1},
                ],
            })
        );
    }

    #[test]
    fn a_picture_has_a_bar_for_each_bucket() {
        let picture = written(some(), LatencyFormat::Svg);
        assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"));
        // One for the background.
        assert_eq!(picture.matches("<rect ").count(), 1 + 4 + 1);
        assert!(picture.contains("vfs_read: 1001 calls") && picture.contains("4.1µs to 8.2µs"));
        assert!(written(Vec::new(), LatencyFormat::Svg).contains("nothing was called"));
    }
}
