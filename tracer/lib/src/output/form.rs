//! The interface of an output format.

use super::Origin;
use super::clock::Stamp;
use super::names::Names;
use crate::resolve::event::TraceEvent;
use crate::resolve::probe::Probe;
use crate::resolve::shape::Field;
use crate::session::ledger::{Account, Verdict, is_zero, reason_key};
use crate::session::missed::Missed;
use probe_common::tally::FailureClass;
use probe_user::CpuChange;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// An output format of a trace. Each method appends whole lines to `out`.
pub(super) trait Form: fmt::Debug + Send {
    /// Writes an event of `probe`.
    fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &TraceEvent<'_>,
        probe: &Probe,
        stamp: Stamp<'_>,
        names: &mut Names<'_>,
    );

    /// Writes a notice, if the format has a line for it.
    fn notice(&mut self, out: &mut Vec<u8>, notice: &Notice<'_>);
}

/// Everything in an output that is not an event. It serializes to its line in `events.schema.json`. Notices
/// are rare, so they are built only when they are written.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Notice<'t> {
    /// The start: what is traced, and with which clock.
    Trace {
        version: u32,
        program: &'t str,
        kernel: &'t str,
        clock: &'static str,
        realtime_offset: String,
        probes: Vec<ProbeLine<'t>>,
    },
    /// A gap in the records. Its exact time is unknown.
    Lost(Lost),
    /// Records that failed for another reason than a full ring, up to a second ago.
    Failed(Failed),
    /// Bytes that are not valid records.
    Malformed { cpu: u32, bytes: u64, reason: String },
    /// A CPU that went online or offline.
    Cpu {
        cpu: u32,
        change: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A flight recorder's dump, which follows.
    Dump {
        number: u64,
        records: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        overwritten: Option<u64>,
    },
    /// The end: the ledger, and the number of events written.
    Ledger {
        events: u64,
        #[serde(flatten, with = "Ledger")]
        account: &'t Account,
    },
}

#[derive(Serialize)]
pub(super) struct ProbeLine<'t> {
    spec: String,
    r#type: &'static str,
    probe: Cow<'t, str>,
    fields: Vec<FieldLine<'t>>,
}

#[derive(Serialize)]
struct FieldLine<'t> {
    name: &'t str,
    shape: &'static str,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Lost {
    pub(super) cpu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) records: Option<u64>,
    pub(super) outputs: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Failed {
    pub(super) cpu: u32,
    pub(super) records: u64,
    #[serde(serialize_with = "key")]
    pub(super) reason: FailureClass,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "it is what serde calls")]
fn key<S: Serializer>(class: &FailureClass, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&reason_key(*class))
}

/// The members of an [`Account`] that are published.
#[derive(Serialize)]
#[serde(remote = "Account")]
struct Ledger {
    attempted: u64,
    handled: u64,
    lost: u64,
    reasons: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "is_zero")]
    overwritten: u64,
    unread: u64,
    late: u64,
    not_followed: u64,
    missed: Vec<Missed>,
    skipped: Option<u64>,
    verdict: Verdict,
    confirmed: bool,
    discrepancies: Vec<String>,
}

/// The version of the schema. It grows when a change would mislead readers of the previous version; new members
/// and new types of lines do not count.
const VERSION: u32 = 1;

impl<'t> Notice<'t> {
    pub(super) fn start(probes: &'t [Probe], origin: &'t Origin) -> Self {
        let field = |field: &'t Field| FieldLine { name: &field.name, shape: field.shape.name() };
        let probe = |probe: &'t Probe| ProbeLine {
            spec: probe.spec().to_string(),
            r#type: probe.kind(),
            probe: probe.spec().site(),
            fields: probe.fields().map(field).collect(),
        };
        Self::Trace {
            version: VERSION,
            program: &origin.program,
            kernel: &origin.kernel,
            clock: "monotonic",
            realtime_offset: origin.realtime_offset.to_string(),
            probes: probes.iter().map(probe).collect(),
        }
    }
}

impl From<&CpuChange<'_>> for Notice<'_> {
    fn from(change: &CpuChange<'_>) -> Self {
        let (name, error) = match change {
            CpuChange::Covered { .. } => ("covered", None),
            CpuChange::Offline { .. } => ("offline", None),
            CpuChange::Uncovered { error, .. } => ("uncovered", Some(error.to_string())),
            _ => ("changed", None),
        };
        Self::Cpu { cpu: change.cpu(), change: name, error }
    }
}
