//! Trace events: the tracer's records, as one type.

use probe_common::process::ProcessExec;
use probe_common::trace::{KprobeHit, Task, TracepointHit};
use probe_common::{RawRecord, Record};

/// A probe was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent<'r> {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The CPU that it was hit on.
    pub cpu: u32,
    /// Who hit it.
    pub task: &'r Task,
    /// Which of the tracer's probes, in the order in which they were given.
    pub probe: u32,
    /// What is told beyond that.
    pub detail: Detail<'r>,
}

/// What a sort of probe tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Detail<'r> {
    /// The argument registers of a kernel function.
    Args(&'r [u64]),
    /// A process executed a file, from its thread `old_tid`.
    Exec {
        /// The file's name as it was given to `execve`.
        filename: &'r [u8],
        /// The thread that called it.
        old_tid: u32,
    },
    /// Nothing.
    None,
}

impl<'r> TraceEvent<'r> {
    /// Reads a record. `None` if it is none of the tracer's, or too short for its kind.
    #[inline]
    pub fn decode(cpu: u32, record: RawRecord<'r>) -> Option<Self> {
        let (task, probe, detail) = match record.kind {
            KprobeHit::KIND => {
                let (hit, _) = record.read::<KprobeHit>()?;
                let args = hit.args.get(..hit.arg_count as usize)?;
                (&hit.task, hit.probe, Detail::Args(args))
            }
            TracepointHit::KIND => {
                let (hit, _) = record.read::<TracepointHit>()?;
                (&hit.task, hit.probe, Detail::None)
            }
            ProcessExec::KIND => {
                let (exec, filename) = record.read::<ProcessExec>()?;
                (&exec.task, exec.probe, Detail::Exec { filename, old_tid: exec.old_tid })
            }
            _ => return None,
        };
        Some(Self { time: record.time, cpu, task, probe, detail })
    }
}
