//! Checks for a release, besides the tests: complete packages, licences and advisories of dependencies, and semantic
//! versions. `docs/releasing.md` lists the steps.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::process;
use crate::say::Step;
use crate::setup::cache;
use crate::workspace::{Workspace, cargo, git};

/// A cargo subcommand. xtask installs this version if the machine has none.
struct Tool {
    /// `deny` for the package `cargo-deny`.
    name: &'static str,
    version: &'static str,
}

const DENY: Tool = Tool { name: "deny", version: "0.20.2" };
const SEMVER: Tool = Tool { name: "semver-checks", version: "0.51.0" };

#[derive(clap::Args)]
pub(crate) struct Package {
    /// Also build each package from its packaged files
    #[arg(long)]
    verify: bool,
}

impl Package {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut command = cargo();
        command.args(["package", "--allow-dirty"]);
        if !self.verify {
            command.arg("--no-verify");
        }
        for name in published(&Workspace::load()?) {
            command.args(["--package", &name]);
        }
        process::loud(&mut command)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Checks licences, sources and advisories of all dependencies against `deny.toml`.
pub(crate) fn deny() -> Result<ExitCode> {
    // Advisories come last, since only they need the network: a clone of the advisory database.
    let check = |checks: &[&str]| {
        let mut command = DENY.command()?;
        process::loud(command.args(["--workspace", "--all-features", "check"]).args(checks))
    };
    let offline = check(&["bans", "licenses", "sources"]);
    let online = check(&["advisories"]);
    offline.and(online)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct Semver {
    /// Revision to compare the public API with [default: the newest release tag]
    #[arg(long, value_name = "REV")]
    baseline: Option<String>,
}

impl Semver {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let baseline = match self.baseline {
            Some(baseline) => baseline,
            None => newest_release()?,
        };
        let mut command = SEMVER.command()?;
        command.args(["check-release", "--baseline-rev", &baseline]);
        let workspace = Workspace::load()?;
        for name in libraries(&workspace) {
            command.args(["--package", &name]);
        }
        process::loud(&mut command)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn newest_release() -> Result<String> {
    let tag = process::read(git().args(["describe", "--tags", "--abbrev=0", "--match", "v*"]));
    let tag = tag.context("found no release tag; pass a revision with --baseline")?;
    Ok(tag.trim().to_owned())
}

impl Tool {
    /// The cargo command, after installing the subcommand if it is missing.
    fn command(&self) -> Result<Command> {
        let mut command = cargo();
        let is_installed = process::quiet(cargo().args([self.name, "--version"])).is_ok();
        if !is_installed {
            let folder = self.install()?.join("bin");
            let path = std::env::var_os("PATH").unwrap_or_default();
            command.env("PATH", with(folder, &path)?);
        }
        command.arg(self.name);
        Ok(command)
    }

    fn install(&self) -> Result<PathBuf> {
        let Self { name, version } = self;
        let installed = cache()?.ensure(&format!("cargo-{name}/{version}"), |root| {
            let step = Step::begin(format_args!("installing cargo-{name} {version} (cargo)"));
            let mut install = cargo();
            install.args(["install", "--locked", "--version", version, "--root"]).arg(root);
            process::watched(install.arg(format!("cargo-{name}")), &step)
        });
        installed.with_context(|| {
            format!("cannot install cargo-{name}; try `cargo install cargo-{name}`")
        })
    }
}

/// Prepends a folder to a search path.
fn with(folder: PathBuf, path: &OsStr) -> Result<OsString> {
    Ok(std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(path)))?)
}

/// The published packages: those without `publish = false`.
fn published(workspace: &Workspace) -> Vec<String> {
    let packages = workspace.metadata.workspace_packages();
    let published = packages.iter().filter(|package| package.publish.is_none());
    published.map(|package| package.name.to_string()).collect()
}

/// The published libraries for this machine's target. The compiler cannot document those for eBPF.
fn libraries(workspace: &Workspace) -> Vec<String> {
    let default = workspace.metadata.workspace_default_packages();
    let is_library = |name: &String| {
        default.iter().any(|package| {
            *package.name == *name && package.targets.iter().any(|target| target.is_lib())
        })
    };
    published(workspace).into_iter().filter(is_library).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_and_ebpf_programs_are_not_published() {
        let workspace = Workspace::load().unwrap();
        let mut names = published(&workspace);
        names.sort_unstable();
        let expected = [
            "probe-build",
            "probe-cli",
            "probe-common",
            "probe-ebpf",
            "probe-perf",
            "probe-sys",
            "probe-tracer",
            "probe-tracer-common",
            "probe-user",
        ];
        assert_eq!(names, expected);
        let libraries = libraries(&workspace);
        assert!(!libraries.contains(&"probe-cli".to_owned()), "{libraries:?}");
        assert!(!libraries.contains(&"probe-ebpf".to_owned()), "{libraries:?}");
        assert_eq!(libraries.len(), 7);
    }

    #[test]
    fn published_packages_have_the_fields_that_crates_io_shows() {
        let workspace = Workspace::load().unwrap();
        let published = published(&workspace);
        for package in workspace.metadata.workspace_packages() {
            if published.iter().any(|name| *name == *package.name) {
                let Some(readme) = package.readme() else {
                    panic!("{} has no README", package.name)
                };
                assert!(readme.exists(), "{readme}");
                assert!(package.description.is_some() && package.license.is_some());
                assert!((1..=5).contains(&package.keywords.len()), "{}", package.name);
                assert!(!package.categories.is_empty(), "{}", package.name);
            }
        }
    }

    #[test]
    fn installed_tools_come_first_in_the_path() {
        let path = with("/c/bin".into(), OsStr::new("/usr/bin:/bin")).unwrap();
        assert_eq!(path, "/c/bin:/usr/bin:/bin");
    }
}
