//! The tracer's eBPF object: embedded, configured, loaded.

use super::error::TraceError;
use crate::sys::bpf;
use aya::programs::{KProbe, Program, RawTracePoint, TracePoint};
use aya::{Ebpf, EbpfLoader};
use probe_common::control::FLUSH_PROGRAM;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/probe.bpf.o");

/// How many probes the programs without cookies can tell apart.
pub(super) const SLOTS: usize = 32;

/// What the programs are told before they are loaded: the globals of `probe-ebpf`.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// Trace this process alone; 0 for all.
    pub(super) only_pid: u32,
    /// Trace this process and its descendants alone; 0 for all.
    pub(super) root_pid: u32,
    /// Do not trace this process.
    pub(super) tracer_pid: u32,
    /// The probe that asked for records of executions.
    pub(super) exec_probe: u32,
    /// Offsets in the data of `sched:sched_process_exec`.
    pub(super) exec_old_pid_at: u32,
    pub(super) exec_filename_at: u32,
    /// `aya_log::Level`; 0 is off.
    pub(super) log_level: u8,
}

/// The object, its maps created.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) ebpf: Ebpf,
}

impl Object {
    pub(super) fn load(config: &Config) -> Result<Self, TraceError> {
        // Without BTF: nothing in the object is relocated against it, and reading it takes long.
        let mut loader = EbpfLoader::new();
        loader
            .btf(None)
            .override_global("ONLY_PID", &config.only_pid, true)
            .override_global("ROOT_PID", &config.root_pid, true)
            .override_global("TRACER_PID", &config.tracer_pid, true)
            .override_global("EXEC_PROBE", &config.exec_probe, true)
            .override_global("EXEC_OLD_PID_AT", &config.exec_old_pid_at, true)
            .override_global("EXEC_FILENAME_AT", &config.exec_filename_at, true)
            .override_global(aya_log::LEVEL, &config.log_level, true);
        Ok(Self { ebpf: loader.load(OBJECT).map_err(TraceError::load)? })
    }

    /// Loads a program, once, and lends its descriptor.
    pub(super) fn program(&mut self, name: &str) -> Result<BorrowedFd<'_>, TraceError> {
        let program = self
            .ebpf
            .program_mut(name)
            .ok_or_else(|| TraceError::load(format!("it has no program {name}")))?;
        if program.fd().is_err() {
            match &mut *program {
                Program::KProbe(program) => KProbe::load(program),
                Program::TracePoint(program) => TracePoint::load(program),
                Program::RawTracePoint(program) => RawTracePoint::load(program),
                _ => return Err(TraceError::load(format!("program {name} is of no known type"))),
            }
            .map_err(TraceError::load)?;
        }
        Ok(program.fd().map_err(TraceError::load)?.as_fd())
    }

    /// Has `cpu` send its block.
    pub(super) fn flush(&self, cpu: u32) -> io::Result<()> {
        let Some(Program::RawTracePoint(program)) = self.ebpf.program(FLUSH_PROGRAM) else {
            return Ok(());
        };
        let fd = program.fd().map_err(io::Error::other)?;
        bpf::run_on(fd.as_fd(), cpu).map(drop)
    }
}
