//! Takes DWARF out of an object: what BTF is made from, which no loader reads.

use anyhow::{Context, Result};
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;

pub(crate) fn debug_sections(object: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(object).context("no ELF object")?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        if name.starts_with(b".debug_") || name.starts_with(b".rel.debug_") {
            section.delete = true;
        }
    }
    // LLVM keeps section names among the symbols' names, which the writer cannot.
    let own = builder.sections.iter().any(|section| section.name.as_slice() == b".shstrtab");
    if !own {
        let names = builder.sections.add();
        names.name = b".shstrtab"[..].into();
        names.sh_type = SHT_STRTAB;
        names.sh_addralign = 1;
        names.data = SectionData::SectionString;
    }
    builder.delete_orphans();
    builder.delete_unused_versions();
    let mut stripped = Vec::new();
    builder.write(&mut stripped).context("cannot write an ELF object")?;
    Ok(stripped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_object_has_been_stripped() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe-user/ebpf/probe.bpf.o");
        let object = std::fs::read(path).unwrap();
        assert!(!object.windows(7).any(|window| window == b".debug_"));
        assert!(object.windows(8).any(|window| window == b".BTF.ext"));
        assert_eq!(debug_sections(&object).unwrap(), object);
    }

    #[test]
    fn only_objects_are_stripped() {
        assert!(debug_sections(b"no object").is_err());
    }
}
