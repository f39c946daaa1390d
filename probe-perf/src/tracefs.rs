//! Finding tracefs and its tracepoints.

use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MOUNT_POINT: &str = "/sys/kernel/tracing";

/// Returns where tracefs is mounted. Mounts it if necessary.
pub fn root() -> io::Result<PathBuf> {
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
        // Another process has just mounted it.
        Err(Errno::BUSY) => find()?.ok_or_else(|| Errno::BUSY.into()),
        Err(error) => Err(error.into()),
    }
}

/// Finds tracefs at the usual mount points.
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

/// Lists all tracepoints, as `category:name`.
pub fn tracepoints(root: &Path) -> Vec<String> {
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

    #[test]
    fn a_failed_mount_is_an_error_unless_another_process_has_mounted_it() {
        for (error, is_mounted, is_found) in [
            // Two tracers that start together both find none.
            (Errno::BUSY, true, true),
            (Errno::BUSY, false, false),
            (Errno::PERM, true, false),
        ] {
            let is_tried = Cell::new(false);
            let find = || Ok((is_tried.get() && is_mounted).then(|| PathBuf::from(MOUNT_POINT)));
            let root = find_or_mount(find, || {
                is_tried.set(true);
                Err(error)
            });
            let expected =
                if is_found { Ok(MOUNT_POINT.into()) } else { Err(error.raw_os_error()) };
            assert_eq!(root.map_err(|error| error.raw_os_error().unwrap()), expected);
        }
    }
}
