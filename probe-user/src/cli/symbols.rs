//! Names for addresses.

use anyhow::Result;
use probe_user::trace::{Probe, Shape, Symbols, Whose};

/// Names for the addresses that events of these probes have, if they have any.
pub(crate) fn of(probes: &[Probe], is_sealed: bool) -> Result<Symbols> {
    let shapes = probes.iter().flat_map(Probe::fields).map(|field| &field.shape);
    let (mut of_kernel, mut of_processes) = (false, false);
    for shape in shapes {
        of_kernel |= matches!(shape, Shape::KernelStack | Shape::Symbol);
        of_processes |= *shape == Shape::UserStack;
    }
    Ok(match (of_processes, of_kernel) {
        (true, _) if !is_sealed => Symbols::start(Whose::Processes)?,
        (true, _) | (_, true) => Symbols::start(Whose::Kernel)?,
        (false, false) => Symbols::none(),
    })
}
