//! Rounds over all tools and measurements.

use super::attached::{Idle, Start};
use super::flood::Flood;
use super::program::Program;
use super::tool::{Tool, Tools};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::PathBuf;

/// Number of writes that shows whether a tracer works here.
const TRIAL: u64 = 1_000;
/// Bytes of `probe`'s ring per CPU: its default on machines with few CPUs, and the largest size to try.
const OWN: u64 = 8 << 20;
const LARGEST: u64 = 64 << 20;

pub(super) struct Plan {
    pub(super) rounds: usize,
    /// Writes by dd in a flood.
    pub(super) writes: u64,
    pub(super) tools: Tools,
    pub(super) scratch: PathBuf,
}

/// The measurements of one tool, round by round.
pub(super) struct Outcomes {
    pub(super) tool: Tool,
    pub(super) floods: Vec<Flood>,
    pub(super) starts: Vec<Start>,
    pub(super) idles: Vec<Idle>,
    pub(super) programs: Vec<Program>,
    /// Failed measurements, with the error.
    pub(super) failures: Vec<String>,
}

/// The ring size with which `probe` loses nothing.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Enough {
    /// Bytes per CPU (`-B`).
    pub(super) bytes: u64,
    /// Number of consecutive floods without a missing event.
    pub(super) floods: usize,
}

impl Plan {
    /// The version of a tool that works here.
    pub(super) fn try_out(&self, tool: Tool) -> Result<String> {
        let mut command = self.tools.version(tool);
        let program = command.get_program().to_owned();
        let output = command.output();
        let output = output.with_context(|| format!("cannot start {}", program.display()))?;
        let printed = [output.stdout, output.stderr].concat();
        let version =
            String::from_utf8_lossy(&printed).lines().next_back().unwrap_or_default().to_owned();
        ensure!(output.status.success(), "{version}");
        Flood::measure(&self.tools, tool, TRIAL, &self.scratch)?;
        Ok(version)
    }

    /// Measures one tool after the other, round by round, and discards the first round.
    pub(super) fn run(&self, tools: &[Tool]) -> Result<Vec<Outcomes>> {
        let mut outcomes = tools.iter().copied().map(Outcomes::new).collect::<Vec<_>>();
        let style = ProgressStyle::with_template("{elapsed} [{wide_bar}] {pos}/{len} {msg}")?;
        let steps = (outcomes.len() * (self.rounds + 1)) as u64;
        let bar = ProgressBar::new(steps).with_style(style);
        for round in 0..=self.rounds {
            for one in &mut outcomes {
                bar.set_message(one.tool.to_string());
                if round == 0 {
                    Outcomes::new(one.tool).measure(self);
                } else {
                    one.measure(self);
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(outcomes)
    }

    /// The smallest ring with which `probe` loses nothing in as many floods as there are rounds. Returns `None` if
    /// nothing was missing before, or if no size is enough.
    pub(super) fn enough(&self, outcomes: &[Outcomes]) -> Result<Option<Enough>> {
        let mut floods =
            outcomes.iter().filter(|one| one.tool == Tool::Probe).flat_map(|one| &one.floods);
        if floods.all(Flood::is_complete) {
            return Ok(None);
        }
        let sizes = std::iter::successors(Some(OWN * 2), |bytes| Some(bytes * 2));
        for bytes in sizes.take_while(|bytes| *bytes <= LARGEST) {
            let tools = Tools { ring: Some(bytes), ..self.tools.clone() };
            let mut floods = 0;
            while floods < self.rounds
                && Flood::measure(&tools, Tool::Probe, self.writes, &self.scratch)?.is_complete()
            {
                floods += 1;
            }
            if floods == self.rounds {
                return Ok(Some(Enough { bytes, floods }));
            }
        }
        Ok(None)
    }
}

impl Outcomes {
    pub(super) fn new(tool: Tool) -> Self {
        let (floods, starts, idles, programs, failures) = <_>::default();
        Self { tool, floods, starts, idles, programs, failures }
    }

    fn measure(&mut self, plan: &Plan) {
        let Plan { tools, scratch, writes, .. } = plan;
        let (tool, failures) = (self.tool, &mut self.failures);
        let mut failed =
            |what, error: anyhow::Error| failures.push(format!("{tool}, {what}: {error:#}"));
        match Flood::measure(tools, tool, *writes, scratch) {
            Ok(flood) => self.floods.push(flood),
            Err(error) => failed("flood", error),
        }
        if tool.prints_events() {
            match Start::measure(tools, tool, scratch) {
                Ok(start) => self.starts.push(start),
                Err(error) => failed("start", error),
            }
        }
        match Idle::measure(tools, tool, scratch) {
            Ok(idle) => self.idles.push(idle),
            Err(error) => failed("idle", error),
        }
        if tool.has_program() {
            match Program::measure(tools, tool, scratch) {
                Ok(program) => self.programs.push(program),
                Err(error) => failed("program", error),
            }
        }
    }
}
