//! Any name in any output: of a task, of a probe, of a function and of a field.

use super::clock::Stamp;
use super::jsonl::Jsonl;
use super::perfetto::Perfetto;
use super::table::Table;
use super::tests::{probe, write};
use super::{LatencyFormat, StackFormat, json_line};
use crate::resolve::event::Value;
use crate::resolve::event::tests::Hit;
use crate::resolve::probe::Probe;
use crate::resolve::shape::Shape;
use crate::session::latency::{Latencies, Latency};
use crate::spec::{ProbeSpec, Provider};
use crate::symbolize::stack::{EntryKind, Stack, entry};
use probe_sys::escape::hostile::{hostile, reaches_the_terminal_raw};
use probe_tracer_common::histogram::Histogram;
use proptest::prelude::*;
use std::slice;

/// Whether XML 1.0 allows a character in a document (its production `Char`).
fn is_of_xml(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn is_harmless(text: &str) -> bool {
    !text.chars().any(|char| char != '\n' && reaches_the_terminal_raw(char))
}

/// A probe of this name in a file.
fn named(name: &str, fields: &[(&str, Shape)]) -> Probe {
    let spec: ProbeSpec = "uprobe:/a:b".parse().unwrap();
    let spec = spec.named_as(Provider::Uprobe, name);
    let planned = probe("f", fields);
    Probe::new(spec, planned.slots().to_vec())
}

proptest! {
    #[test]
    fn stacks_are_harmless_and_well_formed(task in hostile(6), function in hostile(20), title in hostile(6)) {
        let entries = [entry(&task, EntryKind::Task), entry(&function, EntryKind::User)];
        let stacks = [(Stack(entries.into()), 7)];
        let title = String::from_utf8_lossy(&title);
        let written = |format: StackFormat| {
            let mut out = Vec::new();
            format.write(&stacks, &title, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let folded = written(StackFormat::Folded);
        let (path, hits) = folded.trim_end().rsplit_once(' ').unwrap();
        prop_assert_eq!((path.split(';').count(), hits), (2, "7"));
        prop_assert_eq!(folded.lines().count(), 1);
        prop_assert_eq!(written(StackFormat::Table).lines().count(), 3);
        for format in [StackFormat::Table, StackFormat::Folded, StackFormat::Svg] {
            let text = written(format);
            prop_assert!(is_harmless(&text) && text.chars().all(is_of_xml), "{text:?}");
        }
    }

    #[test]
    fn latencies_are_harmless_and_well_formed(name in hostile(20)) {
        let mut histogram = Histogram::default();
        histogram.buckets[3] = 1;
        let probe = named(&String::from_utf8_lossy(&name), &[]);
        let probes = vec![(probe, Latency { histogram, ..Latency::default() })];
        let latencies = Latencies { probes, not_followed: 0, skipped: None };
        for (format, lines) in [(LatencyFormat::Table, 3), (LatencyFormat::Jsonl, 1), (LatencyFormat::Svg, 0)] {
            let mut out = Vec::new();
            latencies.write(format, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            prop_assert!(is_harmless(&text) && text.chars().all(is_of_xml), "{text:?}");
            prop_assert!(lines == 0 || text.lines().count() == lines, "{text:?}");
        }
    }

    #[test]
    fn events_are_harmless(comm in hostile(4), name in hostile(20), field in hostile(6)) {
        let (name, field) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&field));
        let probe = named(&name, &[(&field, Shape::Unsigned)]);
        let hit = Hit::new(&comm[..comm.len().min(15)], 0, &[Value::Integer(1)]);
        let (mut table, mut lines, mut timeline) = (Vec::new(), Vec::new(), Vec::new());
        write(&mut Table::new(slice::from_ref(&probe)), &mut table, &hit, &probe, Stamp::Mono);
        write(&mut Jsonl::new(slice::from_ref(&probe)), &mut lines, &hit, &probe, Stamp::Mono);
        write(&mut Perfetto::new(slice::from_ref(&probe)), &mut timeline, &hit, &probe, Stamp::Mono);
        for (text, count) in [(table, 1), (lines, 1), (timeline, 3)] {
            let text = String::from_utf8(text).unwrap();
            prop_assert!(is_harmless(&text), "{text:?}");
            prop_assert_eq!(text.lines().count(), count, "{:?}", text);
        }
    }

    #[test]
    fn a_line_of_json_is_harmless(text in hostile(40)) {
        let text = String::from_utf8_lossy(&text);
        let line = json_line(&text);
        prop_assert!(is_harmless(&line), "{line:?}");
        prop_assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}
