//! Modules: their raw tracepoints, whose types are the modules' own, and names of functions of those that are loaded during a
//! trace. In virtual machines, the root is a file system of the module `9p`, and every access to a file is a request with a
//! tracepoint in `9pnet`.

use crate::probe::chain::functions;
use crate::probe::{binary, events, printed};
use probe_testing::aux_module::MISSING;
use probe_testing::skip::skip;
use probe_testing::version;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

const FORMATTED: &str = "tracepoint:9p:9p_client_req";
const RAW: &str = "rawtp:9p_client_req";

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn raw_tracepoints_of_modules_have_the_values_of_their_tracepoints() {
    if !Path::new("/sys/module/9pnet").exists() {
        return skip("this machine has no file system of the module 9p");
    }
    assert_eq!(printed(["list", "rawtp:9p_client_re[q]"]), format!("{RAW}\n"));
    let has_types = version::kernel() >= (5, 11);
    assert_eq!(Path::new("/sys/kernel/btf/9pnet").exists(), has_types);
    // Without types, arguments have only numbers.
    let fields = if has_types { ["clnt", "type", "tag"] } else { ["arg0", "arg1:s8", "arg2:s32"] };
    let [client, kind, tag] = fields;
    let raw = format!("{RAW}(clnt={client}:x64, kind={kind}, tag={tag})/{kind} > 0/");
    let formatted = format!("{FORMATTED}(clnt:x64, kind=type:s8, tag:s32)/type > 0/");
    let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    let all = events([&raw, &formatted], ["cat", "/etc/hostname", file.path().to_str().unwrap()]);
    let of = |name: &str| {
        let events = all.iter().filter(|event| event["probe"] == name);
        events.map(|event| (&event["tid"], &event["args"])).collect::<Vec<_>>()
    };
    let (raw, formatted) = (of("9p_client_req"), of("9p:9p_client_req"));
    assert!(raw.len() > 3, "{all:?}");
    assert_eq!(raw, formatted);
    if has_types {
        // A member of a structure of the module.
        let spec = format!("{RAW}(clnt->msize, clnt->trans_mod->name:str)");
        let one = &events([spec], ["cat", "/etc/hostname"])[0]["args"];
        assert_eq!(one["clnt.trans_mod.name"], "virtio", "{one}");
        assert!(one["clnt.msize"].as_u64().is_some_and(|size| size >= 4096), "{one}");
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn functions_of_a_module_that_is_loaded_during_the_trace_have_names() {
    let Some(module) = std::env::var_os("PROBE_AUX_MODULE") else { return skip(MISSING) };
    // Other tests may have loaded it.
    let _ = Command::new("rmmod").arg("probe_aux").output().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // The PMU calls the function when its event is read.
    let script = "insmod $0 && exec $1 sample -e probe_aux/config=100/ --aux $2 -m 32K -a -d 1s";
    let command = ["sh", "-c", script].map(OsString::from).into_iter();
    let command = command.chain([module, binary().into(), dir.path().into()]);
    let all = events(["kprobe:perf_aux_output_begin", "-K", "-a"], command);
    let stacks: Vec<_> = all.iter().map(|event| functions(event, "kstack")).collect();
    let has_name = |stack: &Vec<&str>| stack.contains(&"event_read");
    assert!(!stacks.is_empty() && stacks.iter().all(has_name), "{stacks:?}");
}
