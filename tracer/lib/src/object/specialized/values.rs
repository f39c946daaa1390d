//! Reads integers and addresses, into register 3.

use super::Site;
use super::assembler::{Assembler, FP, Label, Op, R0, R1, R2, R3, R6, R7, Reg, Size, When};
use aya_obj::generated::bpf_func_id::{
    BPF_FUNC_get_current_pid_tgid, BPF_FUNC_get_current_task, BPF_FUNC_get_current_uid_gid,
    BPF_FUNC_get_smp_processor_id, BPF_FUNC_probe_read_kernel, BPF_FUNC_probe_read_user,
};
use probe_tracer_common::fetch::{CONTEXT_WORDS, FetchField, TRAMPOLINE_WORDS, base, flag, kind};
use probe_tracer_common::specialized::{FRAME_ADDRESS, TAIL};
use probe_tracer_common::trace::{ProbeHit, Task};
use std::mem::offset_of;
use std::ops::Range;

/// What a program finds in its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// The processor's registers.
    Registers,
    /// The data of a tracepoint.
    Tracepoint,
    /// The arguments of a raw tracepoint.
    RawTracepoint,
    /// The arguments of a function, which have types that the verifier knows.
    Trampoline,
}

/// Where the instructions stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the sieve, which has nothing but the context, in register 6, and its stack.
    Sieve,
    /// Where fields are read: the hit is reserved, and its address is in register 7.
    Reader,
}

impl Stage {
    /// Eight bytes to read into.
    fn scratch(self) -> (Reg, i16) {
        match self {
            Self::Sieve => (FP, -8),
            Self::Reader => (R7, FRAME_ADDRESS as i16),
        }
    }
}

impl Site<'_> {
    /// Whether a field is an integer that [`integer`](Self::integer) can read.
    pub(super) fn can_read(&self, stage: Stage, field: &FetchField) -> bool {
        let is_integer = match field.kind {
            kind::VALUE => true,
            kind::INTEGER => Size::of(field.size).is_some(),
            _ => false,
        };
        is_integer && (self.direct(field).is_some() || self.can_find(stage, field))
    }

    /// Whether [`address`](Self::address) can find where a field is.
    pub(super) fn can_find(&self, stage: Stage, field: &FetchField) -> bool {
        match field.base {
            base::CONTEXT => stage == Stage::Reader,
            base::TASK | base::UID | base::CPU => true,
            base::PID | base::TID => stage == Stage::Reader || self.is_in_initial_namespace,
            base::FIELD => match stage {
                Stage::Reader => true,
                Stage::Sieve => self.can_read(stage, self.field(field.from)),
            },
            register => self.word(register).is_some(),
        }
    }

    /// Reads an integer, and goes to `fails` if that fails.
    pub(super) fn integer(
        &self,
        asm: &mut Assembler,
        stage: Stage,
        field: &FetchField,
        fails: Label,
    ) {
        if let Some(Direct { size, offset, left, right }) = self.direct(field) {
            asm.load(size, R3, R6, offset);
            return cut(asm, field, left, right);
        }
        self.address(asm, stage, field, fails);
        if let (kind::INTEGER, Some(size)) = (field.kind, Size::of(field.size)) {
            read(asm, stage, size, is_user(field, field.steps), fails);
        }
        cut(asm, field, field.left, field.right);
    }

    /// Finds the address of a field, pointer by pointer, and goes to `fails` if that fails.
    pub(super) fn address(
        &self,
        asm: &mut Assembler,
        stage: Stage,
        field: &FetchField,
        fails: Label,
    ) {
        self.base(asm, stage, field, fails);
        add(asm, field.offsets[0]);
        for step in 0..field.steps {
            read(asm, stage, Size::Eight, is_user(field, step), fails);
            add(asm, field.offsets[usize::from(step) + 1]);
        }
    }

    fn base(&self, asm: &mut Assembler, stage: Stage, field: &FetchField, fails: Label) {
        match field.base {
            base::CONTEXT => number(asm, R6),
            base::TASK => {
                asm.call_helper(BPF_FUNC_get_current_task);
                asm.set(R3, R0);
            }
            base::UID => {
                asm.call_helper(BPF_FUNC_get_current_uid_gid);
                asm.set(R3, R0);
                low_half(asm, R3);
            }
            base::CPU => {
                asm.call_helper(BPF_FUNC_get_smp_processor_id);
                asm.set(R3, R0);
            }
            base::PID | base::TID => ids(asm, stage, field.base == base::PID),
            base::FIELD => match stage {
                Stage::Sieve => self.integer(asm, stage, self.field(field.from), fails),
                Stage::Reader => self.word_of(asm, R3, field.from, fails),
            },
            register => self.register(asm, stage, register, fails),
        }
    }

    /// The word of another field that was read before. Uses register 1.
    pub(super) fn word_of(&self, asm: &mut Assembler, to: Reg, at: u8, fails: Label) {
        let field = self.field(at);
        if !self.cannot_fault(field) {
            asm.load(Size::Four, R1, R7, offset_of!(ProbeHit, faults) as i16);
            asm.jump_if(When::HasBits, R1, (1_u32 << at).cast_signed(), fails);
        }
        asm.load(Size::Eight, to, R7, word_at(at.into()));
    }

    /// Whether reading an integer always succeeds.
    pub(super) fn cannot_fault(&self, field: &FetchField) -> bool {
        let is_value = field.kind == kind::VALUE && field.steps == 0;
        self.direct(field).is_some() || is_value && field.base <= base::CPU
    }

    /// A register of the interpreter.
    fn register(&self, asm: &mut Assembler, stage: Stage, register: u8, fails: Label) {
        let Some(offset) = self.word(register) else { return asm.jump(fails) };
        if self.context == Context::Trampoline && stage == Stage::Sieve {
            // Its type may be a pointer, which does not become a number on the stack.
            asm.set(R3, R6);
            add(asm, offset.into());
            return read(asm, stage, Size::Eight, false, fails);
        }
        asm.load(Size::Eight, R3, R6, offset);
        if self.context == Context::Trampoline {
            number(asm, R3);
        }
    }

    /// Where the context has a register of the interpreter.
    pub(super) fn word(&self, register: u8) -> Option<i16> {
        /// Offsets of the arguments and of the return value in the registers of x86-64.
        const ARGUMENTS: [i16; 6] = [112, 104, 96, 88, 72, 64];
        const RETVAL: i16 = 80;
        let at = usize::from(register);
        let words = match self.context {
            Context::Registers if !cfg!(target_arch = "x86_64") => return None,
            Context::Registers if register == base::RETVAL => return Some(RETVAL),
            Context::Registers => return ARGUMENTS.get(at).copied(),
            Context::Tracepoint => 1..CONTEXT_WORDS,
            Context::RawTracepoint => 0..TRAMPOLINE_WORDS - 1,
            Context::Trampoline => 0..TRAMPOLINE_WORDS,
        };
        words.contains(&at).then_some(8 * i16::from(register))
    }

    /// An offset at which a program may read its context.
    pub(super) fn offset(&self, start: i32, size: Size) -> Option<i16> {
        /// The data of a tracepoint, without the bytes that the kernel keeps for itself (`PERF_MAX_TRACE_SIZE` in
        /// `include/linux/trace_events.h`).
        const TRACEPOINT: Range<i32> = 8..2048;
        /// The registers of x86-64 (`struct pt_regs`).
        const REGISTERS: Range<i32> = 0..168;
        let all = match self.context {
            Context::Tracepoint => TRACEPOINT,
            Context::Registers if cfg!(target_arch = "x86_64") => REGISTERS,
            _ => return None,
        };
        let len = i32::from(size.bytes());
        let is_there = start >= all.start && start % len == 0 && start + len <= all.end;
        is_there.then_some(start as i16)
    }

    /// How to read a field from the context at once.
    fn direct(&self, field: &FetchField) -> Option<Direct> {
        if field.steps != 0 {
            return None;
        }
        let (start, size, left) = match (field.base, field.kind) {
            (base::CONTEXT, kind::INTEGER) if !is_user(field, 0) => {
                (field.offsets[0], Size::of(field.size)?, field.left)
            }
            // A part of a word. Its end may be behind the end of the data.
            (register, kind::VALUE)
                if self.context == Context::Tracepoint
                    && field.offsets[0] == 0
                    && field.left <= field.right =>
            {
                let (low, high) = (field.right - field.left, 64 - field.left);
                let parts = [Size::One, Size::Two, Size::Four, Size::Eight];
                let (size, begin) = parts.into_iter().find_map(|size| {
                    let bits = 8 * size.bytes() as u8;
                    let begin = low / bits * bits;
                    (high <= begin + bits).then_some((size, begin))
                })?;
                let start = i32::from(self.word(register)?) + i32::from(begin / 8);
                (start, size, 64 - (high - begin))
            }
            _ => return None,
        };
        let (left, right) = match (8 * size.bytes() as u8, field.flags & flag::SIGNED) {
            // The load has cut it already.
            (bits, 0) if left == 64 - bits && field.right == left => (0, 0),
            _ => (left, field.right),
        };
        Some(Direct { size, offset: self.offset(start, size)?, left, right })
    }
}

/// An integer in the context, and how far to shift it.
struct Direct {
    size: Size,
    offset: i16,
    left: u8,
    right: u8,
}

/// Reads from the address in register 3 into register 3.
fn read(asm: &mut Assembler, stage: Stage, size: Size, user: bool, fails: Label) {
    let (to, at) = stage.scratch();
    asm.set(R1, to);
    asm.operate(Op::Add, R1, i32::from(at));
    asm.set(R2, i32::from(size.bytes()));
    asm.call_helper(if user { BPF_FUNC_probe_read_user } else { BPF_FUNC_probe_read_kernel });
    asm.jump_if(When::Differs, R0, 0, fails);
    asm.load(size, R3, to, at);
}

/// Sets register 3 to a register as a number: the verifier takes it for a pointer until it has been in memory.
pub(super) fn number(asm: &mut Assembler, from: Reg) {
    asm.store(Size::Eight, R7, FRAME_ADDRESS as i16, from);
    asm.load(Size::Eight, R3, R7, FRAME_ADDRESS as i16);
}

fn ids(asm: &mut Assembler, stage: Stage, is_process: bool) {
    if stage == Stage::Reader {
        let member = if is_process { offset_of!(Task, pid) } else { offset_of!(Task, tid) };
        return asm.load(Size::Four, R3, R7, (offset_of!(ProbeHit, task) + member) as i16);
    }
    asm.call_helper(BPF_FUNC_get_current_pid_tgid);
    asm.set(R3, R0);
    if is_process {
        asm.operate(Op::ShiftRight, R3, 32);
    } else {
        low_half(asm, R3);
    }
}

fn low_half(asm: &mut Assembler, reg: Reg) {
    asm.operate(Op::ShiftLeft, reg, 32);
    asm.operate(Op::ShiftRight, reg, 32);
}

fn add(asm: &mut Assembler, offset: i32) {
    if offset != 0 {
        asm.operate(Op::Add, R3, offset);
    }
}

/// Extracts the wanted bits.
fn cut(asm: &mut Assembler, field: &FetchField, left: u8, right: u8) {
    if left != 0 {
        asm.operate(Op::ShiftLeft, R3, i32::from(left));
    }
    let is_signed = field.flags & flag::SIGNED != 0;
    if right != 0 {
        let shift = if is_signed { Op::ShiftRightSigned } else { Op::ShiftRight };
        asm.operate(shift, R3, i32::from(right));
    }
}

/// Whether a field's read with this index is from the process's memory.
pub(super) fn is_user(field: &FetchField, read: u8) -> bool {
    field.user >> read & 1 != 0
}

/// The offset of a field's word from the hit.
pub(super) fn word_at(at: usize) -> i16 {
    (TAIL + 8 * at) as i16
}
