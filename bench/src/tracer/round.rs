//! What is measured, tool by tool, and then all of it again.

use super::flood::{self, Flood};
use super::idle::{self, Idle};
use super::start::{self, Start};
use super::tool::{Tool, Tools};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;

/// So many writes show whether a tracer works here.
const TRIAL: u64 = 1_000;

pub(super) struct Plan {
    pub(super) rounds: usize,
    /// Of dd, in a flood.
    pub(super) writes: u64,
    pub(super) tools: Tools,
    pub(super) scratch: PathBuf,
}

/// What came of a tool, round by round.
pub(super) struct Outcomes {
    pub(super) tool: Tool,
    pub(super) floods: Vec<Flood>,
    pub(super) starts: Vec<Start>,
    pub(super) idles: Vec<Idle>,
    /// What could not be measured, and why.
    pub(super) failures: Vec<String>,
}

impl Plan {
    /// The version of a tool that works here.
    pub(super) fn try_out(&self, tool: Tool) -> Result<String> {
        let mut command = self.tools.version(tool);
        let program = command.get_program().to_owned();
        let told =
            command.output().with_context(|| format!("cannot start {}", program.display()))?;
        let said = [told.stdout, told.stderr].concat();
        let version =
            String::from_utf8_lossy(&said).lines().next_back().unwrap_or_default().to_owned();
        ensure!(told.status.success(), "{version}");
        flood::measure(&self.tools, tool, TRIAL, &self.scratch)?;
        Ok(version)
    }

    /// Every tool in turn, then all of them again; the first round is thrown away.
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
}

impl Outcomes {
    pub(super) fn new(tool: Tool) -> Self {
        let (floods, starts, idles, failures) = <_>::default();
        Self { tool, floods, starts, idles, failures }
    }

    fn measure(&mut self, plan: &Plan) {
        let Plan { tools, scratch, writes, .. } = plan;
        match flood::measure(tools, self.tool, *writes, scratch) {
            Ok(flood) => self.floods.push(flood),
            Err(error) => self.failed("flood", &error),
        }
        if self.tool.prints_events() {
            match start::measure(tools, self.tool, scratch) {
                Ok(start) => self.starts.push(start),
                Err(error) => self.failed("start", &error),
            }
        }
        match idle::measure(tools, self.tool, scratch) {
            Ok(idle) => self.idles.push(idle),
            Err(error) => self.failed("idle", &error),
        }
    }

    fn failed(&mut self, what: &str, error: &anyhow::Error) {
        self.failures.push(format!("{}, {what}: {error:#}", self.tool));
    }
}
