//! Files that other users offer.

use crate::probe::chain::{Chain, add_debug_info};
use crate::probe::strace::Calls;
use crate::probe::{stderr, succeed};
use probe_testing::crafted::nested;
use rustix::fs::{CWD, FileType, Mode, chown, makedev, mknodat};
use rustix::process::{Gid, Uid};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const NOBODY: u32 = 65534;

/// A program of nobody that runs until this is dropped.
struct Running(Child);

impl Running {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(["2000000000", "0"]).uid(NOBODY).gid(NOBODY);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Makes programs in a directory.
struct Programs {
    chain: Chain,
    dir: PathBuf,
}

impl Programs {
    fn copy(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::copy(&self.chain.program, &path).unwrap();
        path
    }

    /// One with a link to debug information in a file beside it, which is returned and does not exist.
    fn linked(&self, name: &str) -> [PathBuf; 2] {
        let (program, beside) = (self.copy(name), self.dir.join(format!("{name}.debug")));
        fs::write(&beside, "").unwrap();
        succeed(Command::new("objcopy").arg("--strip-all").arg(&program));
        let mut link = Command::new("objcopy");
        link.current_dir(&self.dir);
        succeed(link.arg(format!("--add-gnu-debuglink={name}.debug")).arg(&program));
        fs::remove_file(&beside).unwrap();
        [program, beside]
    }

    /// One with debug information, which may have more in a package beside it. That is returned and does not exist.
    fn packaged(&self, name: &str) -> [PathBuf; 2] {
        let program = self.copy(name);
        let (abbreviations, unit) = nested(3);
        add_debug_info(&program, [&abbreviations, &unit]);
        [program, self.dir.join(format!("{name}.dwp"))]
    }
}

/// A user puts pipes, devices, links and huge files where names of functions are looked for. `probe` itself opens only regular
/// files, reads none of them, and writes nothing but its output.
#[test]
#[ignore = "needs root and strace: cargo xtask test"]
fn what_users_offer_is_not_opened_by_a_privileged_process() {
    let [offered, own] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let dir = offered.path().canonicalize().unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    let programs = Programs { chain: Chain::compile(), dir: dir.clone() };
    let secret = own.path().join("secret");
    fs::write(&secret, "x").unwrap();

    let [packaged, pipe] = programs.packaged("packaged");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o666), 0).unwrap();
    let [linked, link] = programs.linked("linked");
    symlink(&secret, &link).unwrap();
    let [of_device, device] = programs.linked("device");
    mknodat(CWD, &device, FileType::CharacterDevice, Mode::from(0o666), makedev(1, 5)).unwrap();
    let [of_directory, directory] = programs.linked("directory");
    fs::create_dir(&directory).unwrap();
    let [sparse, huge] = programs.linked("sparse");
    for path in [&sparse, &huge] {
        File::options().create(true).append(true).open(path).unwrap().set_len(1 << 40).unwrap();
    }
    let all = [&packaged, &linked, &of_device, &of_directory, &sparse];
    for one in fs::read_dir(&dir).unwrap() {
        let path = one.unwrap().path();
        if !path.is_symlink() {
            chown(&path, Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY))).unwrap();
        }
    }
    let running = all.map(|program| Running::start(program));
    // The stripped program has addresses without names, which may be of generated code.
    let map = PathBuf::from(format!("/tmp/perf-{}.map", running[1].0.id()));
    mknodat(CWD, &map, FileType::Fifo, Mode::from(0o666), 0).unwrap();

    let output = own.path().canonicalize().unwrap().join("folded");
    // Some of them exist on some machines only.
    let names = "?open,openat,openat2,?creat,read,pread64,readv,preadv,mmap,write,pwrite64,?rename,?renameat,renameat2,\
        ?link,linkat,?symlink,symlinkat,?unlink,unlinkat,?mkdir,mkdirat,?mknod,mknodat,truncate,ftruncate";
    let args = ["sample", "-a", "-F", "199", "-d", "3s", "-f", "folded", "-o"];
    let calls = Calls::of(names, &[&args[..], &[output.to_str().unwrap()]].concat());
    fs::remove_file(&map).unwrap();
    drop(running);
    let errors = stderr(&calls.output);

    let shows = |path: &Path| format!("<{}>", path.display());
    let named = |path: &Path| format!("\"{}\"", path.display());
    let opens = |line: &&String| line.starts_with("open") && !line.contains("O_PATH");
    for path in [&pipe, &link, &device, &directory, &secret, &map] {
        let is_opened = |line: &&String| opens(line) && line.contains(&shows(path));
        let opened: Vec<_> = calls.own.iter().chain(&calls.others).filter(is_opened).collect();
        assert!(opened.is_empty(), "{opened:#?}");
    }
    // Each of them was looked for, and each program was read by the other process.
    for path in [&pipe, &link, &device, &directory, &huge, &map] {
        assert!(calls.own.iter().any(|line| line.contains(&named(path))), "{path:?}: {errors}");
    }
    for path in all {
        let is_read = |line: &String| line.starts_with("pread64") && line.contains(&shows(path));
        assert!(calls.others.iter().any(is_read), "{path:?}: {errors}");
    }
    let of_dir = format!("<{}/", dir.display());
    let uses = |line: &&String| !line.starts_with("open") && line.contains(&of_dir);
    let used: Vec<_> = calls.own.iter().filter(uses).collect();
    assert!(used.is_empty(), "{used:#?}");

    // What it changes is in the directory of the output, or no file.
    let output_dir = output.parent().unwrap().display().to_string();
    let changes = |line: &&String| {
        let call = line.split('(').next().unwrap_or_default();
        let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"];
        match call {
            "read" | "pread64" | "readv" | "preadv" | "mmap" | "clone" | "clone3" | "execve" => {
                false
            }
            "open" | "openat" | "openat2" => writes.iter().any(|flag| line.contains(flag)),
            _ => true,
        }
    };
    let is_allowed = |line: &&String| {
        let no_file = ["</dev/null>", "<pipe:", "<socket:", "<anon_inode:", "</memfd:"];
        line.contains(&output_dir) || no_file.iter().any(|one| line.contains(one))
    };
    let other: Vec<_> = calls.own.iter().filter(changes).filter(|line| !is_allowed(line)).collect();
    assert!(other.is_empty(), "{other:#?}");
    assert!(fs::read_to_string(&output).unwrap().contains("packaged"), "{errors}");
}
