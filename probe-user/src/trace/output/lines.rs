//! The JSON lines that are no events. They are rare: what they have is made when they are written.

use super::form::About;
use crate::consumer::{CpuChange, Dump, Loss, Malformed};
use crate::trace::account::{Account, is_zero};
use crate::trace::missed::Missed;
use crate::trace::probe::Probe;
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of the schema. A new one is for what a program that reads the old one would get wrong:
/// not for members and types of lines that it does not know.
const VERSION: u32 = 1;

/// What is traced, and by what clock.
#[derive(Serialize)]
pub(super) struct TraceLine<'t> {
    r#type: &'static str,
    version: u32,
    program: &'t str,
    kernel: &'t str,
    clock: &'static str,
    realtime_offset: String,
    probes: Vec<ProbeLine<'t>>,
}

#[derive(Serialize)]
struct ProbeLine<'t> {
    spec: String,
    r#type: &'static str,
    probe: &'t str,
    fields: Vec<FieldLine<'t>>,
}

#[derive(Serialize)]
struct FieldLine<'t> {
    name: &'t str,
    shape: &'static str,
}

impl<'t> TraceLine<'t> {
    pub(super) fn of(about: &About<'t>) -> Self {
        let probe = |probe: &'t Probe| ProbeLine {
            spec: probe.spec().to_string(),
            r#type: probe.kind(),
            probe: probe.spec().name(),
            fields: probe
                .fields()
                .map(|field| FieldLine { name: &field.name, shape: field.shape.name() })
                .collect(),
        };
        Self {
            r#type: "trace",
            version: VERSION,
            program: &about.origin.program,
            kernel: &about.origin.kernel,
            clock: "monotonic",
            realtime_offset: about.origin.realtime_offset.to_string(),
            probes: about.probes.iter().map(probe).collect(),
        }
    }
}

/// Records that are missing here.
#[derive(Serialize)]
pub(super) struct LostLine {
    r#type: &'static str,
    cpu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    outputs: u64,
}

impl LostLine {
    pub(super) fn of(loss: &Loss) -> Self {
        let &Loss { cpu, records, count: outputs } = loss;
        Self { r#type: "lost", cpu, records, outputs }
    }
}

/// Bytes that were no records.
#[derive(Serialize)]
pub(super) struct MalformedLine {
    r#type: &'static str,
    cpu: u32,
    bytes: u64,
    reason: String,
}

impl MalformedLine {
    pub(super) fn of(malformed: &Malformed) -> Self {
        let &Malformed { cpu, bytes, reason } = malformed;
        Self { r#type: "malformed", cpu, bytes, reason: reason.to_string() }
    }
}

/// A CPU that came or went.
#[derive(Serialize)]
pub(super) struct CpuLine {
    r#type: &'static str,
    cpu: u32,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl CpuLine {
    pub(super) fn of(change: &CpuChange<'_>) -> Self {
        let (cpu, change, error) = match *change {
            CpuChange::Covered { cpu } => (cpu, "covered", None),
            CpuChange::Offline { cpu } => (cpu, "offline", None),
            CpuChange::Uncovered { cpu, error } => (cpu, "uncovered", Some(error.to_string())),
        };
        Self { r#type: "cpu", cpu, change, error }
    }
}

/// What a flight recorder had, before the events that it had.
#[derive(Serialize)]
pub(super) struct DumpLine {
    r#type: &'static str,
    number: u64,
    records: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    overwritten: Option<u64>,
}

impl DumpLine {
    pub(super) fn of(dump: &Dump) -> Self {
        let &Dump { number, records, overwritten } = dump;
        Self { r#type: "dump", number, records, overwritten }
    }
}

/// What became of everything.
#[derive(Serialize)]
pub(super) struct LedgerLine<'l> {
    r#type: &'static str,
    events: u64,
    attempted: u64,
    handled: u64,
    lost: u64,
    reasons: &'l BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "is_zero")]
    overwritten: u64,
    unread: u64,
    late: u64,
    not_followed: u64,
    missed: &'l [Missed],
    complete: bool,
    confirmed: bool,
    discrepancies: &'l [String],
}

impl<'l> LedgerLine<'l> {
    pub(super) fn of(events: u64, ledger: &'l Account) -> Self {
        Self {
            r#type: "ledger",
            events,
            attempted: ledger.attempted,
            handled: ledger.handled,
            lost: ledger.lost,
            reasons: &ledger.reasons,
            overwritten: ledger.overwritten,
            unread: ledger.unread,
            late: ledger.late,
            not_followed: ledger.not_followed,
            missed: &ledger.missed,
            complete: ledger.complete,
            confirmed: ledger.confirmed,
            discrepancies: &ledger.discrepancies,
        }
    }
}
