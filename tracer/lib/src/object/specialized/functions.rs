//! Takes a linked program apart into its functions, and joins them again after some were replaced. A call of a function that only
//! returns a number becomes that number.

use super::assembler::{CALL, Code};
use aya_obj::generated::{BPF_PSEUDO_CALL, BPF_PSEUDO_FUNC};
use std::collections::HashMap;

/// A function of a linked program.
#[derive(Debug)]
struct Function {
    /// The name of its symbol.
    name: String,
    /// Its type's `struct bpf_func_info`, without the offset in its first four bytes.
    info: Vec<u8>,
    code: Vec<Instruction>,
}

/// An instruction, with calls and addresses of other functions by their index.
#[derive(Clone, Copy, Debug)]
enum Instruction {
    Plain(u64),
    /// A call or an address of the function with this index.
    Of(u64, usize),
}

/// The functions of a program, of which the first one is its beginning.
#[derive(Debug)]
pub(super) struct Functions(Vec<Function>);

impl Functions {
    /// Takes a program apart. `infos` are its `struct bpf_func_info`s of `info_len` bytes each, and `name_of` gives the name of
    /// the function with a type id. `None` if it does not consist of whole functions.
    pub(super) fn of<'n>(
        instructions: &[u64],
        infos: &[u8],
        info_len: usize,
        name_of: impl Fn(u32) -> Option<&'n str>,
    ) -> Option<Self> {
        let word =
            |info: &[u8], at: usize| Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?));
        let mut starts: Vec<(usize, &[u8])> = infos
            .chunks_exact(info_len)
            .map(|info| Some((word(info, 0)? as usize, info.get(4..)?)))
            .collect::<Option<_>>()?;
        starts.sort_by_key(|(start, _)| *start);
        let indices: HashMap<_, _> = starts.iter().map(|(start, _)| *start).zip(0..).collect();
        let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([instructions.len()]);
        let all = starts.iter().zip(ends).map(|((start, info), end)| {
            let code = instructions.get(*start..end)?;
            let code =
                (*start..).zip(code).map(|(at, &instruction)| match target(at, instruction) {
                    Some(target) => Some(Instruction::Of(instruction, *indices.get(&target)?)),
                    None => Some(Instruction::Plain(instruction)),
                });
            let (code, name) = (code.collect::<Option<_>>()?, name_of(word(info, 0)?)?.to_owned());
            Some(Function { name, info: info.to_vec(), code })
        });
        let all: Vec<_> = all.collect::<Option<_>>()?;
        (starts.first()?.0 == 0).then_some(Self(all))
    }

    /// Replaces the only function whose name contains `name`. `None` if there is none, or if the new code calls a function
    /// that the program does not have.
    pub(super) fn replace(&mut self, name: &str, code: &[Code]) -> Option<()> {
        let index = self.index(|function| function.contains(name))?;
        let code = code.iter().map(|code| match *code {
            Code::Plain(instruction) => Some(Instruction::Plain(instruction)),
            Code::Call(name) => {
                let call = u64::from(CALL) | OF_PROGRAM << 12;
                Some(Instruction::Of(call, self.index(|function| function == name)?))
            }
        });
        self.0[index].code = code.collect::<Option<_>>()?;
        Some(())
    }

    /// Whether there is a function whose name contains `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|function| function.name.contains(name))
    }

    fn inline_numbers(&mut self) {
        let numbers: Vec<_> = self.0.iter().map(Function::number).collect();
        for instruction in self.0.iter_mut().flat_map(|function| &mut function.code) {
            if let Instruction::Of(call, callee) = *instruction
                && call as u8 == CALL
                && let Some(number) = numbers[callee]
            {
                *instruction = Instruction::Plain(number);
            }
        }
    }

    fn index(&self, is_it: impl Fn(&str) -> bool) -> Option<usize> {
        let mut found = (0..).zip(&self.0).filter(|(_, function)| is_it(&function.name));
        let (index, _) = found.next()?;
        found.next().is_none().then_some(index)
    }

    /// Joins the functions that are called, directly or indirectly. Returns the instructions and the infos.
    pub(super) fn join(mut self) -> (Vec<u64>, Vec<u8>) {
        self.inline_numbers();
        let mut is_called = vec![false; self.0.len()];
        let mut to_visit = vec![0];
        while let Some(index) = to_visit.pop() {
            if !std::mem::replace(&mut is_called[index], true) {
                to_visit.extend(self.0[index].callees());
            }
        }
        let kept = || (0..).zip(&self.0).zip(&is_called).filter(|(_, is_called)| **is_called);
        let mut starts = vec![0; self.0.len()];
        let mut len = 0;
        for ((index, function), _) in kept() {
            starts[index] = len;
            len += function.code.len();
        }
        let (mut instructions, mut infos) = (Vec::with_capacity(len), Vec::new());
        for ((index, function), _) in kept() {
            let start: usize = starts[index];
            infos.extend((start as u32).to_ne_bytes());
            infos.extend(&function.info);
            instructions.extend((start..).zip(&function.code).map(|(at, instruction)| {
                match *instruction {
                    Instruction::Plain(instruction) => instruction,
                    Instruction::Of(instruction, callee) => {
                        let distance = starts[callee] as i64 - at as i64 - 1;
                        instruction & WITHOUT_CONSTANT | (distance as u64) << 32
                    }
                }
            }));
        }
        (instructions, infos)
    }
}

impl Function {
    /// The instruction that a call can be replaced with, if the function only returns a number.
    fn number(&self) -> Option<u64> {
        /// `BPF_EXIT`, and `BPF_MOV` of a constant to the first register, in 32 and in 64 bits.
        const EXIT: u64 = 0x95;
        const MOVES: [u64; 2] = [0xb4, 0xb7];
        match self.code[..] {
            [Instruction::Plain(number), Instruction::Plain(EXIT)] => {
                MOVES.contains(&(number & !0 >> 32)).then_some(number)
            }
            _ => None,
        }
    }

    fn callees(&self) -> impl Iterator<Item = usize> {
        self.code.iter().filter_map(|instruction| match instruction {
            Instruction::Plain(_) => None,
            Instruction::Of(_, callee) => Some(*callee),
        })
    }
}

/// The call is of a function of the program.
const OF_PROGRAM: u64 = BPF_PSEUDO_CALL as u64;

const WITHOUT_CONSTANT: u64 = 0xffff_ffff;

/// The start of the function that an instruction calls, or takes the address of.
fn target(at: usize, instruction: u64) -> Option<usize> {
    /// `BPF_LD | BPF_IMM | BPF_DW`.
    const ADDRESS: (u8, u64) = (0x18, BPF_PSEUDO_FUNC as u64);
    let source = instruction >> 12 & 0xf;
    let code = instruction as u8;
    let is_it = (code, source) == (CALL, OF_PROGRAM) || (code, source) == ADDRESS;
    let distance = (instruction >> 32) as u32;
    is_it.then(|| (at as i64 + 1 + i64::from(distance.cast_signed())) as usize)
}

#[cfg(test)]
mod tests {
    use super::super::assembler::{Assembler, R0};
    use super::*;

    const NAMES: [&str; 3] = ["main", "mangled_sieve", "judge"];

    /// A call of a function of the program, over a distance.
    fn call(distance: i32) -> u64 {
        u64::from(CALL) | OF_PROGRAM << 12 | u64::from(distance.cast_unsigned()) << 32
    }

    /// Infos of functions that start there, with their index as type id.
    fn infos(starts: &[u32]) -> Vec<u8> {
        (0_u32..)
            .zip(starts)
            .flat_map(|(id, start)| [*start, id])
            .flat_map(u32::to_ne_bytes)
            .collect()
    }

    /// `main` calls the sieve, and the sieve calls `judge`.
    fn program() -> (Vec<u64>, Vec<u8>) {
        (vec![call(1), EXIT, call(1), EXIT, 1, EXIT], infos(&[0, 2, 4]))
    }

    const EXIT: u64 = 0x95;

    fn functions() -> Functions {
        let (instructions, infos) = program();
        Functions::of(&instructions, &infos, 8, |id| NAMES.get(id as usize).copied()).unwrap()
    }

    #[test]
    fn what_is_not_replaced_stays_as_it_is() {
        assert_eq!(functions().join(), program());
    }

    #[test]
    fn calls_follow_functions_that_move() {
        let mut functions = functions();
        let mut asm = Assembler::default();
        asm.set(R0, 1);
        asm.call("judge");
        asm.exit();
        functions.replace("sieve", &asm.finish().unwrap()).unwrap();
        let (instructions, joined) = functions.join();
        assert_eq!(joined, infos(&[0, 2, 5]));
        assert_eq!(instructions[0], call(1));
        assert_eq!(instructions[3..], [call(1), EXIT, 1, EXIT]);
    }

    #[test]
    fn functions_that_nobody_calls_are_removed() {
        let mut functions = functions();
        let mut asm = Assembler::default();
        asm.exit();
        functions.replace("sieve", &asm.finish().unwrap()).unwrap();
        assert_eq!(functions.join(), (vec![call(1), EXIT, EXIT], infos(&[0, 2])));
    }

    #[test]
    fn numbers_take_the_place_of_calls() {
        let mut functions = functions();
        let mut asm = Assembler::default();
        asm.set(R0, 7);
        asm.exit();
        functions.replace("sieve", &asm.finish().unwrap()).unwrap();
        let (instructions, joined) = functions.join();
        assert_eq!((instructions, joined), (vec![0xb7 | 7 << 32, EXIT], infos(&[0])));
    }

    #[test]
    fn a_program_without_the_function_is_left_alone() {
        assert_eq!(functions().replace("read_fields", &[]), None);
        let unknown = [Code::Call("unknown")];
        assert_eq!(functions().replace("sieve", &unknown), None);
        let (instructions, infos) = program();
        assert!(Functions::of(&instructions, &infos, 8, |_| None).is_none());
        // A call into the middle of a function.
        assert!(
            Functions::of(&[call(2), EXIT, 1, EXIT], &self::infos(&[0, 2]), 8, |_| Some(""))
                .is_none()
        );
    }
}
