//! Reads the fields of a hit. What is rare is left to the function that follows the table.

use super::Site;
use super::assembler::{
    Assembler, Code, FP, Label, Op, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Size, When,
};
use super::values::{Context, Stage, is_user, number, word_at};
use aya_obj::generated::bpf_func_id::{
    BPF_FUNC_probe_read_kernel, BPF_FUNC_probe_read_kernel_str, BPF_FUNC_probe_read_user,
    BPF_FUNC_probe_read_user_str,
};
use probe_tracer_common::fetch::{FetchField, base, flag, kind, moment};
use probe_tracer_common::specialized::{
    ACCEPTED, FETCH_FIELD, FINAL, FRAME_LEN, FRAME_REGISTERS, JUDGE, LAST_DATA, REJECTED, TAIL,
};

/// Where the stack has what the predicate says.
const SAID: i16 = -8;
/// Where it has the number of bytes that are read.
const COUNT: i16 = -16;

/// A field that is left to the table.
struct Rest {
    begin: Label,
    next: Label,
    at: u8,
}

/// Reads a field, or does nothing.
type Reading<S> = fn(&S, &mut Assembler, u8, Label) -> Option<()>;

impl Site<'_> {
    /// The function that reads the fields. `decides` says whether the sieve decides about every hit.
    pub(super) fn reader(&self, decides: bool) -> Option<Vec<Code>> {
        let mut asm = Assembler::default();
        let mut rests = Vec::new();
        let out = asm.label();
        asm.set(R6, R1);
        asm.set(R7, R2);
        asm.set(R8, R3);
        if !decides {
            asm.store(Size::Eight, FP, SAID, R5);
        }
        let table = self.table;
        let begin = 8 * i32::from(table.field_count) + self.counters_len as i32;
        asm.store_constant(Size::Eight, R7, FRAME_LEN as i16, begin);
        let (integers, fields) = (table.integer_count, table.field_count - table.stack_count);
        let is_early = |at: &u8| table.late_fields >> at & 1 == 0;
        let mut read = |asm: &mut Assembler, at, how: Reading<Self>| {
            let rest = Rest { begin: asm.label(), next: asm.label(), at };
            if how(self, asm, at, rest.begin).is_none() {
                asm.jump(rest.begin);
            }
            asm.bind(rest.next);
            rests.push(rest);
        };
        for at in (0..integers).filter(is_early) {
            read(&mut asm, at, Self::word_of_field);
        }
        if decides {
            self.check_again(&mut asm, out);
        }
        let waits_for_text = table.checks_text >> moment::EARLY & 1 != 0;
        if !decides && !waits_for_text {
            self.judge(&mut asm, out);
        }
        for at in (integers..fields).filter(is_early) {
            read(&mut asm, at, Self::data);
        }
        if !decides && waits_for_text {
            self.judge(&mut asm, out);
        }
        if decides {
            let said = if table.waiting_fields == 0 { FINAL } else { ACCEPTED };
            asm.set(R0, said.cast_signed());
        } else {
            asm.load(Size::Eight, R0, FP, SAID);
        }
        if asm.leads_to(out) {
            asm.bind(out);
        }
        asm.exit();
        for rest in rests {
            // The verifier refuses instructions that nothing leads to.
            if asm.leads_to(rest.begin) {
                self.rest(&mut asm, &rest)?;
            }
        }
        asm.finish()
    }

    /// Asks the predicate, unless the sieve has accepted the hit by what cannot have changed since. Goes to `out` if it is
    /// rejected.
    fn judge(&self, asm: &mut Assembler, out: Label) {
        let is_accepted = asm.label();
        if !self.may_change() {
            asm.load(Size::Eight, R0, FP, SAID);
            asm.jump_if(When::Equal, R0, ACCEPTED.cast_signed(), is_accepted);
        }
        asm.set_long(R1, self.number.into());
        asm.set(R2, R8);
        asm.set(R3, moment::EARLY.cast_signed());
        asm.call(JUDGE);
        asm.jump_if(When::Equal, R0, REJECTED.cast_signed(), out);
        asm.store(Size::Eight, FP, SAID, R0);
        asm.bind(is_accepted);
    }

    /// Reads an integer, and goes to `fails` if that fails. `None`, and nothing, if the table has to be followed.
    fn word_of_field(&self, asm: &mut Assembler, at: u8, fails: Label) -> Option<()> {
        let field = self.field(at);
        self.can_read(Stage::Reader, field).then(|| {
            self.integer(asm, Stage::Reader, field, fails);
            asm.store(Size::Eight, R7, word_at(at.into()), R3);
        })
    }

    /// Reads a string or an array, and goes to `fails` if anything about it is unusual. `None`, and nothing, if the table has
    /// to be followed.
    fn data(&self, asm: &mut Assembler, at: u8, fails: Label) -> Option<()> {
        let field = self.field(at);
        let is_text = match field.kind {
            kind::STRING | kind::DATA_LOC => true,
            kind::BYTES | kind::DATA_LOC_BYTES => false,
            _ => return None,
        };
        let located = self.location(field);
        let can_find =
            if is_located(field) { located.is_some() } else { self.can_find(Stage::Reader, field) };
        if !can_find || field.flags & (flag::ABSTRACT | flag::PARTIAL) != 0 || field.room != 0 {
            return None;
        }
        let size = i32::from(field.size);
        // Once more from memory, where the verifier knows nothing about it: it would otherwise check what follows for each way
        // that leads here.
        asm.load(Size::Eight, R9, R7, FRAME_LEN as i16);
        asm.jump_if(When::Above, R9, LAST_DATA as i32, fails);
        let is_bounded = if let Some(offset) = located {
            number(asm, R6);
            asm.load(Size::Four, R2, R6, offset);
            asm.set(R1, R2);
            asm.operate(Op::And, R1, 0xffff);
            asm.operate(Op::Add, R3, R1);
            asm.operate(Op::ShiftRight, R2, 16);
            true
        } else {
            self.address(asm, Stage::Reader, field, fails);
            asm.jump_if(When::Equal, R3, 0, fails);
            match field.length.checked_sub(1) {
                Some(length) => self.word_of(asm, R2, length, fails),
                None => asm.set(R2, size),
            }
            field.length != 0
        };
        if is_bounded {
            asm.jump_if(When::Equal, R2, 0, fails);
            // This includes negative lengths.
            asm.jump_if(When::Above, R2, size - i32::from(is_text), fails);
            if is_text {
                // The string may lack its terminating zero. Then it ends where the helper puts one.
                asm.operate(Op::Add, R2, 1);
            } else {
                asm.store(Size::Eight, FP, COUNT, R2);
            }
        }
        asm.set(R1, R7);
        asm.operate(Op::Add, R1, TAIL as i32);
        asm.operate(Op::Add, R1, R9);
        let is_user = is_user(field, field.steps);
        asm.call_helper(match (is_text, is_user) {
            (true, true) => BPF_FUNC_probe_read_user_str,
            (true, false) => BPF_FUNC_probe_read_kernel_str,
            (false, true) => BPF_FUNC_probe_read_user,
            (false, false) => BPF_FUNC_probe_read_kernel,
        });
        if is_text {
            asm.jump_if(When::SignedAtMost, R0, 0, fails);
            if !is_bounded {
                // The string may go on.
                asm.jump_if(When::Equal, R0, size, fails);
            }
            asm.operate(Op::Sub, R0, 1);
        } else {
            asm.jump_if(When::Differs, R0, 0, fails);
            if is_bounded {
                asm.load(Size::Eight, R0, FP, COUNT);
            } else {
                asm.set(R0, size);
            }
        }
        asm.set(R1, R0);
        asm.operate(Op::ShiftLeft, R1, 32);
        asm.operate(Op::Or, R1, R9);
        asm.store(Size::Eight, R7, word_at(at.into()), R1);
        asm.operate(Op::Add, R9, R0);
        asm.store(Size::Eight, R7, FRAME_LEN as i16, R9);
        Some(())
    }

    /// Where a tracepoint's data has the word that locates a field, if one does.
    fn location(&self, field: &FetchField) -> Option<i16> {
        let is_direct = field.base == base::CONTEXT && field.steps == 0 && field.length == 0;
        let is_there = is_located(field) && is_direct && self.context == Context::Tracepoint;
        is_there.then(|| self.offset(field.offsets[0], Size::Four)).flatten()
    }

    /// Reads a field as the table says. `None` if that takes what is not known here.
    fn rest(&self, asm: &mut Assembler, Rest { begin, next, at }: &Rest) -> Option<()> {
        let field = self.field(*at);
        asm.bind(*begin);
        if field.base == base::CONTEXT || is_located(field) {
            asm.store(Size::Eight, R7, register(base::CONTEXT), R6);
        }
        if field.base <= base::RETVAL {
            self.fill_in(asm, field.base)?;
        }
        asm.set_long(R1, self.number.into());
        asm.set(R2, R8);
        asm.set(R3, i32::from(*at));
        asm.set(R4, 0);
        asm.call(FETCH_FIELD);
        asm.jump(*next);
        Some(())
    }

    /// Fills in a register of the frame.
    fn fill_in(&self, asm: &mut Assembler, base: u8) -> Option<()> {
        if self.context == Context::Registers {
            asm.load(Size::Eight, R0, R6, self.word(base)?);
            asm.store(Size::Eight, R7, register(base), R0);
            return Some(());
        }
        // A tracepoint's first word may not be read otherwise.
        let offset = if base == 0 { 0 } else { self.word(base)? };
        asm.set(R1, R7);
        asm.operate(Op::Add, R1, i32::from(register(base)));
        asm.set(R2, 8);
        asm.set(R3, R6);
        asm.operate(Op::Add, R3, i32::from(offset));
        asm.call_helper(BPF_FUNC_probe_read_kernel);
        Some(())
    }
}

/// The offset of a register of the frame from the hit.
fn register(base: u8) -> i16 {
    (FRAME_REGISTERS + 8 * usize::from(base)) as i16
}

/// Whether a word locates a field, as an offset in the context.
fn is_located(field: &FetchField) -> bool {
    matches!(field.kind, kind::DATA_LOC | kind::DATA_LOC_BYTES)
}
