//! The kernel's own trace (`Documentation/trace/ftrace.rst`).

use std::path::{Path, PathBuf};
use std::{fs, io};

pub const TRACEFS: &str = "/sys/kernel/tracing";

const WORK: &str = "ls -l /etc /proc/self >/dev/null; cat /etc/passwd | sort | uniq >/dev/null; \
    mkdir -p $dir/a; echo x >$dir/a/b; mv $dir/a/b $dir/a/c; sleep 0.05; rm -r $dir/a; \
    (kill -USR1 $$; exit 3)";

/// An instance, which is removed when it is dropped.
pub struct Instance(PathBuf);

impl Instance {
    pub fn new() -> io::Result<Self> {
        let folder =
            Path::new(TRACEFS).join(format!("instances/probe_test_{}", std::process::id()));
        fs::create_dir(&folder)?;
        let instance = Self(folder);
        instance.write("tracing_on", "0");
        Ok(instance)
    }

    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    /// A script that records what some commands do, which work in a folder. Recording starts and ends in the middle of the
    /// shell's own work.
    pub fn work(&self, folder: &Path) -> String {
        let (folder, switch) = (folder.display(), self.0.join("tracing_on"));
        format!("trap : USR1; dir={folder}; echo 1 >{0}; {WORK}; echo 0 >{0}", switch.display())
    }

    /// The recorded hits.
    pub fn hits(&self) -> Vec<Hit> {
        let text = fs::read(self.0.join("trace")).unwrap();
        String::from_utf8_lossy(&text).lines().filter_map(Hit::parse).collect()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// A line of the kernel's trace: `comm-tid [cpu] flags time: name: field=value field=value …`.
pub struct Hit {
    pub tid: u64,
    pub event: String,
    /// They begin with a blank.
    pub fields: String,
}

impl Hit {
    fn parse(line: &str) -> Option<Self> {
        let (task, rest) = line.split_once(" [")?;
        let (_, tid) = task.trim_end().rsplit_once('-')?;
        let mut words = rest.split_once(": ")?.1.splitn(2, ": ");
        let event = words.next()?.to_owned();
        Some(Self { tid: tid.parse().ok()?, event, fields: format!(" {}", words.next()?) })
    }

    /// The kernel's text for a field; `others` are the names of all fields of the event.
    pub fn field(&self, name: &str, others: &[String]) -> Option<&str> {
        let (_, rest) = self.fields.split_once(&format!(" {name}="))?;
        let ends = others.iter().filter_map(|other| rest.find(&format!(" {other}=")));
        Some(rest[..ends.min().unwrap_or(rest.len())].trim())
    }
}
