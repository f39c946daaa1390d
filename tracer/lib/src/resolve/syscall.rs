//! The fields of a system call. Its arguments are in the registers of the process at the entry.

use super::buffers::Extent;
use super::call;
use super::names::ValueNames;
use super::shape::Shape;
use super::signature::{Member, NotShown, Signature};
use super::slots;
use super::tracepoint::TracepointFields;
use super::{FieldSource, Reading, ResolveError};
use crate::spec::{At, FieldPath, FieldType};
use crate::tracefs::{FIRST_ARGUMENT, Format};
use probe_tracer_common::fetch::{ARGUMENTS, FetchField};
use std::sync::Arc;

/// The offsets of the arguments in `struct pt_regs`, in bytes (`arch/x86/include/uapi/asm/ptrace.h`): `rdi`, `rsi`,
/// `rdx`, `r10`, `r8` and `r9`.
#[cfg(not(target_arch = "aarch64"))]
const REGISTERS: [i32; ARGUMENTS] = [112, 104, 96, 56, 72, 64];
/// The offsets of the arguments in `struct pt_regs`, in bytes (`arch/arm64/include/uapi/asm/ptrace.h`): `x0` to `x5`.
#[cfg(target_arch = "aarch64")]
const REGISTERS: [i32; ARGUMENTS] = [0, 8, 16, 24, 32, 40];

/// The offsets of the arguments of a 32-bit call: `bx`, `cx`, `dx`, `si`, `di` and `bp`. Of each, the low half counts
/// (`SC_IA32_REGS_TO_ARGS` in `arch/x86/include/asm/syscall_wrapper.h`).
const COMPAT_REGISTERS: [i32; ARGUMENTS] = [40, 88, 96, 104, 112, 32];

/// The fields of a system call at its entry, or of a whole call, including its result.
#[derive(Clone, Debug)]
pub(crate) struct SyscallFields {
    entry: TracepointFields,
    registers: Registers,
}

/// Where the arguments of a system call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registers {
    Native,
    Compat,
}

impl SyscallFields {
    pub(crate) fn new(name: &str, format: Format, is_call: bool) -> Self {
        let tracepoint = format!("sys_enter_{name}");
        let entry = TracepointFields::new("syscalls", &tracepoint, format, is_call);
        Self { entry, registers: Registers::Native }
    }

    /// The fields of a 32-bit call, with the format of the 64-bit call that has the same arguments.
    pub(crate) fn compat(name: &str, format: Format, is_call: bool) -> Self {
        let Self { entry, .. } = Self::new(name, format, is_call);
        Self { entry: entry.with_32_bit_arguments(), registers: Registers::Compat }
    }
}

impl FieldSource for SyscallFields {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let own = self.entry.own(path, ty, ty_at)?;
        Some(own.and_then(|(field, shape)| match self.registers.of(field) {
            Some(field) => Ok((field, shape)),
            None => Err(self.unknown(path)),
        }))
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        let unknown = self.entry.unknown(path);
        let what = unknown.what.replace("this tracepoint has no field", "it has no argument");
        ResolveError { what, ..unknown }
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        let argument = |(name, field, shape)| Some((name, self.registers.of(field)?, shape));
        self.entry.defaults().into_iter().filter_map(argument).collect()
    }

    fn signature(&self) -> Option<Signature> {
        self.entry.signature()
    }

    fn look(&self, path: &FieldPath) -> Option<(String, Vec<Member>)> {
        self.entry.look(path)
    }

    fn names(&self, path: &FieldPath) -> Option<Arc<ValueNames>> {
        self.entry.names(path)
    }

    fn enumerator(&self, name: &str) -> Option<i128> {
        self.entry.enumerator(name)
    }

    fn left_out(&self) -> Vec<NotShown> {
        self.entry.left_out()
    }

    fn extent(&self, argument: &str) -> Option<Extent> {
        self.entry.extent(argument)
    }

    fn is_late(&self, field: &FetchField) -> bool {
        self.entry.is_late(field)
    }
}

impl Registers {
    /// Translates a field of the tracepoint's data to the registers that the function's first argument points to. `None` if
    /// the field is part of the data, but not an argument.
    fn of(self, mut field: FetchField) -> Option<FetchField> {
        if call::is_late(&field) {
            return Some(field);
        }
        let (base, registers) = match self {
            Self::Native => (0, REGISTERS),
            Self::Compat => (slots::LOW_HALVES, COMPAT_REGISTERS),
        };
        let argument =
            usize::try_from(field.offsets[0].checked_sub(FIRST_ARGUMENT as i32)?).ok()?;
        // An argument never extends into the next word.
        let register = registers.get(argument / 8)?;
        field.base = base;
        field.offsets[0] = register + (argument % 8) as i32;
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::plan;
    use crate::resolve::tests::{names, resolve};
    use crate::resolve::tracepoint::tests::openat;
    use probe_tracer_common::fetch::{base, flag, kind};

    fn fields(is_call: bool) -> SyscallFields {
        SyscallFields::new("openat", openat(), is_call)
    }

    #[test]
    fn arguments_are_in_the_registers_of_the_process() {
        for (n, name) in ["dfd", "filename", "flags", "mode"].into_iter().enumerate() {
            let (field, _) = resolve(&fields(false), name).unwrap();
            assert_eq!((field.base, field.offsets[0]), (0, REGISTERS[n]), "{name}");
        }
        let (filename, shape) = resolve(&fields(false), "filename").unwrap();
        assert_eq!((filename.kind, filename.steps, shape), (kind::STRING, 1, Shape::Text));
        assert_eq!(filename.user, 0b10);
        let (result, shape) = resolve(&fields(true), "retval").unwrap();
        assert_eq!((result.base, shape), (base::RETVAL, Shape::Result));
    }

    #[test]
    fn arguments_of_32_bit_calls_are_the_low_halves_of_their_registers() {
        let spec: crate::ProbeSpec = "t:a:b/filename == \"/x\" && dfd == -100/".parse().unwrap();
        for (is_call, count) in [(false, 5), (true, 7)] {
            let source = SyscallFields::compat("openat", openat(), is_call);
            let plan = plan(&source, None, &[], spec.predicate()).unwrap();
            let field = |name: &str| {
                let planned = plan.fields.iter().find(|one| one.field.name == name).unwrap();
                plan.table.fields[usize::from(planned.slot)]
            };
            for (name, register, size) in [("dfd", 40, 4), ("flags", 96, 4), ("mode", 104, 2)] {
                let field = field(name);
                assert_eq!(
                    (field.base, field.offsets[0], field.size),
                    (0, register, size),
                    "{name}"
                );
            }
            assert_eq!(field("dfd").flags, flag::SIGNED);
            let filename = field("filename");
            assert_eq!(
                (filename.base, filename.kind, filename.user),
                (base::FIELD, kind::STRING, 1)
            );
            let pointer = plan.table.fields[usize::from(filename.from)];
            assert_eq!((pointer.base, pointer.offsets[0]), (0, 88));
            assert_eq!((pointer.size, pointer.left, pointer.right, pointer.flags), (4, 32, 32, 0));
            // The string is read at the entry.
            let late = if is_call { 2 } else { 0 };
            assert_eq!(
                (plan.table.field_count, plan.table.late_fields.count_ones()),
                (count, late)
            );
            assert_eq!(plan.table.early_checks, 2);
        }
        let source = SyscallFields::compat("x", Format::default().with_first_arguments(0), false);
        let (last, shape) = resolve(&source, "arg5").unwrap();
        assert_eq!((last.offsets[0], last.size, shape), (32, 4, Shape::Unsigned));
        assert_eq!(names(&source.defaults()).len(), ARGUMENTS);
    }

    #[test]
    fn only_calls_have_results() {
        let entry = ["dfd", "filename", "flags", "mode"];
        assert_eq!(names(&fields(false).defaults()), entry);
        let call = [&entry[..], &["retval", "latency"]].concat();
        assert_eq!(names(&fields(true).defaults()), call);
        for (is_call, field, message) in [
            (false, "retval", "openat has not returned yet"),
            (false, "latency", "so there is no latency; --ret"),
            (true, "retval.next", "retval has no members"),
            (false, "__syscall_nr", "it has no argument __syscall_nr"),
            (false, "file", "it has no argument file"),
        ] {
            let error = resolve(&fields(is_call), field).unwrap_err().what;
            assert!(error.contains(message), "{field}: {error}");
        }
    }
}
