//! Tracefs: the ids and formats of tracepoints.

mod format;

pub(super) use format::{Format, FormatField, Place};

use super::error::TraceError;
use super::glob::{self, Glob};
use super::spec::ProbeSpec;
use super::symbols::nearest;
use crate::tracefs;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A mounted tracefs.
#[derive(Debug)]
pub(super) struct Tracefs {
    root: PathBuf,
}

impl Tracefs {
    /// Finds it where systems have it, or mounts it.
    pub(super) fn open() -> Result<Self, TraceError> {
        let root = tracefs::root().map_err(|source| TraceError::Tracefs { source })?;
        Ok(Self { root })
    }

    /// The one that was opened before, or else opens it, and keeps it for the next time.
    pub(super) fn opened(kept: &mut Option<Self>) -> Result<&Self, TraceError> {
        let tracefs = match kept.take() {
            Some(tracefs) => tracefs,
            None => Self::open()?,
        };
        Ok(kept.insert(tracefs))
    }

    /// Where it is mounted.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The id of a tracepoint, by which perf events name it.
    pub(super) fn id(&self, spec: &ProbeSpec) -> Result<u64, TraceError> {
        let (path, id) = self.read(spec, "id")?;
        id.trim().parse().map_err(|_| format_error(&path, "a number"))
    }

    /// What a tracepoint's data is made of.
    pub(super) fn format(&self, spec: &ProbeSpec) -> Result<Format, TraceError> {
        Ok(Format::parse(&self.read(spec, "format")?.1))
    }

    /// A file of a tracepoint, with its path.
    fn read(&self, spec: &ProbeSpec, file: &str) -> Result<(PathBuf, String), TraceError> {
        let path = self.event(spec)?.join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let near = nearest(spec.name(), self.all());
                Err(TraceError::UnknownTracepoint { spec: spec.clone(), near })
            }
            Err(source) => Err(TraceError::Tracefs { source }),
        }
    }

    /// Tracepoints that match, as `category:name`, in order.
    pub(super) fn matching(&self, glob: &Glob) -> Vec<String> {
        glob::tracepoints(self.all(), glob)
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
        tracefs::tracepoints(&self.root)
    }
}

fn format_error(path: &Path, what: &'static str) -> TraceError {
    TraceError::Format { path: path.display().to_string(), what }
}
