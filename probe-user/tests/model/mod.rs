//! Models of a protocol: states, and the steps from each to others.

use std::collections::HashSet;
use std::hash::Hash;

/// Goes to every state that there is a way to: `steps` gives those after a state, or what is wrong with
/// it. How many there are, or what is wrong with one.
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
