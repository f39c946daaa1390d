//! Raw tracepoints of modules, whose types are the modules' own. In virtual machines, the root is a file system of the module
//! `9p`, and every access to a file is a request with a tracepoint in `9pnet`.

use crate::probe::{events, printed};
use probe_testing::skip::skip;
use probe_testing::version;
use std::path::Path;

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
