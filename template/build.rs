//! Builds the eBPF crate. The path of its object is then in `env!("EBPF_OBJECT")`.

fn main() -> std::process::ExitCode {
    probe_build::main("ebpf")
}
