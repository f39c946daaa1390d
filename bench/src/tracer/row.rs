//! The figures of one tracer, over several rounds.

use super::attached::{Idle, Start};
use super::flood::Flood;
use super::program::Program;
use super::round::Outcomes;
use super::tool::Tool;
use crate::measure::median;
use serde::Serialize;

/// Figures are absent where nothing was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) tool: Tool,
    /// Untraced dd, just before each flood.
    #[serde(rename = "alone_s")]
    pub(super) untraced_s: Option<Figure>,
    pub(super) traced_s: Option<Figure>,
    /// How much longer dd took than untraced.
    pub(super) slowdown_s: Option<Figure>,
    /// The same in CPU time, which excludes other tasks on the machine.
    pub(super) slowdown_cpu_s: Option<Figure>,
    pub(super) wall_s: Option<Figure>,
    /// From the start until all events are text: `wall_s` plus a separate command, if needed.
    pub(super) text_s: Option<Figure>,
    pub(super) cpu_s: Option<Figure>,
    pub(super) flood_kib: Option<Figure>,
    pub(super) idle_kib: Option<Figure>,
    pub(super) first_s: Option<Figure>,
    pub(super) stop_s: Option<Figure>,
    pub(super) idle_stop_s: Option<Figure>,
    /// Nanoseconds that the eBPF program takes for a hit in a flood, and the bytes of its machine code.
    pub(super) hit_ns: Option<Figure>,
    pub(super) code_bytes: Option<Figure>,
    /// Losses in these floods that the tracer reports, in its own unit, summed over all rounds.
    pub(super) hit_losses: Option<u64>,
    /// The same at a steady rate.
    pub(super) paced_ns: Option<Figure>,
    pub(super) paced_losses: Option<u64>,
    /// Nanoseconds to count a hit, in all and beyond what an empty program takes.
    pub(super) count_ns: Option<Figure>,
    pub(super) count_alone_ns: Option<Figure>,
    /// Nanoseconds for a hit of a kprobe that reads what a pointer leads to.
    pub(super) dereference_ns: Option<Figure>,
    /// Nanoseconds that an empty program takes for a hit.
    pub(super) nothing_ns: Option<Figure>,
    /// Summed over all rounds.
    pub(super) printed: u64,
    pub(super) missing: u64,
    pub(super) out_of_order: u64,
    /// Losses that the tracer reports, in its own unit, summed over all rounds.
    pub(super) own_losses: Option<u64>,
    /// Number of floods in which nothing was missing and, for `probe`, the ledger balanced.
    pub(super) whole: usize,
    pub(super) floods: usize,
}

impl Row {
    pub(super) fn new(outcomes: &Outcomes) -> Self {
        let Outcomes { tool, floods, starts, idles, programs, .. } = outcomes;
        let of_floods = |figure: fn(&Flood) -> f64| Figure::of(floods.iter().map(figure));
        let of_starts = |figure: fn(&Start) -> f64| Figure::of(starts.iter().map(figure));
        let of_idles = |figure: fn(&Idle) -> f64| Figure::of(idles.iter().map(figure));
        let of_programs =
            |figure: fn(&Program) -> Option<f64>| Figure::of(programs.iter().filter_map(figure));
        let losses =
            |losses: fn(&Program) -> u64| programs.iter().map(losses).reduce(|sum, one| sum + one);
        Self {
            tool: *tool,
            untraced_s: of_floods(|one| one.untraced_s),
            traced_s: of_floods(|one| one.traced_s),
            slowdown_s: of_floods(Flood::slowdown_s),
            slowdown_cpu_s: of_floods(Flood::slowdown_cpu_s),
            wall_s: of_floods(|one| one.wall_s),
            text_s: of_floods(|one| one.wall_s + one.text_s.unwrap_or(0.0)),
            cpu_s: of_floods(|one| one.cpu_s),
            flood_kib: of_floods(|one| one.peak_kib as f64),
            idle_kib: of_idles(|one| one.peak_kib as f64),
            first_s: of_starts(|one| one.first_s),
            stop_s: of_starts(|one| one.stop_s),
            idle_stop_s: of_idles(|one| one.stop_s),
            hit_ns: of_programs(|one| Some(one.flood.ns)),
            code_bytes: of_programs(|one| Some(one.flood.code_bytes.into())),
            hit_losses: losses(|one| one.flood.losses),
            paced_ns: of_programs(|one| Some(one.paced.ns)),
            paced_losses: losses(|one| one.paced.losses),
            count_ns: of_programs(|one| Some(one.counting?.ns)),
            count_alone_ns: of_programs(|one| Some(one.counting?.ns - one.nothing?.ns)),
            dereference_ns: of_programs(|one| Some(one.dereferencing?.ns)),
            nothing_ns: of_programs(|one| Some(one.nothing?.ns)),
            printed: floods.iter().map(|one| one.printed).sum(),
            missing: floods.iter().map(|one| one.missing).sum(),
            out_of_order: floods.iter().map(|one| one.out_of_order).sum(),
            own_losses: floods.iter().filter_map(|one| one.own_losses).reduce(|sum, one| sum + one),
            whole: floods.iter().filter(|one| one.is_complete()).count(),
            floods: floods.len(),
        }
    }
}

/// The median with its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Figure {
    /// Returns `None` without values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median: median(values)?, least, most })
    }
}

/// Ours divided by theirs; `None` if theirs is 0.
pub(super) fn ratio(ours: Option<Figure>, theirs: Option<Figure>) -> Option<f64> {
    let (ours, theirs) = (ours?.median, theirs?.median);
    (theirs > 0.0).then_some(ours / theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Option<Figure> {
        Figure::of(values.iter().copied())
    }

    #[test]
    fn median_is_in_the_middle() {
        assert_eq!(of(&[3.0, 1.0, 9.0]), Some(Figure { median: 3.0, least: 1.0, most: 9.0 }));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
        assert_eq!(of(&[7.0]), Some(Figure { median: 7.0, least: 7.0, most: 7.0 }));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn ratio_is_ours_to_theirs() {
        assert_eq!(ratio(of(&[1.0]), of(&[4.0])), Some(0.25));
        assert_eq!(ratio(of(&[1.0]), of(&[0.0])), None);
        assert_eq!(ratio(None, of(&[4.0])), None);
        assert_eq!(ratio(of(&[1.0]), None), None);
    }
}
