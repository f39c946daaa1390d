//! The names of the addresses that an event has.

use crate::escape::Escaped;
use crate::trace::event::{Addresses, TraceEvent};
use crate::trace::shape::Shape;
use crate::trace::symbolize::{Frame, Symbols};
use probe_common::trace::Task;
use std::fmt;
use std::sync::Arc;

/// Names for the addresses of one event.
#[derive(Debug)]
pub(in crate::trace) struct Names<'e> {
    symbols: &'e mut Symbols,
    task: &'e Task,
}

/// An address of a stack, and the functions that it is in, from the innermost on: none, if nobody knows.
pub(in crate::trace) struct Named {
    pub(in crate::trace) address: u64,
    pub(in crate::trace) frames: Arc<[Frame]>,
}

impl<'e> Names<'e> {
    pub(in crate::trace) fn of(event: &TraceEvent<'e>, symbols: &'e mut Symbols) -> Self {
        Self { symbols, task: event.task }
    }

    /// What a stack has.
    pub(in crate::trace) fn stack(
        &mut self,
        shape: &Shape,
        addresses: Addresses<'_>,
    ) -> Vec<Named> {
        let addresses: Vec<u64> = addresses.iter().collect();
        let frames = match shape {
            Shape::UserStack => self.symbols.of_process_stack(self.task, &addresses),
            _ => self.symbols.of_kernel_stack(&addresses),
        };
        let named = addresses.into_iter().zip(frames);
        named.map(|(address, frames)| Named { address, frames }).collect()
    }

    /// The function of the kernel that an address is in, if it is known.
    pub(in crate::trace) fn symbol(&mut self, address: u64) -> Option<Symbol> {
        let frames = self.symbols.of_kernel(address);
        (!frames.is_empty()).then_some(Symbol(frames))
    }
}

/// A function of the kernel: `vfs_read`, or `vfs_read+0x11` for an address in it.
pub(in crate::trace) struct Symbol(Arc<[Frame]>);

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.last() {
            Some(Frame { name, offset: Some(offset), .. }) if *offset != 0 => {
                write!(f, "{}+{offset:#x}", Escaped(name.as_bytes()))
            }
            Some(Frame { name, .. }) => write!(f, "{}", Escaped(name.as_bytes())),
            None => Ok(()),
        }
    }
}
