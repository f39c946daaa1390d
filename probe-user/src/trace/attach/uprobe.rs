//! Uprobes: a perf event each, at an offset of a file, whoever runs it.

use super::super::binary::{Binary, BinaryError};
use super::super::error::TraceError;
use super::super::features;
use super::super::spec::{ProbeSpec, Provider};
use super::{Attacher, Link};
use crate::sys::perf_event::PerfEvent;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Attacher<'_> {
    pub(super) fn uprobe(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        let (path, offset) = self.file_place(spec)?;
        self.uprobe_at(spec, &path, offset, number)
    }

    /// The same at an offset of a file.
    pub(in super::super) fn uprobe_at(
        &mut self,
        spec: &ProbeSpec,
        path: &Path,
        offset: u64,
        number: u32,
    ) -> Result<Link, TraceError> {
        let returns = spec.provider() == Provider::Uretprobe;
        // What these programs are given are the registers, whoever's they are.
        let sort = if returns { "kretprobe" } else { "kprobe" };
        self.uprobe_as(spec, (path, offset), sort, returns, number)
    }

    /// Where a function is entered, and where it returns, to be dropped in this order.
    pub(super) fn uprobe_call(
        &mut self,
        spec: &ProbeSpec,
        number: u32,
    ) -> Result<Vec<Link>, TraceError> {
        let (path, offset) = self.file_place(spec)?;
        let place = (path.as_path(), offset);
        // As with kprobes, the return first.
        let returned = self.uprobe_as(spec, place, "call_return", true, number)?;
        Ok(vec![self.uprobe_as(spec, place, "call_entry", false, number)?, returned])
    }

    fn uprobe_as(
        &mut self,
        spec: &ProbeSpec,
        (path, offset): (&Path, u64),
        sort: &str,
        returns: bool,
        number: u32,
    ) -> Result<Link, TraceError> {
        let pmu =
            features::uprobe_pmu().ok_or_else(|| TraceError::NoUprobes { spec: spec.clone() })?;
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|error| TraceError::Attach { spec: spec.clone(), source: error.into() })?;
        let event = PerfEvent::uprobe(pmu, &c_path, offset, returns)
            .map_err(|error| why(spec, path, error))?;
        self.perf_event(spec, event, sort, number)
    }

    /// Which file a spec means, and which place in it, in bytes from its beginning.
    fn file_place(&mut self, spec: &ProbeSpec) -> Result<(PathBuf, u64), TraceError> {
        let failed = |source| TraceError::Binary { spec: spec.clone(), source };
        let binary = self.binary(spec.module().unwrap_or_default()).map_err(failed)?;
        let offset = binary.place(spec.name(), spec.offset()).map_err(failed)?;
        Ok((binary.path().to_owned(), offset))
    }

    /// A file, read once.
    fn binary(&mut self, name: &str) -> Result<&Binary, BinaryError> {
        Ok(match self.binaries.entry(name.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(Binary::open(name)?),
        })
    }
}

/// The kernel's errno says little: what it means, its sources tell (`uprobe_register` and what it calls).
fn why(spec: &ProbeSpec, path: &Path, source: io::Error) -> TraceError {
    /// `ENOTSUPP`, which user space should not see.
    const NOT_SUPPORTED: i32 = 524;
    let path = path.to_owned();
    let source = match source.raw_os_error() {
        Some(libc::EIO) => BinaryError::FileSystem { path, source },
        Some(libc::EINVAL | libc::ENOEXEC | libc::EILSEQ | libc::EOPNOTSUPP | NOT_SUPPORTED) => {
            BinaryError::NoPlace { path, source }
        }
        _ => return TraceError::Attach { spec: spec.clone(), source },
    };
    TraceError::Binary { spec: spec.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_explained() {
        let spec: ProbeSpec = "u:a:f".parse().unwrap();
        let told =
            |errno| why(&spec, Path::new("/a"), io::Error::from_raw_os_error(errno)).to_string();
        for errno in [libc::EINVAL, 524] {
            let start =
                "cannot probe uprobe:a:f: the kernel takes no probe on this instruction of /a (";
            assert!(told(errno).starts_with(start), "{}", told(errno));
        }
        assert!(told(libc::EIO).contains("the kernel takes no probes in the file system of /a ("));
        assert!(told(libc::EACCES).starts_with("cannot attach uprobe:a:f: Permission denied"));
    }
}
