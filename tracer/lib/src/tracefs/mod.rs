//! Tracefs, which has the ids and formats of tracepoints.

mod format;
pub(crate) mod syscall;

pub(crate) use format::{FIRST_ARGUMENT, FieldLocation, Format, FormatField};

use crate::error::{Result, TraceError};
use crate::spec::ProbeSpec;
use probe_perf::nearest::nearest;
use probe_perf::pattern::Glob;
use probe_perf::tracefs;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A mounted tracefs.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: PathBuf,
    /// What was made in it when this was first asked for, as `category:name`.
    dynamic: OnceCell<BTreeSet<String>>,
}

impl Tracefs {
    /// Finds tracefs at its usual mount points, or mounts it.
    pub(crate) fn open() -> Result<Self> {
        let root = tracefs::root().map_err(|source| TraceError::Tracefs { source })?;
        Ok(Self::at(root))
    }

    /// The tracefs in this directory.
    pub(crate) fn at(root: PathBuf) -> Self {
        Self { root, dynamic: OnceCell::new() }
    }

    /// The mount point.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of the list of traceable functions.
    pub(crate) fn traceable(&self) -> PathBuf {
        self.root.join("available_filter_functions")
    }

    /// The directory of a category of tracepoints, if there is one of this name.
    pub(crate) fn category(&self, name: &str) -> Option<PathBuf> {
        let path = self.root.join("events").join(name);
        (!name.starts_with('.') && path.is_dir()).then_some(path)
    }

    /// The id by which perf events refer to a tracepoint.
    pub(crate) fn id(&self, spec: &ProbeSpec) -> Result<u64> {
        let (path, id) = self.read(spec, "id")?;
        let path = || path.display().to_string();
        id.trim().parse().map_err(|_| TraceError::Format { path: path(), what: "a number" })
    }

    /// The format of a tracepoint's data.
    pub(crate) fn format(&self, spec: &ProbeSpec) -> Result<Format> {
        Ok(Format::parse(&self.read(spec, "format")?.1))
    }

    /// Reads a file of a tracepoint. Returns its path, too.
    fn read(&self, spec: &ProbeSpec, file: &str) -> Result<(PathBuf, String)> {
        let (category, name) = spec.tracepoint().ok_or(TraceError::NoProbe)?;
        if category == FORMATS {
            return Err(TraceError::NotHit { spec: spec.clone() });
        }
        if self.is_dynamic(spec.name()) {
            return Err(TraceError::Dynamic { spec: spec.clone() });
        }
        let name = self.own_name(category, name);
        let path = self.root.join("events").join(category).join(&*name).join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            // ENODEV while its module is unloaded.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
                let near = self.near(spec.name());
                Err(TraceError::UnknownTracepoint { spec: spec.clone(), near })
            }
            Err(source) => Err(TraceError::Tracefs { source }),
        }
    }

    /// The kernel's name of a tracepoint, which users may know by another name.
    pub(crate) fn own_name<'n>(&self, category: &str, name: &'n str) -> Cow<'n, str> {
        let events = self.root.join("events").join(category);
        let mut own = syscall::own_names(category, name).into_iter();
        own.find(|own| events.join(own).exists()).map_or(name.into(), Into::into)
    }

    /// The tracepoints that match, as `category:name`, sorted.
    pub(crate) fn matching(&self, glob: &Glob) -> Vec<String> {
        matching(self.all(), glob)
    }

    /// Tracepoints whose names are similar to `category:name`.
    pub(crate) fn near(&self, name: &str) -> Vec<String> {
        near(name, self.all())
    }

    /// What is meant by the name of a raw tracepoint that does not exist: the tracepoint of this name, or similar names.
    pub(crate) fn near_raw(&self, name: &str) -> Vec<String> {
        near_raw(name, &self.all())
    }

    /// The names of raw tracepoints, as far as they are those of tracepoints.
    pub(crate) fn raw_names(&self) -> Vec<String> {
        raw_names(&self.all())
    }

    /// All tracepoints of the kernel, as `category:name`.
    fn all(&self) -> Vec<String> {
        let mut all = tracefs::tracepoints(&self.root);
        all.retain(|name| !self.is_dynamic(name));
        all
    }

    /// Whether `category:name` looks like a tracepoint, but was made in tracefs, for a function or by a program. Other programs
    /// are attached to that, if any are.
    fn is_dynamic(&self, name: &str) -> bool {
        let list = || fs::read_to_string(self.root.join("dynamic_events")).unwrap_or_default();
        let is_of_program =
            name.split_once(':').is_some_and(|(category, _)| OF_PROGRAMS.contains(&category));
        is_of_program || self.dynamic.get_or_init(|| dynamic(&list())).contains(name)
    }
}

/// The categories of the events that programs make (user_events). In the second, the kernel appends a number to each name,
/// which the list of dynamic events does not have.
const OF_PROGRAMS: [&str; 2] = ["user_events", "user_events_multi"];

/// The names in a list of dynamic events: `p:GROUP/NAME ...`, `r8:GROUP/NAME ...`, `s:NAME ...`. Those [of
/// programs](OF_PROGRAMS) are left out.
fn dynamic(list: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (kind, rest) = line.split_once(':')?;
        let name = rest.split_ascii_whitespace().next()?;
        match name.split_once('/') {
            Some((group, name)) => Some(format!("{group}:{name}")),
            None => kind.starts_with('s').then(|| format!("synthetic:{name}")),
        }
    };
    list.lines().filter_map(name).collect()
}

/// A system call's name stands for its entry.
fn near(name: &str, all: Vec<String>) -> Vec<String> {
    let entry = name.strip_prefix("syscalls:").map(|call| format!("syscalls:sys_enter_{call}"));
    match entry.filter(|entry| all.contains(entry)) {
        Some(entry) => vec![entry],
        None => nearest(name, all),
    }
}

fn near_raw(name: &str, all: &[String]) -> Vec<String> {
    let is_same = |event: &&String| event.split_once(':').is_some_and(|(_, own)| own == name);
    let same = all.iter().filter(is_same).map(|event| format!("tracepoint:{event}"));
    let same: Vec<_> = same.collect();
    if same.is_empty() { nearest(name, raw_names(all)) } else { same }
}

/// The category of ftrace's own entries, which are only formats of its buffer: they are never hit.
const FORMATS: &str = "ftrace";

/// Two raw tracepoints serve all system calls.
fn raw_names(all: &[String]) -> Vec<String> {
    let names = all.iter().filter_map(|event| match event.split_once(':')? {
        ("syscalls" | FORMATS, _) => None,
        (_, name) => Some(name.to_owned()),
    });
    names.collect()
}

/// The tracepoints that match, out of these, as `category:name`, sorted.
fn matching(all: Vec<String>, glob: &Glob) -> Vec<String> {
    let all: BTreeSet<_> = all.into_iter().collect();
    let is_hidden = |name: &str| syscall::newer(name).iter().any(|newer| all.contains(newer));
    // Another name of a tracepoint counts unless it is the name of a tracepoint that can be hit.
    let is_known = |name: &String| glob.matches(name) && (!all.contains(name) || is_hidden(name));
    let is_format = |name: &str| name.split_once(':').is_some_and(|(of, _)| of == FORMATS);
    let is_hit = |name: &&String| {
        !is_format(name)
            && !is_hidden(name)
            && (glob.matches(name) || syscall::known_as(name).iter().any(is_known))
    };
    all.iter().filter(is_hit).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_call_stands_for_its_entry() {
        let all = ["sys_enter_open", "sys_exit_open", "sys_exit_openat"];
        let all = all.map(|name| format!("syscalls:{name}"));
        assert_eq!(near("syscalls:open", all.to_vec()), ["syscalls:sys_enter_open"]);
        assert_eq!(near("syscalls:sys_exit_opena", all.to_vec())[0], "syscalls:sys_exit_openat");
    }

    #[test]
    fn dynamic_events_are_not_kernel_tracepoints() {
        let list = "p:kprobes/read vfs_read count=%dx\nr8:probe/read__return vfs_read\np:uprobes/main /bin/a:0x10\n\
                    s:wakeup pid_t pid; u64 lat\ne:eprobes/x sched.sched_switch\nu:agent u32 a\n\n";
        let expected =
            ["eprobes:x", "kprobes:read", "probe:read__return", "synthetic:wakeup", "uprobes:main"];
        assert!(dynamic(list).iter().eq(&expected));
        let root = tempfile::tempdir().unwrap();
        for name in ["kprobes/read", "sched/read", "user_events/read", "user_events_multi/read.0"] {
            let path = root.path().join("events").join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("id"), "7\n").unwrap();
        }
        fs::write(root.path().join("dynamic_events"), list).unwrap();
        let tracefs = Tracefs::at(root.path().to_owned());
        assert_eq!(tracefs.matching(&Glob::new("*:read*").unwrap()), ["sched:read"]);
        assert_eq!(tracefs.raw_names(), ["read"]);
        assert_eq!(tracefs.id(&"t:sched:read".parse().unwrap()).unwrap(), 7);
        for name in ["kprobes:read", "user_events:read", "user_events_multi:read.0"] {
            let error = tracefs.id(&format!("t:{name}").parse().unwrap()).unwrap_err();
            assert!(error.to_string().contains("perf probe"), "{error}");
        }
    }

    #[test]
    fn tracepoints_are_found() {
        let all = ["sched:b", "sched:a", "ftrace:a", "tcp:a", "sched:a"].map(str::to_owned);
        let found = |pattern| matching(all.to_vec(), &Glob::new(pattern).unwrap());
        assert_eq!(found("*:a"), ["sched:a", "tcp:a"]);
        assert_eq!(found("sched:*"), ["sched:a", "sched:b"]);
        assert_eq!(found("x:*"), [""; 0]);
    }

    #[test]
    fn raw_tracepoints_are_not_those_of_single_system_calls() {
        let all = ["syscalls:sys_enter_openat", "raw_syscalls:sys_enter", "9p:9p_client_req"];
        let all = all.map(str::to_owned);
        assert_eq!(raw_names(&all), ["sys_enter", "9p_client_req"]);
        let openat = ["tracepoint:syscalls:sys_enter_openat"];
        assert_eq!(near_raw("sys_enter_openat", &all), openat);
        assert_eq!(near_raw("sys_entre", &all), ["sys_enter"]);
    }

    #[test]
    fn system_calls_are_found_by_the_names_in_manual_pages() {
        let own =
            ["newuname", "uname", "getdents", "getdents64", "umount", "sendfile", "sendfile64"];
        let all: Vec<_> = own.map(|name| format!("syscalls:sys_enter_{name}")).into();
        for (pattern, expected) in [
            ("uname", &["newuname"][..]),
            ("newuname", &["newuname"]),
            ("*uname", &["newuname"]),
            ("sendfile", &["sendfile64"]),
            ("umount*", &["umount"]),
            ("umount2", &["umount"]),
            ("getdents", &["getdents"]),
            ("getdents*", &["getdents", "getdents64"]),
        ] {
            let glob = Glob::new(&format!("syscalls:sys_*_{pattern}")).unwrap();
            let expected = expected.iter().map(|name| format!("syscalls:sys_enter_{name}"));
            assert_eq!(matching(all.clone(), &glob), expected.collect::<Vec<_>>(), "{pattern}");
        }
    }

    #[test]
    fn a_name_in_manual_pages_leads_to_the_kernels() {
        let root = tempfile::tempdir().unwrap();
        for name in ["newuname", "uname", "umount", "getdents", "getdents64", "sendfile64"] {
            let path = root.path().join(format!("events/syscalls/sys_exit_{name}"));
            fs::create_dir_all(path).unwrap();
        }
        let tracefs = Tracefs::at(root.path().to_owned());
        for (name, own) in [
            ("uname", "newuname"),
            ("sendfile", "sendfile64"),
            ("umount2", "umount"),
            ("umount", "umount"),
            ("getdents", "getdents"),
            ("none", "none"),
        ] {
            let [name, own] = [name, own].map(|name| format!("sys_exit_{name}"));
            assert_eq!(tracefs.own_name("syscalls", &name), own);
            assert_eq!(tracefs.own_name("sched", &name), name);
        }
    }
}
