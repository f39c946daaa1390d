//! Builds, runs and tests the workspace: `cargo xtask --help`.

mod bench;
mod check;
mod ebpf;
mod fuzz;
mod process;
mod release;
mod report;
mod run;
mod say;
mod setup;
mod template;
mod test;
mod vm;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build, run and test the workspace", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Benchmark the event pipe against libbpf and aya, or the tracer against bpftrace, on this machine
    Bench(bench::Args),
    /// Build the checked-in eBPF objects
    BuildEbpf {
        /// Compare the checked-in objects with a new build and write nothing
        #[arg(long)]
        check: bool,
    },
    /// Check formatting and lints, and test the packages that changed
    Check(check::Args),
    /// Check the licences, sources and advisories of all dependencies with cargo-deny
    Deny,
    /// Fuzz the parsers of kernel data
    Fuzz(fuzz::Args),
    /// Create a project outside this repository that emits and prints events
    New(template::Args),
    /// Package the crates that are published
    Package(release::Package),
    /// Run `probe` on this machine if possible, otherwise in a virtual machine
    Run(run::Args),
    /// Compare the public API with the newest release, using cargo-semver-checks
    Semver(release::Semver),
    /// Run every check: formatting, lints, documentation, and tests on this machine and on every kernel
    Test(test::Args),
    /// Run a command as root in a virtual machine
    Vm(vm::Args),
}

fn main() -> ExitCode {
    match Cli::parse().task.run() {
        Ok(code) => code,
        Err(error) => {
            say::line(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Task {
    fn run(self) -> Result<ExitCode> {
        match self {
            Self::Bench(args) => args.run(),
            Self::BuildEbpf { check } => ebpf::task(check),
            Self::Check(args) => args.run(),
            Self::Deny => release::deny(),
            Self::Fuzz(args) => args.run(),
            Self::New(args) => args.run(),
            Self::Package(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Semver(args) => args.run(),
            Self::Test(args) => args.run(),
            Self::Vm(args) => args.run(),
        }
    }
}
