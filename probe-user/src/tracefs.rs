//! Tracefs: where it is, and which tracepoints it has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MOUNT_POINT: &str = "/sys/kernel/tracing";

/// Finds it where systems have it, or mounts it.
pub(crate) fn root() -> io::Result<PathBuf> {
    for root in [MOUNT_POINT, "/sys/kernel/debug/tracing"] {
        match fs::read_dir(Path::new(root).join("events")) {
            Ok(_) => return Ok(root.into()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            Err(_) => {}
        }
    }
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tracefs", MOUNT_POINT, "tracefs", flags, None)?;
    log::info!("mounted tracefs on {MOUNT_POINT}");
    Ok(MOUNT_POINT.into())
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
