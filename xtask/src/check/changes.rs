//! The packages that changed since a revision, and those affected by the change.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::{Workspace, git};

/// Files that affect every package, because they configure, build or check it. The path of a folder ends with a slash.
const OF_ALL: [&str; 9] = [
    ".cargo/",
    ".ci/",
    "Cargo.lock",
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "xtask/",
];

/// Files that packages read outside their own folders, with the names of those packages.
const READ_BY_OTHERS: [(&str, &[&str]); 14] = [
    ("bench/ebpf/bench.bpf.o", &["probe-bench"]),
    ("bench/src/payload.rs", &["bench-ebpf"]),
    ("docs/embedding.md", &["probe-user"]),
    ("docs/your-own-probe.md", &["xtask"]),
    ("fuzz/corpus/", &["probe-perf", "probe-sys", "probe-tracer", "probe-user"]),
    ("probe-ebpf/include/", &["probe-user"]),
    ("probe-user/examples/forks/ebpf/forks.bpf.o", &["probe-user"]),
    ("probe-user/examples/forks/record.rs", &["forks-ebpf"]),
    ("probe-user/tests/ebpf/numbered.bpf.c", &["probe-user"]),
    ("probe-user/tests/ebpf/suite.bpf.o", &["probe-perf", "probe-user"]),
    ("probe-user/tests/kernel/suite/", &["probe-perf", "suite-ebpf"]),
    ("template/", &["xtask"]),
    ("tracer/lib/ebpf/probe.bpf.o", &["xtask"]),
    ("tracer/lib/events.schema.json", &["probe-cli", "probe-fuzz", "probe-tracer"]),
];

/// The packages that a change concerns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// All packages, because this file changed.
    All(String),
    /// Some packages, by name.
    Packages {
        /// Packages whose own files changed.
        changed: BTreeSet<String>,
        /// The changed packages and all that depend on them, through any kind of dependency.
        affected: BTreeSet<String>,
    },
}

impl Changes {
    /// Compares the working tree, untracked files included, with `base`. The default is the merge base with the
    /// upstream branch, or `HEAD` without one.
    pub(crate) fn since(base: Option<&str>, workspace: &Workspace) -> Result<Self> {
        let base = match base {
            Some(base) => base.to_owned(),
            None => default_base()?,
        };
        let mut files = paths(git().args(["diff", "--name-only", "--no-renames", "-z", &base]))?;
        files.extend(paths(git().args(["ls-files", "--others", "--exclude-standard", "-z"]))?);
        Ok(Self::of(&files, &Member::all(workspace)?))
    }

    fn of(files: &[String], members: &[Member]) -> Self {
        if let Some(file) = files.iter().find(|file| OF_ALL.iter().any(|one| is_in(file, one))) {
            return Self::All(file.clone());
        }
        let mut changed = BTreeSet::new();
        for file in files {
            changed.extend(owner(file, members).map(|owner| owner.name.clone()));
            let readers = READ_BY_OTHERS.iter().filter(|(place, _)| is_in(file, place));
            changed
                .extend(readers.flat_map(|(_, names)| names.iter().map(|&name| name.to_owned())));
        }
        let mut affected = changed.clone();
        loop {
            let depends = |one: &&Member| one.dependencies.iter().any(|on| affected.contains(on));
            let more: Vec<_> = members.iter().filter(depends).map(|one| one.name.clone()).collect();
            let before = affected.len();
            affected.extend(more);
            if affected.len() == before {
                return Self::Packages { changed, affected };
            }
        }
    }

    /// Whether a package or one of its dependencies changed.
    pub(crate) fn affect(&self, package: &str) -> bool {
        match self {
            Self::All(_) => true,
            Self::Packages { affected, .. } => affected.contains(package),
        }
    }
}

/// A package of the workspace.
struct Member {
    name: String,
    /// Relative to the workspace root, with a trailing slash.
    folder: String,
    /// The workspace packages that it depends on.
    dependencies: Vec<String>,
}

impl Member {
    fn all(workspace: &Workspace) -> Result<Vec<Self>> {
        let root = workspace.metadata.workspace_root.as_path();
        let packages = workspace.metadata.workspace_packages();
        let members = packages.iter().map(|package| {
            let folder = package.manifest_path.parent().context("a manifest has a folder")?;
            let folder = folder.strip_prefix(root).context("a package is in the workspace")?;
            let own = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
            Ok(Self {
                name: package.name.to_string(),
                folder: format!("{folder}/"),
                dependencies: own.map(|dependency| dependency.name.clone()).collect(),
            })
        });
        members.collect()
    }
}

/// The package of a file.
fn owner<'m>(file: &str, members: &'m [Member]) -> Option<&'m Member> {
    // A package can be inside the folder of another one.
    let owners = members.iter().filter(|member| is_in(file, &member.folder));
    owners.max_by_key(|owner| owner.folder.len())
}

fn is_in(file: &str, place: &str) -> bool {
    match place.ends_with('/') {
        true => file.starts_with(place),
        false => file == place,
    }
}

fn default_base() -> Result<String> {
    let upstream = process::read(git().args(["merge-base", "HEAD", "@{upstream}"]));
    let head = |_| process::read(git().args(["rev-parse", "--verify", "HEAD"]));
    let base = upstream.or_else(head).context("this is not a git repository with a commit")?;
    Ok(base.trim().to_owned())
}

fn paths(command: &mut Command) -> Result<Vec<String>> {
    let printed = process::read(command).context("cannot list the changed files")?;
    Ok(printed.split_terminator('\0').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::{fs, slice};

    use super::*;
    use crate::workspace;

    fn of(files: &[&str]) -> Changes {
        let member = |name: &str, folder: &str, dependencies: &[&str]| Member {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: dependencies.iter().map(|&one| one.to_owned()).collect(),
        };
        let members = [
            member("probe-common", "probe-common/", &[]),
            member("probe-user", "probe-user/", &["probe-common", "probe-testing"]),
            member("suite-ebpf", "probe-user/tests/ebpf/", &["probe-common"]),
            member("probe-tracer", "tracer/lib/", &["probe-user"]),
            member("probe-testing", "testing/", &[]),
        ];
        let files: Vec<_> = files.iter().map(|&file| file.to_owned()).collect();
        Changes::of(&files, &members)
    }

    fn packages(changed: &[&str], affected: &[&str]) -> Changes {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Changes::Packages { changed: set(changed), affected: set(affected) }
    }

    #[test]
    fn dependents_of_a_changed_package_are_affected() {
        let user = packages(&["probe-user"], &["probe-user", "probe-tracer"]);
        assert_eq!(of(&["probe-user/src/lib.rs", "README.md"]), user);
        let common = ["probe-common", "probe-user", "suite-ebpf", "probe-tracer"];
        assert_eq!(of(&["probe-common/Cargo.toml"]), packages(&common[..1], &common));
        let testing = ["probe-testing", "probe-user", "probe-tracer"];
        assert_eq!(of(&["testing/src/skip.rs"]), packages(&testing[..1], &testing));
        assert!(of(&["probe-user/src/lib.rs"]).affect("probe-tracer"));
        assert!(!of(&["probe-user/src/lib.rs"]).affect("probe-common"));
    }

    #[test]
    fn a_file_belongs_to_the_innermost_package() {
        let suite = packages(&["suite-ebpf"], &["suite-ebpf"]);
        assert_eq!(of(&["probe-user/tests/ebpf/src/main.rs"]), suite);
    }

    #[test]
    fn files_outside_of_packages_change_those_that_read_them() {
        assert_eq!(of(&["README.md", "docs/tracing.md", ".gitignore"]), packages(&[], &[]));
        assert_eq!(of(&["template/build.rs"]), packages(&["xtask"], &["xtask"]));
        assert!(of(&["tracer/lib/events.schema.json"]).affect("probe-tracer"));
        assert!(of(&["fuzz/corpus/ring/empty"]).affect("probe-user"));
    }

    /// The files that a source file compiles, as far as they are named in full.
    fn compiled(source: &Path) -> Vec<PathBuf> {
        let text = fs::read_to_string(source).unwrap();
        let folder = source.parent().unwrap();
        let named = |begin| text.split(begin).skip(1).filter_map(|rest| rest.split('"').next());
        ["include_str!(\"", "include_bytes!(\"", "include_bytes_aligned!(\"", "#[path = \""]
            .into_iter()
            .flat_map(named)
            .filter_map(|file| folder.join(file).canonicalize().ok())
            .collect()
    }

    #[test]
    fn files_that_packages_compile_from_elsewhere_are_listed() {
        let members = Member::all(&Workspace::load().unwrap()).unwrap();
        let root = workspace::root().canonicalize().unwrap();
        let mut found = 0;
        for source in paths(git().args(["ls-files", "-z", "*.rs"])).unwrap() {
            let Some(reader) = owner(&source, &members) else { continue };
            for file in compiled(&root.join(&source)) {
                let file = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                let changes = Changes::of(slice::from_ref(&file), &members);
                let is_listed = match &changes {
                    Changes::All(_) => true,
                    Changes::Packages { changed, .. } => changed.contains(&reader.name),
                };
                assert!(is_listed, "{source} compiles {file}: list {}", reader.name);
                found += 1;
            }
        }
        assert!(found > 0);
    }

    #[test]
    fn build_settings_change_all_packages() {
        for file in ["Cargo.lock", "Cargo.toml", "xtask/src/main.rs", ".cargo/config.toml"] {
            let changes = of(&["probe-user/src/lib.rs", file]);
            assert_eq!(changes, Changes::All(file.to_owned()));
            assert!(changes.affect("probe-common"));
        }
    }

    #[test]
    fn the_workspaces_own_packages_are_known() {
        let members = Member::all(&Workspace::load().unwrap()).unwrap();
        let named = |name: &str| members.iter().find(|member| member.name == name);
        for (_, packages) in READ_BY_OTHERS {
            packages.iter().for_each(|name| assert!(named(name).is_some(), "{name}"));
        }
        let user = named("probe-user").unwrap();
        assert_eq!(user.folder, "probe-user/");
        assert!(user.dependencies.iter().any(|name| name == "probe-common"));
    }
}
