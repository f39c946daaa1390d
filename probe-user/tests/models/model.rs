//! A model of a protocol: its states, and the steps between them.

use std::collections::HashSet;
use std::hash::Hash;

/// Explores every state that is reachable from `first`. `steps` returns the states after a state, or what is
/// wrong with it. Returns the number of states, or what is wrong with one.
pub fn explore<S: Copy + Eq + Hash, N: IntoIterator<Item = S>>(
    first: S,
    steps: impl Fn(S) -> Result<N, String>,
) -> Result<usize, String> {
    let mut seen = HashSet::from([first]);
    let mut to_do = vec![first];
    while let Some(state) = to_do.pop() {
        to_do.extend(steps(state)?.into_iter().filter(|after| seen.insert(*after)));
    }
    Ok(seen.len())
}
