//! Tracefs: the ids and formats of tracepoints.

use super::error::TraceError;
use super::spec::ProbeSpec;
use super::symbols::nearest;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A mounted tracefs.
#[derive(Debug)]
pub(super) struct Tracefs {
    root: PathBuf,
}

const MOUNT_POINT: &str = "/sys/kernel/tracing";

impl Tracefs {
    /// Finds it where systems have it, or mounts it.
    pub(super) fn open() -> Result<Self, TraceError> {
        let tracefs = |source| TraceError::Tracefs { source };
        for root in [MOUNT_POINT, "/sys/kernel/debug/tracing"] {
            let events = Path::new(root).join("events");
            match fs::read_dir(&events) {
                Ok(_) => return Ok(Self { root: root.into() }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(tracefs(error));
                }
                Err(_) => {}
            }
        }
        rustix::mount::mount(
            "tracefs",
            MOUNT_POINT,
            "tracefs",
            rustix::mount::MountFlags::empty(),
            None,
        )
        .map_err(|errno| tracefs(errno.into()))?;
        log::info!("mounted tracefs on {MOUNT_POINT}");
        Ok(Self { root: MOUNT_POINT.into() })
    }

    /// Where it is mounted.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The id of a tracepoint, by which perf events name it.
    pub(super) fn id(&self, spec: &ProbeSpec) -> Result<u64, TraceError> {
        let path = self.event(spec)?.join("id");
        match fs::read_to_string(&path) {
            Ok(id) => id.trim().parse().map_err(|_| format_error(&path, "a number")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let near = nearest(spec.name(), self.all());
                Err(TraceError::UnknownTracepoint { spec: spec.clone(), near })
            }
            Err(source) => Err(TraceError::Tracefs { source }),
        }
    }

    /// Where a field stands in a tracepoint's data, in bytes.
    pub(super) fn field_offset(&self, spec: &ProbeSpec, field: &str) -> Result<u32, TraceError> {
        let path = self.event(spec)?.join("format");
        let format = fs::read_to_string(&path).map_err(|source| TraceError::Tracefs { source })?;
        offset_in(&format, field).ok_or_else(|| format_error(&path, "a field of that name"))
    }

    /// Names like a raw tracepoint's.
    pub(super) fn near_raw(&self, name: &str) -> Vec<String> {
        let names = self.all().into_iter();
        nearest(name, names.filter_map(|event| Some(event.split_once(':')?.1.to_owned())))
    }

    fn event(&self, spec: &ProbeSpec) -> Result<PathBuf, TraceError> {
        let (category, name) = spec.tracepoint().ok_or(TraceError::NoProbe)?;
        Ok(self.root.join("events").join(category).join(name))
    }

    /// All tracepoints, as `category:name`.
    fn all(&self) -> Vec<String> {
        let list = |path: &Path| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().is_dir()).collect::<Vec<_>>()
        };
        let mut names = Vec::new();
        for category in list(&self.root.join("events")) {
            for event in list(&category.path()) {
                let (category, event) = (category.file_name(), event.file_name());
                names.push(format!("{}:{}", category.display(), event.display()));
            }
        }
        names
    }
}

fn format_error(path: &Path, what: &'static str) -> TraceError {
    TraceError::Format { path: path.display().to_string(), what }
}

/// Reads "\tfield:pid_t old_pid;\toffset:16;\tsize:4;\tsigned:1;".
fn offset_in(format: &str, field: &str) -> Option<u32> {
    format.lines().find_map(|line| {
        let declaration = line.trim_start().strip_prefix("field:")?;
        let (declaration, rest) = declaration.split_once(';')?;
        let name = declaration.rsplit([' ', '*']).next()?.split('[').next()?;
        if name != field {
            return None;
        }
        let offset = rest.trim_start().strip_prefix("offset:")?.split(';').next()?;
        offset.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::offset_in;

    #[test]
    fn offsets_are_read_from_a_format() {
        let format = "name: sched_process_exec\nID: 273\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:pid_t old_pid;\toffset:16;\tsize:4;\tsigned:1;\n\
            \tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;\n";
        assert_eq!(offset_in(format, "filename"), Some(8));
        assert_eq!(offset_in(format, "old_pid"), Some(16));
        assert_eq!(offset_in(format, "comm"), Some(20));
        assert_eq!(offset_in(format, "pid"), None);
    }
}
