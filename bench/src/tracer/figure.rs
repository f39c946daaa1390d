//! A figure of several rounds.

use crate::measure::median;
use serde::Serialize;

/// In the middle, and from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Figure {
    /// Of no values there is none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median: median(values)?, least, most })
    }
}

/// What ours is of theirs; nothing, where theirs is nothing.
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
