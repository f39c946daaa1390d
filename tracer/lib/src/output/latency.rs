//! Latencies of calls: as a table, as JSON lines and as a picture.

use super::flame::{bar, document, text};
use super::json::{self, Exact};
use super::labels::{Beside, labels};
use super::value::Nanoseconds;
use crate::resolve::probe::Probe;
use crate::session::latency::{Latencies, Latency};
use probe_sys::escape::Escaped;
use probe_sys::hint::counted;
use probe_tracer_common::histogram::Histogram;
use serde::Serialize;
use std::cmp::Reverse;
use std::io::{self, Write};
use svg::Document;
use svg::node::Node;

/// How latencies are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LatencyFormat {
    /// A histogram for each function.
    #[default]
    Table,
    /// One JSON object per function, each on a line: `calls`, their `total` in nanoseconds, and in `buckets` the
    /// number of calls in each range of nanoseconds.
    Jsonl,
    /// A picture with a histogram of each function.
    Svg,
}

/// The longest bar of a table, in columns.
const BAR: u64 = 50;

impl Latencies {
    /// Writes the functions that were called, those with the longest total time first.
    ///
    /// # Errors
    ///
    /// Returns errors of `out`.
    pub fn write(&self, format: LatencyFormat, out: &mut dyn Write) -> io::Result<()> {
        let labels = labels(self.probes.iter().map(|(probe, _)| probe), Beside::Nothing);
        let called = self.probes.iter().zip(&labels);
        let mut called: Vec<_> = called
            .map(|((probe, latency), label)| Called { probe, label, latency })
            .filter(|called| called.latency.histogram.calls() > 0)
            .collect();
        called.sort_by_key(|called| (Reverse(called.latency.histogram.total), called.label));
        match format {
            LatencyFormat::Table => called.iter().enumerate().try_for_each(|(at, called)| {
                if at > 0 {
                    writeln!(out)?;
                }
                table(out, called)
            }),
            LatencyFormat::Jsonl => called.iter().try_for_each(|called| line(out, called)),
            LatencyFormat::Svg => svg::write(out, &picture(&called)),
        }
    }
}

/// A function that was called.
struct Called<'l> {
    probe: &'l Probe,
    label: &'l str,
    latency: &'l Latency,
}

/// `vfs_read: 22 calls, 81.4µs in all, mean 3.7µs, half up to 4.1µs, 99 % up to 8.2µs`
fn heading(Called { label, latency, .. }: &Called<'_>) -> String {
    let histogram = &latency.histogram;
    let calls = histogram.calls();
    let up_to = |permille| {
        let bucket = histogram.permille(permille).unwrap_or_default();
        Nanoseconds(Histogram::times(bucket).1)
    };
    format!(
        "{}: {}, {} in all, mean {}, half up to {}, 99 % up to {}",
        Escaped(label.as_bytes()),
        counted(calls, "call"),
        Nanoseconds(histogram.total),
        Nanoseconds(histogram.mean().unwrap_or_default()),
        up_to(500),
        up_to(990),
    )
}

/// The number of calls in the fullest bucket, which scales the bars and is therefore never 0.
fn fullest(histogram: &Histogram) -> u64 {
    histogram.buckets.iter().copied().max().unwrap_or_default().max(1)
}

fn table(out: &mut dyn Write, called: &Called<'_>) -> io::Result<()> {
    let histogram = &called.latency.histogram;
    writeln!(out, "{}", heading(called))?;
    writeln!(out, "{:>12} {:>12} {:>10}", "FROM", "TO", "CALLS")?;
    let most = fullest(histogram);
    for bucket in histogram.used() {
        let (from, to) = Histogram::times(bucket);
        let calls = histogram.buckets[bucket];
        write!(out, "{:>12} {:>12} {calls:>10}", Nanoseconds(from), Nanoseconds(to))?;
        // The fullest bucket has the longest bar, and a few calls still have a short one.
        let width = (u128::from(calls) * u128::from(BAR)).div_ceil(u128::from(most)) as usize;
        if width > 0 {
            write!(out, " {}", "#".repeat(width))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Line<'p> {
    r#type: &'static str,
    probe: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'p str>,
    calls: Exact,
    total: Exact,
    untimed: Exact,
    missed: Exact,
    buckets: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    from: Exact,
    to: Exact,
    calls: Exact,
}

fn line(out: &mut dyn Write, &Called { probe, label, latency }: &Called<'_>) -> io::Result<()> {
    let Latency { histogram, untimed, missed } = latency;
    let site = probe.spec().site();
    let bucket = |bucket| {
        let (from, to) = Histogram::times(bucket);
        Bucket { from: Exact(from), to: Exact(to), calls: Exact(histogram.buckets[bucket]) }
    };
    let mut line = Vec::new();
    json::line(
        &mut line,
        &Line {
            r#type: "latency",
            probe: &site,
            spec: (site != label).then_some(label),
            calls: Exact(histogram.calls()),
            total: Exact(histogram.total),
            untimed: Exact(*untimed),
            missed: Exact(missed.calls()),
            buckets: histogram.used().map(bucket).collect(),
        },
    );
    out.write_all(&line)
}

const WIDTH: f64 = 860.0;
const ROW: f64 = 20.0;
/// The space above the bars of a histogram and below them, in pixels.
const HEAD: f64 = 44.0;
const FOOT: f64 = 16.0;
/// The left margin, where bars begin, and the length of the longest one, in pixels.
const MARGIN: f64 = 12.0;
const BARS: f64 = 220.0;
const LONGEST: f64 = 520.0;
const COLOR: &str = "#1f77b4";

fn picture(called: &[Called<'_>]) -> Document {
    let rows = |latency: &Latency| latency.histogram.used().len() as f64;
    let heights = called.iter().map(|called| HEAD + FOOT + ROW * rows(called.latency));
    let mut picture = document(WIDTH, heights.clone().sum::<f64>().max(HEAD))
        .set("font-family", "sans-serif")
        .set("font-size", 13);
    let mut top = 0.0;
    for (called, height) in called.iter().zip(heights) {
        draw(&mut picture, top, called);
        top += height;
    }
    if called.is_empty() {
        picture.append(text(MARGIN, 26.0, "no calls"));
    }
    picture
}

fn draw(picture: &mut Document, top: f64, called: &Called<'_>) {
    let histogram = &called.latency.histogram;
    let most = fullest(histogram) as f64;
    picture.append(text(MARGIN, top + 26.0, &heading(called)).set("font-size", 15));
    let tops = (0..).map(|row| top + HEAD + ROW * f64::from(row));
    for (bucket, top) in histogram.used().zip(tops) {
        let (from, to) = Histogram::times(bucket);
        let calls = histogram.buckets[bucket];
        let length = (calls as f64 / most * LONGEST).ceil();
        let times = format!("{} to {}", Nanoseconds(from), Nanoseconds(to));
        picture.append(text(MARGIN, top + 13.0, &times));
        picture.append(bar(BARS, top, length, ROW - 4.0, COLOR));
        picture.append(text(BARS + length + 6.0, top + 13.0, &calls.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::probe;
    use crate::session::missed::Missed;

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
        Latencies { probes, not_followed: 0, skipped: Some(0) }.write(format, &mut out).unwrap();
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
    fn the_table_has_a_histogram_for_each_called_function() {
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
    fn json_lines_have_all_calls() {
        let mut some = some();
        some[2].1.untimed = 3;
        some[2].1.missed = Missed { no_return: 2, ..Missed::default() };
        // Larger than JSON numbers can represent exactly.
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
        // One rectangle is the background.
        assert_eq!(picture.matches("<rect ").count(), 1 + 4 + 1);
        assert!(picture.contains("vfs_read: 1001 calls") && picture.contains("4.1µs to 8.2µs"));
        assert!(written(Vec::new(), LatencyFormat::Svg).contains("no calls"));
    }
}
