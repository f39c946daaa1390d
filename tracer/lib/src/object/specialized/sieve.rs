//! Evaluates a predicate before anything is reserved, as far as it takes integers and the thread's name.

use super::Site;
use super::assembler::{Assembler, Code, FP, Label, Op, R0, R1, R2, R3, R4, R6, Size, When, short};
use super::values::Stage;
use aya_obj::generated::bpf_func_id::BPF_FUNC_get_current_comm;
use probe_tracer_common::fetch::{CHECKS, Check, base, kind, operator, verdict};
use probe_tracer_common::specialized::{ACCEPTED, REJECTED, UNDECIDED};
use probe_tracer_common::trace::COMM_LEN;

/// A sieve.
pub(super) struct Sieve {
    pub(super) code: Vec<Code>,
    /// Whether it decides about every hit.
    pub(super) decides: bool,
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
        let checks = &self.table.checks[..self.table.early_checks.into()];
        let mut asm = Assembler::default();
        let [accept, reject, wait] = [(); 3].map(|()| asm.label());
        let labels: [Label; CHECKS] = [(); CHECKS].map(|()| asm.label());
        let to = |next: u8| match next {
            verdict::ACCEPT => accept,
            verdict::REJECT => reject,
            verdict::WAIT => wait,
            next => labels[usize::from(next)],
        };
        if !checks.is_empty() {
            asm.set(R6, R1);
        }
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
                    self.compare(&mut asm, check, &comparison, holds, fails);
                    asm.jump(differs);
                }
                None => asm.jump(wait),
            }
        }
        let decides = !asm.leads_to(wait);
        for (label, verdict) in [(accept, ACCEPTED), (reject, REJECTED), (wait, UNDECIDED)] {
            if asm.leads_to(label) || checks.is_empty() && verdict == ACCEPTED {
                asm.bind(label);
                asm.set(R0, verdict.cast_signed());
                asm.exit();
            }
        }
        Some(Sieve { code: asm.finish()?, decides })
    }

    /// What a check compares, if the sieve can do that.
    fn comparison(&self, check: &Check) -> Option<Comparison> {
        let field = self.field(check.field);
        if check.operator == operator::TEXT {
            let is_name = field.base == base::COMM && field.kind == kind::STRING;
            let text = self.table.texts.get(check.value as usize)?;
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
        check: &Check,
        comparison: &Comparison,
        holds: Label,
        fails: impl Fn(u8) -> Label,
    ) {
        /// The offset of what is compared, from the end of the stack.
        const FIRST: i16 = -16;
        let field = self.field(check.field);
        match comparison {
            Comparison::Name(name) => compare_name(asm, name, holds),
            Comparison::Number(when, value) => {
                self.integer(asm, Stage::Sieve, field, fails(check.field));
                match short(*value) {
                    Some(value) => asm.jump_if(*when, R3, value, holds),
                    None => {
                        asm.set_long(R4, *value);
                        asm.jump_if(*when, R3, R4, holds);
                    }
                }
            }
            Comparison::Field(when, other) => {
                self.integer(asm, Stage::Sieve, field, fails(check.field));
                asm.store(Size::Eight, FP, FIRST, R3);
                self.integer(asm, Stage::Sieve, self.field(*other), fails(*other));
                asm.load(Size::Eight, R4, FP, FIRST);
                asm.jump_if(*when, R4, R3, holds);
            }
        }
    }
}

/// Compares the thread's name. Some kernels, such as 6.1, write nothing behind its terminating zero, so the rest is cleared
/// before.
fn compare_name(asm: &mut Assembler, name: &[u8; COMM_LEN], holds: Label) {
    let (first, last) = name.split_at(COMM_LEN / 2);
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let differs = asm.label();
    for at in [COMM_LEN as i16, COMM_LEN as i16 / 2] {
        asm.store_constant(Size::Eight, FP, -at, 0);
    }
    asm.set(R1, FP);
    asm.operate(Op::Add, R1, -(COMM_LEN as i32));
    asm.set(R2, COMM_LEN as i32);
    asm.call_helper(BPF_FUNC_get_current_comm);
    for (at, bytes) in [(COMM_LEN as i16, first), (COMM_LEN as i16 / 2, last)] {
        asm.load(Size::Eight, R3, FP, -at);
        asm.set_long(R4, word(bytes));
        asm.jump_if(When::Differs, R3, R4, differs);
    }
    asm.jump(holds);
    asm.bind(differs);
}

/// The comparison of integers that an operator stands for.
fn when(operator: u8) -> Option<When> {
    Some(match operator {
        operator::EQUAL => When::Equal,
        operator::LESS => When::SignedLess,
        operator::BELOW => When::Below,
        operator::GREATER => When::SignedGreater,
        operator::ABOVE => When::Above,
        operator::HAS => When::HasBits,
        _ => return None,
    })
}
