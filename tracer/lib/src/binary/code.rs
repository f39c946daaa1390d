//! Instruction boundaries. A breakpoint inside an instruction breaks the program, and the kernel does not check.

/// Whether `code`, the first bytes of a function, ends at an instruction boundary.
#[cfg(target_arch = "x86_64")]
pub(super) fn ends_with_instruction(code: &[u8]) -> bool {
    use iced_x86::{Decoder, DecoderOptions, Instruction};
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        // An instruction that continues past the end is invalid, too.
        if instruction.is_invalid() {
            return false;
        }
    }
    true
}

/// Whether `code`, the first bytes of a function, ends at an instruction boundary. All instructions have 4 bytes.
#[cfg(target_arch = "aarch64")]
pub(super) fn ends_with_instruction(code: &[u8]) -> bool {
    code.len().is_multiple_of(4)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::ends_with_instruction;

    #[test]
    fn instruction_boundaries_are_recognized() {
        // push rbp; mov rbp, rsp; mov rax, imm64; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3];
        let ends: Vec<_> =
            (0..=code.len()).filter(|&end| ends_with_instruction(&code[..end])).collect();
        assert_eq!(ends, [0, 1, 4, 14, 15]);
        // 0x06 is not a valid instruction in 64-bit mode.
        assert!(!ends_with_instruction(&[0x55, 0x06, 0x55]));
    }
}
