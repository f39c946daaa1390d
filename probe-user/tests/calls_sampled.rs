//! `--sample` of calls, beside calls whose number is known.

mod probe;

use probe::{all_json_lines, probe, stderr};

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn one_call_in_so_many_is_told() {
    let mut run = probe(["trace", "-F", "jsonl", "--ret", "--sample", "1/100"]);
    let dd = ["taskset", "-c", "0", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=501"];
    let output = run.args(["vfs_read/count == 1/", "--"]).args(dd).output().unwrap();
    let lines = all_json_lines(&output);
    let told = lines.iter().filter(|line| line["type"] == "call").count();
    let ledger = &lines[lines.len() - 1];
    assert_eq!(told, 6, "{}", stderr(&output));
    assert_eq!(ledger["missed"][0]["withheld"], 495, "{ledger}");
    assert_eq!((&ledger["attempted"], &ledger["complete"]), (&6.into(), &true.into()), "{ledger}");
}
