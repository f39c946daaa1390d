//! Names of the values in an event.

use crate::resolve::event::{Addresses, TraceEvent, Value};
use crate::resolve::names::ValueNames;
use crate::resolve::shape::{Field, Shape};
use crate::symbolize::stack::tracing;
use crate::symbolize::{Frame, Symbols};
use probe_sys::escape::Escaped;
use probe_tracer_common::trace::Task;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Looks up the values of one event.
#[derive(Debug)]
pub(crate) struct Names<'e> {
    symbols: &'e mut Symbols,
    task: &'e Task,
    time: u64,
}

/// An address of a stack and its functions, the innermost first; empty if they are unknown.
pub(crate) type Named = (u64, Arc<[Frame]>);

impl<'e> Names<'e> {
    pub(crate) fn of(event: &TraceEvent<'e>, symbols: &'e mut Symbols) -> Self {
        Self { symbols, task: event.task, time: event.time }
    }

    /// The addresses of a stack, with their functions.
    pub(crate) fn stack(&mut self, shape: &Shape, addresses: Addresses<'_>) -> Vec<Named> {
        let addresses: Vec<u64> = addresses.iter().collect();
        let (frames, left_out) = match shape {
            Shape::UserStack => {
                (self.symbols.of_process_stack(self.task, self.time, &addresses), 0)
            }
            _ => {
                let frames = self.symbols.of_kernel_stack(self.time, &addresses);
                let left_out = tracing(&frames);
                (frames, left_out)
            }
        };
        addresses.into_iter().zip(frames).skip(left_out).collect()
    }

    /// What a value means, if its field has names and the value has one.
    pub(crate) fn value<'f>(&mut self, field: &'f Field, value: Value<'_>) -> Option<Cow<'f, str>> {
        match (&**field.names.as_ref()?, value) {
            (ValueNames::Function, Value::Integer(address)) => {
                self.symbol(address).map(|symbol| symbol.to_string().into())
            }
            (names, Value::Integer(value)) => names.of_integer(value, &field.shape),
            (names, Value::Bytes(bytes)) => names.of_bytes(bytes).map(Cow::Owned),
            _ => None,
        }
    }

    /// The kernel function at an address, if it is known.
    pub(crate) fn symbol(&mut self, address: u64) -> Option<Symbol> {
        let frames = self.symbols.of_kernel(self.time, address);
        (!frames.is_empty()).then_some(Symbol(frames))
    }
}

/// A kernel function: `vfs_read`, or `vfs_read+0x11` for an address inside it.
pub(crate) struct Symbol(Arc<[Frame]>);

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
