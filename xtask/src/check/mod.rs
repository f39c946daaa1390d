//! `cargo xtask check`: checks a change within two minutes.
//!
//! Lints and documentation cover all packages, with the features of `cargo xtask test`: cargo rebuilds only what
//! changed and what depends on it, and both commands share one build. Unit tests, and steps with a build of their own,
//! cover only the packages that the change concerns.

mod changes;
pub(crate) mod structure;

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Result;

use self::changes::Changes;
use crate::ebpf::object::Object;
use crate::report::Report;
use crate::report::libtest::{self, Counts};
use crate::workspace::{FEATURES, Workspace, cargo, cargo_quiet};
use crate::{bench, ebpf, process, say};

const DENY: [&str; 3] = ["--", "-D", "warnings"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Revision to compare the working tree with [default: the merge base with the upstream branch, or HEAD]
    #[arg(long, value_name = "REV")]
    base: Option<String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let workspace = Workspace::load()?;
        let changes = Changes::since(self.base.as_deref(), &workspace)?;
        say::line(match &changes {
            Changes::All(file) => format!("checking everything, because {file} changed"),
            Changes::Packages { changed, .. } if changed.is_empty() => {
                "no package changed".to_owned()
            }
            Changes::Packages { changed, affected } => {
                let names = |set: &BTreeSet<String>| {
                    set.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
                };
                format!("{} changed; affected: {}", names(changed), names(affected))
            }
        });

        let mut report = Report::default();
        report.check("fmt", format);
        report.check("clippy", clippy);
        if changes.affect("probe-user") {
            report.check("clippy, features of the pipe", clippy_features);
        }
        if changes.affect(bench::NAME) {
            report.check("clippy, benchmark", clippy_bench);
        }
        if changes.affect("probe-fuzz") {
            report.check("clippy, fuzz targets", clippy_fuzz);
        }
        let objects = Object::all(&workspace)?;
        if objects.iter().any(|object| changes.affect(&object.package)) {
            report.check("clippy, eBPF", || ebpf::clippy(&workspace));
            report.check("eBPF objects", || ebpf::check_manifest(&workspace));
        }
        report.check("structure", structure::check);
        report.check("doc", document);
        let tested = tested(&changes, &workspace);
        if tested.as_ref().is_none_or(|packages| !packages.is_empty()) {
            // A test run would go on with what this builds.
            let _lock = workspace.lock()?;
            report.step("unit and doc tests", || unit_tests(tested));
        }
        Ok(report.finish())
    }
}

/// The packages whose unit tests run. `None` stands for all packages.
fn tested(changes: &Changes, workspace: &Workspace) -> Option<Vec<String>> {
    let Changes::Packages { changed, .. } = changes else { return None };
    // The other packages are built for another target or have steps of their own.
    let default = workspace.metadata.workspace_default_packages();
    let names = default.iter().map(|package| package.name.to_string());
    Some(names.filter(|name| changed.contains(name)).collect())
}

/// Runs the unit and doc tests of these packages, or of all. Tests that need a kernel are `#[ignore]`d.
pub(crate) fn unit_tests(packages: Option<Vec<String>>) -> Result<Counts> {
    let mut command = cargo_quiet("test");
    command.arg("--no-fail-fast");
    // Cargo rejects features of packages that are not selected.
    if packages.as_ref().is_none_or(|packages| packages.iter().any(|name| name == "probe-user")) {
        command.args(FEATURES);
    }
    for package in packages.into_iter().flatten() {
        command.args(["--package", &package]);
    }
    libtest::run(command.args(["--", "--show-output"]))
}

pub(crate) fn format() -> Result<()> {
    process::loud(cargo().args(["fmt", "--all", "--check"]))
}

/// Lints the packages for this machine's target, with all features of the pipe.
pub(crate) fn clippy() -> Result<()> {
    lint(&[&["--all-targets"], &FEATURES[..]].concat())
}

/// Lints the pipe with fewer features.
pub(crate) fn clippy_features() -> Result<()> {
    let pipe = ["--package", "probe-user", "--all-targets", "--no-default-features", "--features"];
    ["", "aya", "tokio"]
        .into_iter()
        .try_for_each(|features| lint(&[&pipe[..], &[features]].concat()))
}

pub(crate) fn clippy_bench() -> Result<()> {
    lint(&bench::packages())
}

pub(crate) fn clippy_fuzz() -> Result<()> {
    lint(&["--package", "probe-fuzz"])
}

pub(crate) fn document() -> Result<()> {
    let mut doc = cargo_quiet("doc");
    doc.env("RUSTDOCFLAGS", "-Dwarnings");
    process::loud(doc.arg("--no-deps").args(FEATURES))
}

fn lint(options: &[&str]) -> Result<()> {
    process::loud(cargo_quiet("clippy").args(options).args(DENY))
}
