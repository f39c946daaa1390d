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
const READ_BY_OTHERS: [(&str, &[&str]); 2] = [
    ("tracer/lib/events.schema.json", &["probe-cli", "probe-fuzz", "probe-tracer"]),
    ("fuzz/corpus/", &["probe-perf", "probe-sys", "probe-tracer", "probe-user"]),
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
        let is_in = |file: &str, place: &str| match place.ends_with('/') {
            true => file.starts_with(place),
            false => file == place,
        };
        if let Some(file) = files.iter().find(|file| OF_ALL.iter().any(|one| is_in(file, one))) {
            return Self::All(file.clone());
        }
        let mut changed = BTreeSet::new();
        for file in files {
            // A package can be inside the folder of another one.
            let owners = members.iter().filter(|member| is_in(file, &member.folder));
            changed
                .extend(owners.max_by_key(|owner| owner.folder.len()).map(|one| one.name.clone()));
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
    use super::*;

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
        assert!(of(&["tracer/lib/events.schema.json"]).affect("probe-tracer"));
        assert!(of(&["fuzz/corpus/ring/empty"]).affect("probe-user"));
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
