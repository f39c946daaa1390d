//! Builds, runs and tests the workspace: `cargo xtask --help`.

mod apt;
mod bench;
mod builder;
mod cache;
mod ebpf;
mod fuzz;
mod guest;
mod host;
mod interrupt;
mod kernel;
mod kvm;
mod libtest;
mod machine;
mod manifest;
mod module;
mod object;
mod process;
mod python;
mod report;
mod run;
mod say;
mod splat;
mod strip;
mod suite;
mod test;
mod toolchain;
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
    /// Measure the event pipe beside libbpf and aya, or the tracer beside bpftrace, on this machine
    Bench(bench::Args),
    /// Build the eBPF objects that are checked in
    BuildEbpf {
        /// Compare the checked-in objects with a new build, write nothing
        #[arg(long)]
        check: bool,
    },
    /// Give arbitrary bytes to what reads the kernel's
    Fuzz(fuzz::Args),
    /// Run `probe`, on this machine if it can, else in a virtual machine
    Run(run::Args),
    /// Run every check: formatting, lints, documentation, tests here and in every kernel
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
            Self::Fuzz(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Test(args) => args.run(),
            Self::Vm(args) => args.run(),
        }
    }
}
