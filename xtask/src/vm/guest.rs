//! The script that runs a command in the guest.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use shlex::bytes::Quoter;

/// Name of the virtio port between the guest and xtask. The guest sends `ready` and `exit STATUS`; xtask sends the
/// names of signals for the command.
pub(crate) const PORT: &str = "probe.xtask";

/// Before the command. udev creates the ports a while after boot.
const BEFORE: &str = r#"for _ in {1..50}; do [[ -e $port ]] && break; sleep 0.1; done
exec 3<>$port 4>&2 2>/dev/null
echo ready >&3
mounted() { grep -q " $1 " /proc/mounts; }
mounted /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mounted /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
mounted /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
"#;

/// After the command. The command has its own process group (`set -m`), so that signals also reach its children, as
/// from a terminal. A closed port means that xtask has ended; the machine then resets itself, because it must end too.
const AFTER: &str = r#"command=$!
{
    while read -r -u 3 signal; do kill -s "$signal" -- "-$command"; done
    echo b >/proc/sysrq-trigger
} </dev/null >/dev/null &
wait "$command"
status=$?
echo "exit $status" >&3
exit "$status"
"#;

/// How cached folders are mounted. By default, 9p reads a program again each time it runs, which took half of the time
/// of the tests that run many.
const CACHED: &str =
    "mount -t 9p -o ro,version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose";

/// The name by which the guest mounts a cached folder.
pub(crate) fn tag(number: usize) -> String {
    format!("cached{number}")
}

/// The script that runs `command`, with exactly these arguments, in `folder` and with this environment. The files in
/// `cached` are read only once.
pub(crate) fn script(
    command: &[OsString],
    folder: &Path,
    cached: &[PathBuf],
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<u8>> {
    let mut script = b"#!/bin/bash\n".to_vec();
    script.extend(format!("port=/dev/virtio-ports/{PORT}\n").bytes());
    script.extend(BEFORE.bytes());
    for (number, folder) in cached.iter().enumerate() {
        script.extend(format!("{CACHED} {} ", tag(number)).bytes());
        script.extend(quoted(folder.as_os_str())?);
        script.push(b'\n');
    }
    script.extend(b"cd -- ");
    script.extend(quoted(folder.as_os_str())?);
    script.extend(b"\nset -m\nenv -i");
    for (name, value) in environment {
        let mut word = name;
        word.push("=");
        word.push(value);
        script.push(b' ');
        script.extend(quoted(&word)?);
    }
    for word in command {
        script.push(b' ');
        script.extend(quoted(word)?);
    }
    script.extend(b" </dev/null 2>&4 3>&- 4>&- &\n");
    script.extend(AFTER.bytes());
    Ok(script)
}

fn quoted(word: &OsStr) -> Result<Vec<u8>> {
    let quoted =
        Quoter::new().quote(word.as_bytes()).context("an argument contains a zero byte")?;
    Ok(quoted.into_owned())
}

/// Adds the `sbin` folders to a search path: a user's path may lack them, but the command runs as root.
pub(crate) fn root_path(path: &OsStr) -> OsString {
    let mut path = path.to_owned();
    for folder in ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"] {
        if !std::env::split_paths(&path).any(|one| one == Path::new(folder)) {
            if !path.is_empty() {
                path.push(":");
            }
            path.push(folder);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    #[test]
    fn arguments_are_passed_unchanged() {
        let command = words(&["echo", "a  b", "$x 'y' \"z\"", "", "new\nline", "`id`", "\\", "-n"]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        let mut script = b"printf '%s\\0'".to_vec();
        for word in &command {
            script.push(b' ');
            script.extend(quoted(word).unwrap());
        }
        std::fs::write(&path, script).unwrap();
        let output = std::process::Command::new("bash").arg(&path).output().unwrap();
        let mut expected = command.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&0);
        expected.push(0);
        assert_eq!(output.stdout, expected);
    }

    #[test]
    fn script_has_folders_environment_and_command() {
        let environment = [("A".into(), "b c".into())].into_iter();
        let cached = ["/usr/bin".into(), "/w d/target".into()];
        let script =
            script(&words(&["ls", "-l"]), Path::new("/w d"), &cached, environment).unwrap();
        let script = String::from_utf8(script).unwrap();
        assert!(script.contains("loose cached0 /usr/bin\nmount "), "{script}");
        assert!(script.contains("loose cached1 '/w d/target'\n"), "{script}");
        assert!(script.contains("cd -- '/w d'\n"), "{script}");
        assert!(script.contains("env -i 'A=b c' ls -l </dev/null"), "{script}");
    }

    #[test]
    fn root_path_has_sbin_once() {
        let path = root_path(OsStr::new("/opt/bin:/sbin:/usr/bin"));
        assert_eq!(path, "/opt/bin:/sbin:/usr/bin:/usr/local/sbin:/usr/sbin:/bin");
        assert!(!root_path(OsStr::new("")).as_bytes().starts_with(b":"));
    }
}
