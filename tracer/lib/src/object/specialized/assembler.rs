//! Writes instructions (`struct bpf_insn` in `include/uapi/linux/bpf.h`).

use aya_obj::generated::bpf_func_id;
use std::collections::HashMap;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reg(u8);

/// The result of a call.
pub(super) const R0: Reg = Reg(0);
/// The arguments of a function or a call. A call overwrites them.
pub(super) const R1: Reg = Reg(1);
pub(super) const R2: Reg = Reg(2);
pub(super) const R3: Reg = Reg(3);
pub(super) const R4: Reg = Reg(4);
pub(super) const R5: Reg = Reg(5);
/// Registers that calls leave alone.
pub(super) const R6: Reg = Reg(6);
pub(super) const R7: Reg = Reg(7);
pub(super) const R8: Reg = Reg(8);
pub(super) const R9: Reg = Reg(9);
/// The end of the function's stack.
pub(super) const FP: Reg = Reg(10);

/// How many bytes an access has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    One,
    Two,
    Four,
    Eight,
}

impl Size {
    pub(super) const fn of(bytes: u16) -> Option<Self> {
        Some(match bytes {
            1 => Self::One,
            2 => Self::Two,
            4 => Self::Four,
            8 => Self::Eight,
            _ => return None,
        })
    }

    pub(super) const fn bytes(self) -> i16 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::One => 0x10,
            Self::Two => 0x08,
            Self::Four => 0x00,
            Self::Eight => 0x18,
        }
    }
}

/// An operation on 64 bits: `dst = dst OP operand`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Move = 0xb0,
    ShiftRightSigned = 0xc0,
}

/// A comparison of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    HasBits = 0x40,
    Differs = 0x50,
    SignedGreater = 0x60,
    SignedAtLeast = 0x70,
    Below = 0xa0,
    AtMost = 0xb0,
    SignedLess = 0xc0,
    SignedAtMost = 0xd0,
}

/// What an operation or a comparison takes beside its register.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Reg(Reg),
    /// It is extended with its sign.
    Constant(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Self {
        Self::Constant(constant)
    }
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Label(usize);

/// An instruction of a finished function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Plain(u64),
    /// A call of the function of this name.
    Call(&'static str),
}

enum Item {
    Code(Code),
    /// A jump, without its offset.
    Jump(u64, Label),
}

/// The code of one function.
#[derive(Default)]
pub(super) struct Assembler {
    items: Vec<Item>,
    bound: HashMap<Label, usize>,
    labels: usize,
}

/// The longest distance of a jump, in instructions.
const FARTHEST: usize = i16::MAX as usize;

impl Assembler {
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Puts a label here.
    pub(super) fn bind(&mut self, label: Label) {
        self.bound.insert(label, self.items.len());
    }

    /// Whether a jump leads to a label.
    pub(super) fn leads_to(&self, label: Label) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Jump(_, to) if *to == label))
    }

    pub(super) fn operate(&mut self, op: Op, to: Reg, with: impl Into<Operand>) {
        const ALU64: u8 = 0x07;
        self.with_operand(ALU64 | op as u8, to, 0, with.into());
    }

    pub(super) fn set(&mut self, to: Reg, value: impl Into<Operand>) {
        self.operate(Op::Move, to, value);
    }

    /// Sets a register to a constant of any size.
    pub(super) fn set_long(&mut self, to: Reg, value: u64) {
        const LOAD_LONG: u8 = 0x18;
        if let Some(short) = short(value) {
            return self.set(to, short);
        }
        self.plain(LOAD_LONG, to, Reg(0), 0, value as i32);
        self.plain(0, Reg(0), Reg(0), 0, (value >> 32) as i32);
    }

    pub(super) fn load(&mut self, size: Size, to: Reg, from: Reg, offset: i16) {
        const LOAD: u8 = 0x61;
        self.plain(LOAD | size.bits(), to, from, offset, 0);
    }

    pub(super) fn store(&mut self, size: Size, to: Reg, offset: i16, from: Reg) {
        const STORE: u8 = 0x63;
        self.plain(STORE | size.bits(), to, from, offset, 0);
    }

    pub(super) fn store_constant(&mut self, size: Size, to: Reg, offset: i16, value: i32) {
        const STORE_CONSTANT: u8 = 0x62;
        self.plain(STORE_CONSTANT | size.bits(), to, Reg(0), offset, value);
    }

    pub(super) fn jump(&mut self, to: Label) {
        const ALWAYS: u8 = 0x05;
        self.items.push(Item::Jump(instruction(ALWAYS, Reg(0), Reg(0), 0, 0), to));
    }

    pub(super) fn jump_if(&mut self, when: When, reg: Reg, with: impl Into<Operand>, to: Label) {
        const JUMP: u8 = 0x05;
        self.with_operand(JUMP | when as u8, reg, 0, with.into());
        if let Some(Item::Code(Code::Plain(code))) = self.items.pop() {
            self.items.push(Item::Jump(code, to));
        }
    }

    /// Calls one of the kernel's functions.
    pub(super) fn call_helper(&mut self, function: bpf_func_id) {
        self.plain(CALL, Reg(0), Reg(0), 0, function as i32);
    }

    /// Calls a function of the program.
    pub(super) fn call(&mut self, name: &'static str) {
        self.items.push(Item::Code(Code::Call(name)));
    }

    /// Returns [`R0`].
    pub(super) fn exit(&mut self) {
        const EXIT: u8 = 0x95;
        self.plain(EXIT, Reg(0), Reg(0), 0, 0);
    }

    /// The finished function. `None` if a jump is too far.
    pub(super) fn finish(self) -> Option<Vec<Code>> {
        let Self { items, bound, .. } = self;
        let at = items.iter().enumerate();
        at.map(|(at, item)| match item {
            Item::Code(code) => Some(*code),
            Item::Jump(code, label) => {
                let to = *bound.get(label)?;
                let distance = to as isize - at as isize - 1;
                let distance = i16::try_from(distance).ok().filter(|_| at < FARTHEST)?;
                Some(Code::Plain(code | u64::from(distance.cast_unsigned()) << 16))
            }
        })
        .collect()
    }

    fn with_operand(&mut self, code: u8, to: Reg, offset: i16, operand: Operand) {
        const FROM_REGISTER: u8 = 0x08;
        match operand {
            Operand::Reg(from) => self.plain(code | FROM_REGISTER, to, from, offset, 0),
            Operand::Constant(constant) => self.plain(code, to, Reg(0), offset, constant),
        }
    }

    fn plain(&mut self, code: u8, to: Reg, from: Reg, offset: i16, constant: i32) {
        let code = Code::Plain(instruction(code, to, from, offset, constant));
        self.items.push(Item::Code(code));
    }
}

/// The code of a call.
pub(super) const CALL: u8 = 0x85;

/// A constant that an instruction extends to this value.
pub(super) fn short(value: u64) -> Option<i32> {
    i32::try_from(value.cast_signed()).ok()
}

fn instruction(code: u8, to: Reg, from: Reg, offset: i16, constant: i32) -> u64 {
    u64::from(code)
        | u64::from(to.0) << 8
        | u64::from(from.0) << 12
        | u64::from(offset.cast_unsigned()) << 16
        | u64::from(constant.cast_unsigned()) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(write: impl FnOnce(&mut Assembler)) -> Vec<u64> {
        let mut asm = Assembler::default();
        write(&mut asm);
        let plain = |code| match code {
            Code::Plain(code) => code,
            Code::Call(name) => panic!("a call of {name}"),
        };
        asm.finish().unwrap().into_iter().map(plain).collect()
    }

    /// The bytes of instructions, as LLVM's assembler writes them.
    #[test]
    fn instructions_have_the_kernels_encoding() {
        assert_eq!(code(|asm| asm.set(R6, R1)), [0x0000_0000_0000_16bf]);
        assert_eq!(code(|asm| asm.set(R2, -1)), [0xffff_ffff_0000_02b7]);
        assert_eq!(code(|asm| asm.operate(Op::Add, R1, -8)), [0xffff_fff8_0000_0107]);
        assert_eq!(code(|asm| asm.operate(Op::Or, R1, R9)), [0x0000_0000_0000_914f]);
        assert_eq!(code(|asm| asm.load(Size::Four, R3, R6, 16)), [0x0000_0000_0010_6361]);
        assert_eq!(code(|asm| asm.store(Size::Eight, FP, -8, R5)), [0x0000_0000_fff8_5a7b]);
        assert_eq!(code(|asm| asm.store_constant(Size::Eight, R7, 32, 5)), [0x0000_0005_0020_077a]);
        assert_eq!(
            code(|asm| asm.call_helper(bpf_func_id::BPF_FUNC_get_current_pid_tgid)),
            [0x0000_000e_0000_0085]
        );
        assert_eq!(code(Assembler::exit), [0x0000_0000_0000_0095]);
    }

    #[test]
    fn long_constants_take_two_instructions_only_if_they_must() {
        assert_eq!(code(|asm| asm.set_long(R1, u64::MAX)), [0xffff_ffff_0000_01b7]);
        assert_eq!(code(|asm| asm.set_long(R1, 0xffff_ffff)), [0xffff_ffff_0000_0118, 0]);
        assert_eq!(code(|asm| asm.set_long(R1, 5 << 32 | 6)), [0x0000_0006_0000_0118, 5 << 32]);
    }

    #[test]
    fn jumps_lead_to_their_labels() {
        let jumps = code(|asm| {
            let [ahead, back] = [asm.label(), asm.label()];
            asm.bind(back);
            asm.jump_if(When::Above, R2, 7, ahead);
            asm.jump(back);
            asm.bind(ahead);
            asm.exit();
            assert!(asm.leads_to(ahead) && !asm.leads_to(Label(7)));
        });
        assert_eq!(jumps, [0x0000_0007_0001_0225, 0x0000_0000_fffe_0005, 0x95]);
    }

    #[test]
    fn a_jump_that_is_too_far_is_refused() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.jump(end);
        (0..40_000).for_each(|_| asm.exit());
        asm.bind(end);
        assert_eq!(asm.finish(), None);
    }
}
