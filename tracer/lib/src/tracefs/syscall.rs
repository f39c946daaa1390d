//! Names of system calls. Some tracepoints have the name of the kernel's function, which differs from the name in
//! manual pages: `newuname` for `uname`, `sendfile64` for `sendfile`.

/// The category of these tracepoints.
const CATEGORY: &str = "syscalls";

/// Names in manual pages, and those of the kernel.
const OTHERS: [(&str, &str); 2] = [("umount2", "umount"), ("sendfile", "sendfile64")];

/// The names that the kernel's tracepoint may have, the most likely first. Where there are `newuname` and `sendfile64`,
/// `uname` and `sendfile` are older calls, which no 64-bit program can make.
pub(super) fn own_names(category: &str, name: &str) -> Vec<String> {
    let Some((side, call)) = split(category, name) else { return vec![name.to_owned()] };
    let all = newer_names(call).chain([call.to_owned(), format!("{call}64")]);
    all.map(|own| format!("{side}{own}")).collect()
}

/// The tracepoints, `category:name`, that hide an older one of this name.
pub(super) fn newer(event: &str) -> Vec<String> {
    let parts = event.split_once(':').and_then(|(category, name)| split(category, name));
    let Some((side, call)) = parts else { return Vec::new() };
    newer_names(call).map(|own| format!("{CATEGORY}:{side}{own}")).collect()
}

fn newer_names(call: &str) -> impl Iterator<Item = String> {
    let listed = OTHERS.iter().filter(move |(known, _)| *known == call);
    listed.map(|&(_, own)| own.to_owned()).chain([format!("new{call}")])
}

/// The names by which users may know a tracepoint, `category:name`, besides its own.
pub(super) fn known_as(event: &str) -> Vec<String> {
    let parts = event.split_once(':').and_then(|(category, name)| split(category, name));
    let Some((side, own)) = parts else { return Vec::new() };
    let listed = OTHERS.iter().filter(|(_, other)| *other == own).map(|&(known, _)| known);
    let known = [own.strip_prefix("new"), own.strip_suffix("64")].into_iter().flatten();
    known.chain(listed).map(|known| format!("{CATEGORY}:{side}{known}")).collect()
}

/// The system call that a tracepoint is at the entry of.
pub(crate) fn entered<'n>(category: &str, name: &'n str) -> Option<&'n str> {
    split(category, name).filter(|(side, _)| *side == "sys_enter_").map(|(_, call)| call)
}

/// The tracepoint, `category:name`, at the exit of the system calls that this one, or a pattern of such, is at the entry of.
pub(crate) fn exit_of(category: &str, name: &str) -> Option<String> {
    other_side(category, name, ["sys_enter", "sys_exit"])
}

/// The tracepoint, `category:name`, at the entry of the system calls that this one, or a pattern of such, is at the exit of.
pub(crate) fn entry_of(category: &str, name: &str) -> Option<String> {
    other_side(category, name, ["sys_exit", "sys_enter"])
}

fn other_side(category: &str, name: &str, [side, other]: [&str; 2]) -> Option<String> {
    let call = name.strip_prefix(side)?;
    let is_side = match category {
        CATEGORY => call.starts_with('_'),
        // Those of any system call.
        "raw_syscalls" => call.is_empty(),
        _ => false,
    };
    is_side.then(|| format!("{category}:{other}{call}"))
}

/// Splits a tracepoint's name into `sys_enter_` or `sys_exit_`, and the name of the system call.
fn split<'n>(category: &str, name: &'n str) -> Option<(&'static str, &'n str)> {
    let sides = ["sys_enter_", "sys_exit_"].into_iter().filter(|_| category == CATEGORY);
    sides.filter_map(|side| Some((side, name.strip_prefix(side)?))).next()
}
