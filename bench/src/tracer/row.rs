//! The figures of one tracer.

use super::figure::Figure;
use super::round::Outcomes;
use super::tool::Tool;
use serde::Serialize;

/// One tracer. A figure is absent where it was not measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) tool: Tool,
    /// dd by itself, right before each flood.
    pub(super) alone_s: Option<Figure>,
    pub(super) traced_s: Option<Figure>,
    /// What dd took longer than right before, by itself.
    pub(super) slowdown_s: Option<Figure>,
    /// The same in CPU time, which others on the machine take no part of.
    pub(super) slowdown_cpu_s: Option<Figure>,
    pub(super) wall_s: Option<Figure>,
    /// From the start until all events are text: `wall_s`, and another command where it takes one.
    pub(super) text_s: Option<Figure>,
    pub(super) cpu_s: Option<Figure>,
    pub(super) flood_kib: Option<Figure>,
    pub(super) idle_kib: Option<Figure>,
    pub(super) first_s: Option<Figure>,
    pub(super) stop_s: Option<Figure>,
    pub(super) idle_stop_s: Option<Figure>,
    /// In all rounds together.
    pub(super) printed: u64,
    pub(super) missing: u64,
    pub(super) out_of_order: u64,
    /// What the tracer says that it lost, in its own unit, in all rounds together.
    pub(super) own_losses: Option<u64>,
    /// In how many floods nothing was missing, and `probe` says so itself.
    pub(super) whole: usize,
    pub(super) floods: usize,
}

impl Row {
    #[cfg(test)]
    pub(super) fn empty(tool: Tool) -> Self {
        Self::new(&Outcomes::new(tool))
    }

    pub(super) fn new(outcomes: &Outcomes) -> Self {
        let Outcomes { tool, floods, starts, idles, .. } = outcomes;
        Self {
            tool: *tool,
            alone_s: Figure::of(floods.iter().map(|one| one.alone_s)),
            traced_s: Figure::of(floods.iter().map(|one| one.traced_s)),
            slowdown_s: Figure::of(floods.iter().map(|one| one.slowdown_s())),
            slowdown_cpu_s: Figure::of(floods.iter().map(|one| one.slowdown_cpu_s())),
            wall_s: Figure::of(floods.iter().map(|one| one.wall_s)),
            text_s: Figure::of(floods.iter().map(|one| one.wall_s + one.text_s.unwrap_or(0.0))),
            cpu_s: Figure::of(floods.iter().map(|one| one.cpu_s)),
            flood_kib: Figure::of(floods.iter().map(|one| one.peak_kib as f64)),
            idle_kib: Figure::of(idles.iter().map(|one| one.peak_kib as f64)),
            first_s: Figure::of(starts.iter().map(|one| one.first_s)),
            stop_s: Figure::of(starts.iter().map(|one| one.stop_s)),
            idle_stop_s: Figure::of(idles.iter().map(|one| one.stop_s)),
            printed: floods.iter().map(|one| one.printed).sum(),
            missing: floods.iter().map(|one| one.missing).sum(),
            out_of_order: floods.iter().map(|one| one.out_of_order).sum(),
            own_losses: floods.iter().filter_map(|one| one.own_losses).reduce(|sum, one| sum + one),
            whole: floods.iter().filter(|one| one.is_whole()).count(),
            floods: floods.len(),
        }
    }
}
