//! Programs and lists of generated code, with names for addresses.

use crate::binary::read_for_probes;
use crate::binary::reader::{Kind, Parsed};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write;

/// The input is a program that is its own debug information and DWARF package, and a list of generated code. Each
/// is read as in the process that reads untrusted files, and whatever has names there is shown. The program is also read as one
/// in which functions are probed, which has its own symbols in another file.
pub fn symbols(data: &[u8]) {
    let file = || {
        let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC).expect("a file"));
        file.write_all(data).expect("memory takes everything");
        file
    };
    for kind in [Kind::Program, Kind::PerfMap] {
        let parsed = Parsed::of(kind, &file(), &mut |_| (vec![file()], Some(file())).into());
        for address in [0, 1, 64, 0x1000, data.len() as u64, u64::MAX] {
            parsed.functions(address).iter().for_each(assert_valid);
        }
    }
    read_for_probes(&file(), &file());
}

fn assert_valid(function: &crate::binary::reader::Function) {
    assert!(
        function.name.len() <= 4096 && function.source.iter().all(|(file, _)| file.len() <= 4096)
    );
}
