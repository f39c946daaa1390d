//! Evaluates a predicate before anything is reserved, as far as it takes integers and the thread's name; and once more when the
//! fields are read, because memory may have changed meanwhile.

use super::Site;
use super::assembler::{
    Assembler, Code, FP, Label, Op, R0, R1, R2, R3, R4, R6, R7, Reg, Size, When, short,
};
use super::values::Stage;
use aya_obj::generated::bpf_func_id::BPF_FUNC_get_current_comm;
use probe_tracer_common::fetch::{CHECKS, Check, Literal, base, kind, operator, verdict};
use probe_tracer_common::specialized::{ACCEPTED, REJECTED, UNDECIDED};
use probe_tracer_common::trace::{COMM_LEN, ProbeHit, Task};
use std::mem::offset_of;

/// A sieve.
pub(super) struct Sieve {
    pub(super) code: Vec<Code>,
    /// Whether it decides about every hit.
    pub(super) decides: bool,
}

/// Where a predicate leads.
struct Verdicts {
    accept: Label,
    reject: Label,
    wait: Label,
}

/// A comparison that the sieve can make.
enum Comparison {
    /// Of a field with a number.
    Number(When, u64),
    /// Of a field with another one.
    Field(When, u8),
    /// Of the thread's name with a text.
    Name([u8; COMM_LEN]),
}

impl Site<'_> {
    pub(super) fn sieve(&self) -> Option<Sieve> {
        let mut asm = Assembler::default();
        if self.table.early_checks != 0 {
            asm.set(R6, R1);
        }
        let verdicts = self.checks(&mut asm, Stage::Sieve);
        let decides = !asm.leads_to(verdicts.wait);
        let Verdicts { accept, reject, wait } = verdicts;
        for (label, verdict) in [(accept, ACCEPTED), (reject, REJECTED), (wait, UNDECIDED)] {
            if asm.leads_to(label) || self.table.early_checks == 0 && verdict == ACCEPTED {
                asm.bind(label);
                asm.set(R0, verdict.cast_signed());
                asm.exit();
            }
        }
        Some(Sieve { code: asm.finish()?, decides })
    }

    /// Evaluates a predicate about which the sieve decides with what was read since. Goes to `out`, with the verdict in register
    /// 0, if it does not hold any more.
    pub(super) fn check_again(&self, asm: &mut Assembler, out: Label) {
        if !self.may_change() {
            return;
        }
        // Nothing waits: the sieve decides.
        let Verdicts { accept, reject, .. } = self.checks(asm, Stage::Reader);
        if asm.leads_to(reject) {
            asm.bind(reject);
            asm.set(R0, REJECTED.cast_signed());
            asm.jump(out);
        }
        asm.bind(accept);
    }

    /// Whether the predicate compares what may be another value when the fields are read.
    pub(super) fn may_change(&self) -> bool {
        let may_change = |at: u8| !self.cannot_fault(self.field(at));
        self.early_checks().iter().any(|check| {
            may_change(check.field) || check.other.checked_sub(1).is_some_and(may_change)
        })
    }

    fn early_checks(&self) -> &[Check] {
        &self.table.checks[..self.table.early_checks.into()]
    }

    /// Makes the comparisons, and goes to a verdict.
    fn checks(&self, asm: &mut Assembler, stage: Stage) -> Verdicts {
        let checks = self.early_checks();
        let [accept, reject, wait] = [(); 3].map(|()| asm.label());
        let labels: [Label; CHECKS] = [(); CHECKS].map(|()| asm.label());
        let to = |next: u8| match next {
            verdict::ACCEPT => accept,
            verdict::REJECT => reject,
            next => labels[usize::from(next)],
        };
        // The first check, or the verdict, follows. The verifier refuses instructions that nothing leads to; checks lead only
        // to later ones.
        for (at, check) in checks.iter().enumerate() {
            if at > 0 && !asm.leads_to(labels[at]) {
                continue;
            }
            asm.bind(labels[at]);
            match self.comparison(check) {
                Some(comparison) => {
                    let (holds, differs) = (to(check.on_true), to(check.on_false));
                    let fails = |at: u8| {
                        let waits = self.table.waiting_fields >> at & 1 != 0;
                        if waits { wait } else { differs }
                    };
                    self.compare(asm, stage, check, &comparison, holds, fails);
                    asm.jump(differs);
                }
                None => asm.jump(wait),
            }
        }
        Verdicts { accept, reject, wait }
    }

    /// What a check compares, if the sieve can do that.
    fn comparison(&self, check: &Check) -> Option<Comparison> {
        let field = self.field(check.field);
        if check.operator == operator::TEXT {
            let is_name = field.base == base::COMM && field.kind == kind::STRING;
            let text = self.table.texts.get(usize::from(Literal::of(check.value).text))?;
            let name = *text.first_chunk()?;
            return (is_name && text[COMM_LEN - 1..].iter().all(|&byte| byte == 0))
                .then_some(Comparison::Name(name));
        }
        let can_read = |field| self.can_read(Stage::Sieve, field);
        if !can_read(field) {
            return None;
        }
        let when = when(check.operator)?;
        match check.other.checked_sub(1) {
            None => Some(Comparison::Number(when, check.value)),
            Some(other) => can_read(self.field(other)).then_some(Comparison::Field(when, other)),
        }
    }

    /// Goes to `holds` if the comparison holds, to what `fails` says of a field that cannot be read, and otherwise on.
    fn compare(
        &self,
        asm: &mut Assembler,
        stage: Stage,
        check: &Check,
        comparison: &Comparison,
        holds: Label,
        fails: impl Fn(u8) -> Label,
    ) {
        /// The offset of what is compared, from the end of the stack.
        const FIRST: i16 = -16;
        let read = |asm: &mut Assembler, at: u8| match stage {
            Stage::Sieve => self.integer(asm, stage, self.field(at), fails(at)),
            Stage::Reader => self.word_of(asm, R3, at, fails(at)),
        };
        match comparison {
            Comparison::Name(name) => compare_name(asm, stage, name, holds),
            Comparison::Number(when, value) => {
                read(asm, check.field);
                match short(*value) {
                    Some(value) => asm.jump_if(*when, R3, value, holds),
                    None => {
                        asm.set_long(R4, *value);
                        asm.jump_if(*when, R3, R4, holds);
                    }
                }
            }
            Comparison::Field(when, other) => {
                read(asm, check.field);
                asm.store(Size::Eight, FP, FIRST, R3);
                read(asm, *other);
                asm.load(Size::Eight, R4, FP, FIRST);
                asm.jump_if(*when, R4, R3, holds);
            }
        }
    }
}

/// Compares the thread's name with a text, up to the zero byte that ends that: where fields are read, the one that the hit has.
/// Some kernels, such as 6.1, write nothing behind the terminating zero of a name.
fn compare_name(asm: &mut Assembler, stage: Stage, text: &[u8; COMM_LEN], holds: Label) {
    let (of, at): (Reg, i16) = match stage {
        Stage::Sieve => (FP, -(COMM_LEN as i16)),
        Stage::Reader => (R7, (offset_of!(ProbeHit, task) + offset_of!(Task, comm)) as i16),
    };
    if stage == Stage::Sieve {
        read_name(asm, at);
    }
    let differs = asm.label();
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(COMM_LEN);
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    for (n, bytes) in (0..).zip(text.as_chunks::<8>().0) {
        let mask = std::array::from_fn(|byte| if 8 * n as usize + byte <= end { 0xff } else { 0 });
        if word(&mask) == 0 {
            break;
        }
        asm.load(Size::Eight, R3, of, at + 8 * n);
        if word(&mask) != u64::MAX {
            asm.set_long(R4, word(&mask));
            asm.operate(Op::And, R3, R4);
        }
        asm.set_long(R4, word(bytes));
        asm.jump_if(When::Differs, R3, R4, differs);
    }
    asm.jump(holds);
    asm.bind(differs);
}

/// Reads the thread's name to this offset of the stack, which is cleared before: the verifier wants to know every byte.
fn read_name(asm: &mut Assembler, at: i16) {
    for n in 0..COMM_LEN as i16 / 8 {
        asm.store_constant(Size::Eight, FP, at + 8 * n, 0);
    }
    asm.set(R1, FP);
    asm.operate(Op::Add, R1, i32::from(at));
    asm.set(R2, COMM_LEN as i32);
    asm.call_helper(BPF_FUNC_get_current_comm);
}

/// The comparison of integers that an operator stands for.
fn when(operator: u8) -> Option<When> {
    const NOT_LESS: u8 = operator::LESS | operator::NOT;
    const NOT_BELOW: u8 = operator::BELOW | operator::NOT;
    const NOT_GREATER: u8 = operator::GREATER | operator::NOT;
    const NOT_ABOVE: u8 = operator::ABOVE | operator::NOT;
    Some(match operator {
        operator::EQUAL => When::Equal,
        operator::LESS => When::SignedLess,
        operator::BELOW => When::Below,
        operator::GREATER => When::SignedGreater,
        operator::ABOVE => When::Above,
        operator::HAS => When::HasBits,
        NOT_LESS => When::SignedAtLeast,
        NOT_BELOW => When::AtLeast,
        NOT_GREATER => When::SignedAtMost,
        NOT_ABOVE => When::AtMost,
        _ => return None,
    })
}
