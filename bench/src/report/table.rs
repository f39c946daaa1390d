//! The results as text tables.

use super::Report;
use super::row::Row;
use crate::measure::Latency;
use crate::plan::{PAYLOAD, RATES};
use comfy_table::{CellAlignment, Table, presets};
use std::fmt;

pub(super) fn write(report: &Report, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "Producer: CPU time per record, net of the loop around it. In bursts and at saturation,"
    )?;
    writeln!(f, "each run of the program emits many records.\n")?;
    let measured = report.rows.iter().filter(|row| row.producer_ns_net.is_some());
    writeln!(f, "{}\n", table(measured, &PRODUCER))?;

    writeln!(f, "One producer, {PAYLOAD}-byte payloads. Latency: p50 / p99 / max, in µs.\n")?;
    let mut header = vec!["contender".to_owned(), "drain ns".into(), "walk ns".into()];
    header.extend(RATES.map(|rate| format!("at {rate}/s")));
    header.push("at saturation".into());
    header.push(format!("consumer CPU at {}/s", RATES[2]));
    let mut table = new(&header);
    for row in report.rows.iter().filter(|row| row.producers == 1 && row.payload == PAYLOAD) {
        let mut cells = vec![
            row.contender.clone(),
            show(row.drain_ns, |ns| format!("{ns:.2}")),
            show(row.walk_ns, |ns| format!("{ns:.2}")),
        ];
        let rates = RATES.map(|rate| rate.to_string());
        let columns = rates.iter().map(String::as_str).chain(["saturation"]);
        cells.extend(columns.map(|rate| show(row.latency_ns.get(rate).copied(), latency)));
        let fastest = row.paced.get(&rates[2]).and_then(|paced| paced.consumer_cpu);
        cells.push(show(fastest, |cpus| format!("{:.1} %", cpus * 100.0)));
        table.add_row(cells);
    }
    writeln!(f, "{table}")
}

/// The header of a column, and its cell in each row.
pub(crate) type Column<R> = (&'static str, fn(&R) -> String);

const PRODUCER: [Column<Row>; 11] = [
    ("contender", |row| row.contender.clone()),
    ("CPUs", |row| row.producers.to_string()),
    ("bytes", |row| row.payload.to_string()),
    ("producer ns", |row| show(row.producer_ns_net, |ns| format!("{ns:.1}"))),
    ("lost", |row| lost(row.cost_lost, row.cost_attempted)),
    ("in bursts", |row| show(row.producer_burst_ns_net, |ns| format!("{ns:.1}"))),
    ("delivered/s", |row| show(row.delivered_per_s, |rate| format!("{:.2} M", rate / 1e6))),
    ("lost", |row| lost(row.lost, row.attempted)),
    ("consumer CPU", |row| show(row.consumer_cpu, |cpus| format!("{:.0} %", cpus * 100.0))),
    ("wakeups/s", |row| show(row.wakeups_per_s, |rate| format!("{rate:.0}"))),
    ("resident KiB", |row| show(row.resident_kib, |kib| format!("{kib:.0}"))),
];

/// A table with a line for each row.
pub(crate) fn table<'r, R: 'r>(
    rows: impl IntoIterator<Item = &'r R>,
    columns: &[Column<R>],
) -> Table {
    let headers = columns.iter().map(|(header, _)| *header).collect::<Vec<_>>();
    let mut table = new(&headers);
    for row in rows {
        table.add_row(columns.iter().map(|(_, cell)| cell(row)));
    }
    table
}

/// An empty table. All columns but the first are right-aligned.
fn new<T: AsRef<str>>(headers: &[T]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(headers.iter().map(AsRef::as_ref));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Shows a figure, or `-` without one.
pub(crate) fn show<T>(figure: Option<T>, how: impl FnOnce(T) -> String) -> String {
    figure.map_or("-".to_owned(), how)
}

fn lost(lost: Option<u64>, attempted: Option<u64>) -> String {
    match (lost, attempted) {
        (Some(0), _) => "0".to_owned(),
        (Some(lost), Some(attempted)) => {
            format!("{:.2} %", lost as f64 / attempted as f64 * 100.0)
        }
        _ => "-".to_owned(),
    }
}

fn latency(latency: Latency) -> String {
    let [p50, p99, max] = [latency.p50, latency.p99, latency.max].map(|ns| {
        let us = ns as f64 / 1000.0;
        if us < 100.0 { format!("{us:.1}") } else { format!("{us:.0}") }
    });
    format!("{p50} / {p99} / {max}")
}
