//! Evaluates a predicate before anything is reserved, as far as it takes integers and the thread's name.

use super::Site;
use super::assembler::{Assembler, Code, FP, Label, Op, R0, R1, R2, R3, R4, R6, Size, When, short};
use super::values::Stage;
use probe_tracer_common::fetch::{CHECKS, Check, base, kind, operator, verdict};
use probe_tracer_common::specialized::{ACCEPTED, REJECTED, UNDECIDED};
use probe_tracer_common::trace::COMM_LEN;

/// A sieve.
pub(super) struct Sieve {
    pub(super) code: Vec<Code>,
    /// Whether it decides about every hit.
    pub(super) decides: bool,
}

const GET_CURRENT_COMM: i32 = 16;

/// What a comparison is with.
enum With {
    Value(u64),
    Field(u8),
    Name([u8; COMM_LEN]),
}

impl Site<'_> {
    pub(super) fn sieve(&self) -> Option<Sieve> {
        let count = usize::from(self.table.early_checks);
        let mut asm = Assembler::default();
        let mut decides = true;
        let [accept, reject, wait] = [(); 3].map(|()| asm.label());
        let labels: [Label; CHECKS] = [(); CHECKS].map(|()| asm.label());
        // Checks lead to later ones only, and the first one is reached.
        let mut is_reached = [false; CHECKS];
        is_reached[0] = true;
        asm.set(R6, R1);
        let mut needs = [false; 3];
        for (at, check) in self.table.checks[..count].iter().enumerate() {
            if !is_reached[at] {
                continue;
            }
            asm.bind(labels[at]);
            let Some(with) = self.with(check) else {
                needs[2] = true;
                asm.jump(wait);
                continue;
            };
            let mut to = |next: u8| match next {
                verdict::ACCEPT => (needs[0] = true, accept).1,
                verdict::REJECT => (needs[1] = true, reject).1,
                verdict::WAIT => (needs[2] = true, wait).1,
                next => (is_reached[usize::from(next)] = true, labels[usize::from(next)]).1,
            };
            let (holds, differs) = (to(check.on_true), to(check.on_false));
            let mut fails = |at: u8| {
                let waits = self.table.waiting_fields >> at & 1 != 0;
                if waits { to(verdict::WAIT) } else { differs }
            };
            self.compare(&mut asm, check, &with, holds, &mut fails);
            asm.jump(differs);
        }
        if count == 0 {
            needs[0] = true;
        }
        for (label, verdict, is_needed) in [
            (accept, ACCEPTED, needs[0]),
            (reject, REJECTED, needs[1]),
            (wait, UNDECIDED, needs[2]),
        ] {
            if is_needed {
                asm.bind(label);
                asm.set(R0, verdict.cast_signed());
                asm.exit();
            }
        }
        decides &= !needs[2];
        Some(Sieve { code: asm.finish()?, decides })
    }

    /// What a check compares with, if the sieve can make the comparison.
    fn with(&self, check: &Check) -> Option<With> {
        let field = self.field(check.field);
        if check.operator == operator::TEXT {
            let is_name = field.base == base::COMM && field.kind == kind::STRING;
            let text = self.table.texts.get(check.value as usize)?;
            let name = *text.first_chunk()?;
            return (is_name && text[COMM_LEN - 1..].iter().all(|&byte| byte == 0))
                .then_some(With::Name(name));
        }
        if !self.can_read(Stage::Sieve, field) {
            return None;
        }
        when(check.operator)?;
        match check.other.checked_sub(1) {
            None => Some(With::Value(check.value)),
            Some(other) => {
                self.can_read(Stage::Sieve, self.field(other)).then_some(With::Field(other))
            }
        }
    }

    /// Goes to `holds` if the comparison holds, to what `fails` says of a field that cannot be read, and otherwise on.
    fn compare(
        &self,
        asm: &mut Assembler,
        check: &Check,
        with: &With,
        holds: Label,
        fails: &mut dyn FnMut(u8) -> Label,
    ) {
        /// The offset of what is compared, from the end of the stack.
        const FIRST: i16 = -16;
        let Some(when) = when(check.operator) else { return compare_name(asm, with, holds) };
        let field = self.field(check.field);
        match *with {
            With::Name(_) => {}
            With::Value(value) => {
                self.integer(asm, Stage::Sieve, field, fails(check.field));
                match short(value) {
                    Some(value) => asm.jump_if(when, R3, value, holds),
                    None => {
                        asm.set_long(R4, value);
                        asm.jump_if(when, R3, R4, holds);
                    }
                }
            }
            With::Field(other) => {
                self.integer(asm, Stage::Sieve, field, fails(check.field));
                asm.store(Size::Eight, FP, FIRST, R3);
                self.integer(asm, Stage::Sieve, self.field(other), fails(other));
                asm.load(Size::Eight, R4, FP, FIRST);
                asm.jump_if(when, R4, R3, holds);
            }
        }
    }
}

/// Compares the thread's name. Some kernels, such as 6.1, write nothing behind its terminating zero, so the rest is cleared
/// before.
fn compare_name(asm: &mut Assembler, with: &With, holds: Label) {
    let With::Name(name) = with else { return };
    let (first, last) = name.split_at(COMM_LEN / 2);
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let differs = asm.label();
    for at in [COMM_LEN as i16, COMM_LEN as i16 / 2] {
        asm.store_constant(Size::Eight, FP, -at, 0);
    }
    asm.set(R1, FP);
    asm.operate(Op::Add, R1, -(COMM_LEN as i32));
    asm.set(R2, COMM_LEN as i32);
    asm.call_helper(GET_CURRENT_COMM);
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
