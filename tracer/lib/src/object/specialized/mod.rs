//! Specialized programs: compiles the table of a probe to instructions, which replace the interpreter of tables in the
//! probe's own program ([`probe_tracer_common::specialized`]).

mod assembler;
mod functions;
mod reader;
mod sieve;
mod values;

use assembler::{Assembler, Code, R0};
use functions::Functions;
use probe_tracer_common::fetch::{FetchField, FetchTable};
use probe_tracer_common::specialized::{GIVE_UP, NOTHING, READ_FIELDS, SEND, SETTLE, SIEVE};

pub(super) use values::Context;

/// A probe, and what its program finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'t> {
    pub(super) table: &'t FetchTable,
    /// The probe's number.
    pub(super) number: u32,
    pub(super) context: Context,
    /// Whether the tracer is in the initial PID namespace.
    pub(super) is_in_initial_namespace: bool,
    /// How many bytes of a hit's tail are for counters.
    pub(super) counters_len: usize,
}

impl Site<'_> {
    /// The instructions of a program without the interpreter, as far as possible, and the `struct bpf_func_info`s of its
    /// functions. `infos` are those that it had, and the size of each in bytes; `name_of` gives the name of the function with a type
    /// id. `None` if the program cannot be specialized.
    pub(super) fn specialize<'n>(
        &self,
        instructions: &[u64],
        (infos, info_len): (&[u8], usize),
        name_of: impl Fn(u32) -> Option<&'n str>,
    ) -> Option<(Vec<u64>, Vec<u8>)> {
        let mut functions = Functions::of(instructions, infos, info_len, name_of)?;
        let sieve = self.sieve()?;
        functions.replace(SIEVE, &sieve.code)?;
        functions.replace(READ_FIELDS, &self.reader(sieve.decides)?)?;
        if sieve.decides && self.table.waiting_fields == 0 && functions.has(SETTLE) {
            functions.replace(SETTLE, &always(SEND)?)?;
            functions.replace(GIVE_UP, &always(NOTHING)?)?;
        }
        Some(functions.join())
    }

    fn field(&self, at: u8) -> &FetchField {
        &self.table.fields[usize::from(at)]
    }
}

/// A function that returns a number.
fn always(number: u32) -> Option<Vec<Code>> {
    let mut asm = Assembler::default();
    asm.set_long(R0, number.into());
    asm.exit();
    asm.finish()
}
