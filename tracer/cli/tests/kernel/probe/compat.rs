//! Programs that make 32-bit system calls, by `int $0x80`.

use probe_testing::skip::skip;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The width of a program's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Bits32,
    /// The high halves of its registers are not 0 in its system calls, which use the low ones.
    Bits64,
}

/// What the registers `bx`, `cx`, `dx` and `si` have in a system call.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    Number(i32),
    /// The address of the program's text.
    Text,
}

/// A 32-bit system call: its number and its arguments.
pub type Call = (i32, [Word; 4]);

/// A program on the disk.
pub struct Program {
    directory: TempDir,
}

const ADDRESS: u32 = 0x0040_0000;

impl Program {
    /// A program that makes these calls and exits, or begins again if it `repeats`.
    pub fn new(width: Width, text: &str, calls: &[Call], repeats: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let this = Self { directory };
        std::fs::write(this.path(), file(width, text, calls, repeats)).unwrap();
        std::fs::set_permissions(this.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        this
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    /// Whether the kernel runs programs that repeat nothing. If not, the test is skipped.
    pub fn runs(&self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        // Without 32-bit calls, `int $0x80` is a fault.
        let runs = Command::new(self.path()).status().is_ok_and(|it| it.signal().is_none());
        if !runs {
            skip("this kernel runs no 32-bit programs (CONFIG_IA32_EMULATION)");
        }
        runs
    }
}

fn file(width: Width, text: &str, calls: &[Call], repeats: bool) -> Vec<u8> {
    // The text follows the code, whose length does not depend on its address.
    let header: u32 = if width == Width::Bits32 { 52 + 32 } else { 64 + 56 };
    let length = code(width, 0, calls, repeats).len() as u32;
    let code = code(width, ADDRESS + header + length, calls, repeats);
    let (entry, size) = (ADDRESS + header, header + length + text.len() as u32 + 1);
    let (class, machine) = if width == Width::Bits32 { (1, 3) } else { (2, 62) };
    let mut file = b"\x7fELF\0\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0".to_vec();
    (file[4], file[18]) = (class, machine);
    let mut words = |words: &[u32]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    // The entry; the program headers; no sections and flags; sizes and counts of headers. Then a segment of code.
    match width {
        Width::Bits32 => {
            words(&[entry, 52, 0, 0, 52 | 32 << 16, 1, 0]);
            words(&[1, 0, ADDRESS, ADDRESS, size, size, 5, 0x1000]);
        }
        Width::Bits64 => {
            words(&[entry, 0, 64, 0, 0, 0, 0, 64 | 56 << 16, 1, 0]);
            words(&[1, 5, 0, 0, ADDRESS, 0, ADDRESS, 0, size, 0, size, 0, 0x1000, 0]);
        }
    }
    file.extend(code);
    file.extend(text.as_bytes());
    file.push(0);
    file
}

fn code(width: Width, text: u32, calls: &[Call], repeats: bool) -> Vec<u8> {
    const EXIT: Call = (1, [Word::Number(0); 4]);
    let mut code = Vec::new();
    for (number, arguments) in calls.iter().chain((!repeats).then_some(&EXIT)) {
        code.push(0xb8); // mov eax, number
        code.extend(number.to_le_bytes());
        for (register, argument) in [3, 1, 2, 6].into_iter().zip(arguments) {
            let value = match argument {
                Word::Number(number) => *number as u32,
                Word::Text => text,
            };
            if width == Width::Bits64 {
                code.push(0x48); // the prefix of 64-bit operands
            }
            code.push(0xb8 + register);
            code.extend(value.to_le_bytes());
            if width == Width::Bits64 {
                code.extend(0x7fff_1234_u32.to_le_bytes());
            }
        }
        code.extend([0xcd, 0x80]);
    }
    if repeats {
        code.push(0xe9); // jmp
        code.extend((-(code.len() as i32) - 4).to_le_bytes());
    }
    code
}
