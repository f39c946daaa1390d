//! The numbers of system calls, as the tracepoints of all system calls have them.

use super::names::{ValueNames, call_numbers};
use super::reach::Reach;
use crate::kernel::btf::{Btf, Kind};
use probe_tracer_common::fetch::{FetchField, base};
use std::sync::Arc;

/// The names of numbers, and how to tell that a call has none of them.
#[derive(Clone, Debug)]
pub(super) struct CallNumber {
    pub(super) names: Arc<ValueNames>,
    /// Not 0 in a 32-bit call, which has a number of another list. 64-bit programs can make such calls, too.
    pub(super) is_32_bit: FetchField,
}

/// The bit of `thread_info.status` that is set during a 32-bit call (`TS_COMPAT` in
/// `arch/x86/include/asm/thread_info.h`).
const COMPAT: u32 = 1;

impl CallNumber {
    /// `None` if the kernel's types do not say where the call's kind is.
    pub(super) fn of(types: &Btf) -> Option<Self> {
        let mut reach = Reach::memory(base::TASK, 0);
        let mut ty = *types.named(Kind::Struct, "task_struct").first()?;
        for member in ["thread_info", "status"] {
            let found = types.member(ty, member)?;
            reach.skip(found.bit_offset).ok()?;
            ty = found.ty;
        }
        let is_32_bit = reach.bit_field(COMPAT, 1, types.size_of(ty)?, false).ok()?;
        Some(Self { names: Arc::new(call_numbers()?), is_32_bit })
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
pub(super) mod tests {
    use super::*;
    use crate::kernel::btf::TypeId;
    use crate::kernel::btf::builder::Builder;
    use crate::resolve::interpreter::Machine;
    use crate::resolve::shape::Shape;
    use crate::resolve::{FunctionFields, plan};

    /// Where the task is.
    const TASK: u64 = 0x8000;

    /// Types of tasks, and a raw tracepoint with the number of a system call.
    pub(in crate::resolve) fn types() -> Arc<Btf> {
        let mut b = Builder::new();
        let word = b.int("unsigned int", 4, 0);
        let long = b.int("long", 8, 1);
        let about =
            b.structure("thread_info", 24, &[("flags", long, 0, 0), ("status", word, 128, 0)]);
        b.structure("task_struct", 32, &[("state", long, 0, 0), ("thread_info", about, 64, 0)]);
        let void = b.pointer(TypeId::VOID);
        let raw = b.prototype(TypeId::VOID, &[("", void), ("", void), ("", long)]);
        let raw = b.pointer(raw);
        b.typedef("btf_trace_sys_enter", raw);
        b.typedef("btf_trace_other", raw);
        b.typedef("btf_trace_sys_exit", raw);
        let arguments = [("__data", void), ("regs", void), ("id", long)];
        b.function("__traceiter_sys_enter", long, &arguments);
        b.build()
    }

    /// A system call with this number and the task's status.
    fn call(number: u64, status: u32) -> Machine {
        let mut machine = Machine::default();
        machine.registers[1] = number;
        machine.registers[usize::from(base::TASK)] = TASK;
        machine.kernel(TASK + 24, &status.to_ne_bytes());
        machine
    }

    #[test]
    fn only_numbers_of_64_bit_calls_are_equal_to_names() {
        let source = FunctionFields::raw_tracepoint(types(), "sys_enter").unwrap();
        let openat = 257;
        for (condition, call, is_so) in [
            ("id == openat", call(openat, 0), true),
            ("id == openat", call(openat, 1), true),
            ("id == openat", call(openat, 2), false),
            ("id == openat", call(openat + 1, 0), false),
            ("id != openat", call(openat, 0), false),
            ("id != openat", call(openat, 2), true),
            ("id != openat", call(openat + 1, 0), true),
            ("!(id == openat)", call(openat, 2), true),
            ("id == \"openat\" || id == close", call(openat, 0), true),
            ("id == 257", call(openat, 2), true),
        ] {
            let spec: crate::ProbeSpec = format!("rawtp:sys_enter/{condition}/").parse().unwrap();
            let table = plan(&source, Some(&[]), &[], spec.predicate()).unwrap().table;
            assert_eq!(call.hit(&table).1, is_so, "{condition}");
        }
    }

    #[test]
    fn the_result_of_a_call_may_be_an_error() {
        let shape = |name, field: &str| {
            let source = FunctionFields::raw_tracepoint(types(), name).unwrap();
            let spec: crate::ProbeSpec = format!("rt:{name}({field})").parse().unwrap();
            plan(&source, spec.fields(), &[], None).unwrap().fields[0].field.shape.clone()
        };
        assert_eq!(shape("sys_exit", "arg1"), Shape::Result);
        assert_eq!(shape("sys_exit", "arg1:s32"), Shape::Signed);
        assert_eq!(shape("other", "arg1"), Shape::Signed);
        let source = FunctionFields::raw_tracepoint(types(), "sys_exit").unwrap();
        let spec: crate::ProbeSpec = "rawtp:sys_exit/arg1 == -ENOENT/".parse().unwrap();
        let plan = plan(&source, None, &[], spec.predicate()).unwrap();
        assert_eq!(plan.fields[1].field.shape, Shape::Result);
        assert!(call(2_u64.wrapping_neg(), 0).hit(&plan.table).1);
    }

    #[test]
    fn only_the_number_has_names() {
        let shown = |name, spec: &str| {
            let source = FunctionFields::raw_tracepoint(types(), name).unwrap();
            let spec: crate::ProbeSpec = spec.parse().unwrap();
            let plan = plan(&source, spec.fields(), &[], None).unwrap();
            let shown = plan.fields.iter().map(|one| one.field.names.is_some()).collect::<Vec<_>>();
            let depends = plan.fields.iter().map(|one| one.otherwise.is_some()).collect::<Vec<_>>();
            assert_eq!(shown, depends, "{spec}");
            (shown, plan.table.field_count)
        };
        assert_eq!(shown("sys_enter", "rt:sys_enter"), (vec![false, true], 3));
        assert_eq!(shown("sys_enter", "rt:sys_enter(n=arg1, $arg2)"), (vec![true, true], 2));
        assert_eq!(shown("sys_enter", "rt:sys_enter(id:u32)"), (vec![false], 1));
        assert_eq!(shown("other", "rt:other(arg1)"), (vec![false], 1));
    }
}
