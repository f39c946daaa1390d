//! Tracefs: where it is, and which tracepoints it has.

use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MOUNT_POINT: &str = "/sys/kernel/tracing";

/// Finds it where systems have it, or mounts it.
pub(crate) fn root() -> io::Result<PathBuf> {
    find_or_mount(mounted, || {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tracefs", MOUNT_POINT, "tracefs", flags, None)?;
        log::info!("mounted tracefs on {MOUNT_POINT}");
        Ok(())
    })
}

fn find_or_mount(
    find: impl Fn() -> io::Result<Option<PathBuf>>,
    mount: impl FnOnce() -> Result<(), Errno>,
) -> io::Result<PathBuf> {
    if let Some(root) = find()? {
        return Ok(root);
    }
    match mount() {
        Ok(()) => Ok(MOUNT_POINT.into()),
        // Another process mounts it, too, and was faster.
        Err(Errno::BUSY) => find()?.ok_or_else(|| Errno::BUSY.into()),
        Err(error) => Err(error.into()),
    }
}

/// Where it is, if it is where systems have it.
fn mounted() -> io::Result<Option<PathBuf>> {
    for root in [MOUNT_POINT, "/sys/kernel/debug/tracing"] {
        match fs::read_dir(Path::new(root).join("events")) {
            Ok(_) => return Ok(Some(root.into())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            Err(_) => {}
        }
    }
    Ok(None)
}

/// All tracepoints, as `category:name`.
pub(crate) fn tracepoints(root: &Path) -> Vec<String> {
    let list = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().is_dir()).collect::<Vec<_>>()
    };
    let mut names = Vec::new();
    for category in list(&root.join("events")) {
        for event in list(&category.path()) {
            let (category, event) = (category.file_name(), event.file_name());
            names.push(format!("{}:{}", category.display(), event.display()));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// What comes of a mount that fails, where it has been mounted once that is known, or not.
    fn after_failure(error: Errno, is_there_then: bool) -> io::Result<PathBuf> {
        let is_tried = Cell::new(false);
        let find = || Ok((is_tried.get() && is_there_then).then(|| PathBuf::from(MOUNT_POINT)));
        find_or_mount(find, || {
            is_tried.set(true);
            Err(error)
        })
    }

    /// Two tracers that start together both find none.
    #[test]
    fn what_another_has_mounted_meanwhile_is_found() {
        assert_eq!(after_failure(Errno::BUSY, true).unwrap(), Path::new(MOUNT_POINT));
    }

    #[test]
    fn what_cannot_be_mounted_is_an_error() {
        for (error, is_there_then) in [(Errno::BUSY, false), (Errno::PERM, true)] {
            let told = after_failure(error, is_there_then).unwrap_err();
            assert_eq!(told.raw_os_error(), Some(error.raw_os_error()));
        }
    }
}
