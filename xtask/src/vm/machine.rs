//! A virtual machine: one stock kernel, this machine's files, one command.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::guest;
use super::interrupt;
use super::kernel::Kernel;
use crate::process::join;
use crate::workspace;

/// The guest runs udev only to name the virtio ports. The distribution's rules would also load a module for every
/// device, which takes several seconds under emulation.
const RULES: &str = r#"SUBSYSTEM=="virtio", ENV{MODALIAS}=="?*", RUN{builtin}+="kmod load $env{MODALIAS}"
SUBSYSTEM=="virtio-ports", KERNEL=="vport*", ATTR{name}=="?*", SYMLINK+="virtio-ports/$attr{name}"
"#;
const RULES_FOLDER: &str = "/usr/lib/udev/rules.d";

/// The socket and the console in the machine's folder.
const CONTROL: &str = "control";
const CONSOLE: &str = "console";
/// Time limit from the command's end to the machine's shutdown.
const OFF_LIMIT: Duration = Duration::from_secs(20);
/// Time between the signals to a command whose standard output is closed, each stronger than the last.
const PIPE_GRACE: Duration = Duration::from_secs(2);

/// The settings of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) cpus: u32,
    pub(crate) memory: String,
    /// Emulate with one nanosecond of guest time per instruction, so that durations are the same on any host.
    pub(crate) icount: bool,
    /// Time limit for the command, without booting.
    pub(crate) limit: Option<Duration>,
    /// The command's working directory, which is writable.
    pub(crate) folder: PathBuf,
    /// Folders that nobody changes while the machine runs. The machine reads their files only once, and cannot write
    /// there.
    pub(crate) unchanging: Vec<PathBuf>,
    /// Whether the first signal goes to the command instead of ending the machine.
    pub(crate) passes_signals: bool,
}

/// How a command in a machine ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit(u8),
    /// A signal ended the machine: the second one, or one during boot.
    Signalled(i32),
    TimedOut,
    /// The kernel crashed or the machine shut down.
    Died {
        console: String,
    },
}

/// The destinations of the command's output.
pub(crate) struct Sinks {
    pub(crate) out: Box<dyn Write + Send>,
    pub(crate) err: Box<dyn Write + Send>,
}

impl Sinks {
    pub(crate) fn own() -> Self {
        Self { out: Box::new(io::stdout()), err: Box::new(io::stderr()) }
    }
}

enum Event {
    Guest(String),
    Signal(i32),
    PipeClosed,
    Ended,
}

/// How one attempt to boot ended.
pub(crate) enum Attempt {
    NoBoot { console: String },
    End(End),
}

/// A running machine and the threads that watch it. Dropping it kills the machine.
pub(crate) struct Machine {
    child: Option<JoinHandle<io::Result<()>>>,
    group: Pid,
    threads: Vec<JoinHandle<()>>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    to_guest: Receiver<UnixStream>,
    scratch: TempDir,
}

impl Machine {
    pub(crate) fn start(
        virtme_run: &Path,
        kernel: &Kernel,
        options: &Options,
        command: &[OsString],
        kvm: bool,
        sinks: Sinks,
    ) -> Result<Self> {
        // The guest has a folder of its own in place of others, such as /var/tmp.
        let scratch = tempfile::Builder::new().prefix("xtask-vm-").tempdir_in("/tmp")?;
        let listener = UnixListener::bind(scratch.path().join(CONTROL));
        let listener = listener.context("cannot create the control socket")?;
        let mut virtme = virtme(virtme_run, kernel, options, command, kvm, scratch.path())?;
        let mut child = virtme.spawn().context("cannot start virtme-run")?;
        let group = Pid::from_child(&child);
        let (sender, events) = channel();
        let (stream, to_guest) = channel();
        let threads = vec![
            copy(child.stdout.take(), sinks.out, Some(sender.clone())),
            copy(child.stderr.take(), sinks.err, None),
            thread::spawn({
                let sender = sender.clone();
                move || listen(&listener, &stream, &sender)
            }),
        ];
        let child = Some(thread::spawn({
            let sender = sender.clone();
            move || wait(child, &sender)
        }));
        Ok(Self { child, group, threads, events, sender, to_guest, scratch })
    }

    /// Waits for the command to end or a time limit to expire, then kills the machine.
    pub(crate) fn watch(&mut self, boot: Duration, options: &Options) -> Result<Attempt> {
        let sender = self.sender.clone();
        let _watch = interrupt::watch(move |signal| drop(sender.send(Event::Signal(signal))))?;
        let end = self.wait_for_end(boot, options);
        self.end();
        Ok(end)
    }

    fn wait_for_end(&mut self, boot: Duration, options: &Options) -> Attempt {
        let mut deadline = Some(Instant::now() + boot);
        let mut guest = None;
        let mut status = None;
        let mut signalled = !options.passes_signals;
        let mut hints = Vec::new();
        loop {
            match self.next(deadline) {
                Some(Event::Guest(line)) => match line.split_once(' ') {
                    None if line == "ready" => {
                        guest = self.to_guest.try_recv().ok();
                        deadline = options.limit.map(|limit| Instant::now() + limit);
                    }
                    Some(("exit", code)) => {
                        status = code.parse().ok();
                        deadline = Some(Instant::now() + OFF_LIMIT);
                    }
                    _ => {}
                },
                Some(Event::Signal(signal)) => {
                    let sent = !signalled && send(guest.as_mut(), name(signal));
                    signalled = true;
                    if !sent {
                        return Attempt::End(End::Signalled(signal));
                    }
                }
                Some(Event::PipeClosed) => {
                    // The writer of a closed pipe gets SIGPIPE. A program that ignores it gets SIGTERM, then SIGKILL.
                    hints = vec!["KILL", "TERM"];
                    send(guest.as_mut(), "PIPE");
                    deadline = Some(Instant::now() + PIPE_GRACE);
                }
                Some(Event::Ended) => break,
                None => match (status, guest.is_some(), hints.pop()) {
                    (Some(_), ..) => break,
                    (None, true, Some(hint)) => {
                        send(guest.as_mut(), hint);
                        deadline = Some(Instant::now() + PIPE_GRACE);
                    }
                    (None, true, None) => return Attempt::End(End::TimedOut),
                    (None, false, _) => break,
                },
            }
        }
        match status {
            Some(status) => Attempt::End(End::Exit(status)),
            None if guest.is_some() => Attempt::End(End::Died { console: self.console() }),
            None => Attempt::NoBoot { console: self.console() },
        }
    }

    /// The next event, or `None` after the deadline.
    fn next(&self, deadline: Option<Instant>) -> Option<Event> {
        let Some(deadline) = deadline else { return self.events.recv().ok() };
        self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }

    fn console(&self) -> String {
        let bytes = fs::read(self.scratch.path().join(CONSOLE)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }

    fn end(&mut self) {
        let Some(child) = self.child.take() else { return };
        // Killing fails if the group has already ended, which is the goal.
        let _ = kill_process_group(self.group, Signal::KILL);
        // A machine that did not start has not connected: unblock the thread that accepts.
        drop(UnixStream::connect(self.scratch.path().join(CONTROL)));
        let _ = join(child);
        self.threads.drain(..).for_each(join);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

fn virtme(
    virtme_run: &Path,
    kernel: &Kernel,
    options: &Options,
    command: &[OsString],
    kvm: bool,
    scratch: &Path,
) -> Result<Command> {
    let script = scratch.join("run");
    let environment = workspace::environment().map(|(name, value)| {
        let value = if name == "PATH" { guest::root_path(&value) } else { value };
        (name, value)
    });
    let cached: Vec<_> = system().into_iter().chain(options.unchanging.clone()).collect();
    fs::write(&script, guest::script(command, &options.folder, &cached, environment)?)?;
    let rules = scratch.join("rules");
    fs::create_dir(&rules)?;
    fs::write(rules.join("10-probe.rules"), RULES)?;
    ensure!(
        Path::new(RULES_FOLDER).is_dir(),
        "{RULES_FOLDER} is missing: this needs Debian's udev"
    );

    let mut virtme = Command::new(virtme_run);
    virtme.args(["--mods", "auto", "--name", "probe", "--force-9p"]);
    virtme.arg("--kimg").arg(&kernel.image);
    virtme.args(["--cpus", &options.cpus.to_string(), "--memory", &options.memory]);
    if !kvm || options.icount {
        // One thread for all CPUs. With one thread each, qemu 7.2 kept executing breakpoints that the kernel had
        // already patched out (`Oops: int3`), and kprobes are such patches.
        virtme.args(["--disable-kvm", "--qemu-opt=-accel", "--qemu-opt=tcg,thread=single"]);
        // If the CPU advertises a fast `rep movsb`, the kernel clears and copies pages with it. qemu emulates it one
        // byte at a time.
        virtme.args(["--qemu-opt=-cpu", "--qemu-opt=max,erms=off,fsrm=off"]);
        // qemu translates a program again wherever it is loaded, and cannot predict where a retpoline goes.
        virtme.args(["--kopt", "norandmaps", "--kopt", "mitigations=off"]);
    }
    if options.icount {
        virtme.args(["--qemu-opt=-icount", "--qemu-opt=shift=0,sleep=off"]);
    }
    for folder in ["/etc", "/var", "/tmp"] {
        virtme.args(["--overlay-rwdir", folder]);
    }
    virtme.arg("--rodir").arg(mount(OsStr::new(RULES_FOLDER), rules.as_os_str())?);
    if options.folder != Path::new("/") {
        virtme.arg("--rwdir").arg(mount(options.folder.as_os_str(), options.folder.as_os_str())?);
    }
    for (number, folder) in cached.iter().enumerate() {
        let path = mountable(folder.as_os_str())?.display();
        let tag = guest::tag(number);
        virtme.arg("--qemu-opt=-virtfs").arg(format!(
            "--qemu-opt=local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap"
        ));
    }
    // The console shows warnings and worse, to diagnose a crash.
    virtme.args(["--kopt", "loglevel=5"]);
    // Detaching a probe waits for a grace period; expedited ones are short.
    virtme.args(["--kopt", "rcupdate.rcu_expedited=1"]);
    for option in [
        // A virtio serial device has 31 ports by default, with two queues each, and there are six devices. qemu's main
        // loop polls a descriptor for each queue, which took half of its time.
        "-global".to_owned(),
        "virtio-serial-pci.max_ports=2".to_owned(),
        // virtme-ng discards the console.
        "-set".to_owned(),
        format!("chardev.console.path={}", scratch.join(CONSOLE).display()),
        "-chardev".to_owned(),
        format!("socket,id=probe,path={}", scratch.join(CONTROL).display()),
        "-device".to_owned(),
        "virtio-serial-pci,id=probe-bus".to_owned(),
        "-device".to_owned(),
        format!("virtserialport,bus=probe-bus.0,chardev=probe,name={}", guest::PORT),
    ] {
        virtme.arg(format!("--qemu-opt={option}"));
    }
    virtme.arg("--script-sh").arg(format!("exec bash {}", script.display()));
    virtme.env_clear().envs(workspace::environment()).env("TMPDIR", scratch);
    virtme.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C must reach the command in the guest, not qemu.
    virtme.process_group(0);
    Ok(virtme)
}

/// Where most programs and libraries of the system are, as far as there are such folders.
fn system() -> Vec<PathBuf> {
    let libraries = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["/usr/bin".into(), PathBuf::from(libraries)];
    folders.into_iter().filter(|folder| folder.is_dir()).collect()
}

/// The option `GUEST=HOST`. Fails on paths that virtme-ng cannot mount.
fn mount(guest: &OsStr, host: &OsStr) -> Result<OsString> {
    let mut mount = mountable(guest)?.to_owned();
    mount.push("=");
    mount.push(mountable(host)?);
    Ok(mount)
}

/// The path, if virtme-ng and qemu can mount it.
fn mountable(path: &OsStr) -> Result<&OsStr> {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"_+ /.-".contains(byte);
    ensure!(
        path.as_encoded_bytes().iter().all(is_safe),
        "virtme-ng cannot mount {}: use a folder whose path has only letters, digits and _+.-",
        path.display()
    );
    Ok(path)
}

/// Copies the machine's output. Sends one event when the destination is closed.
fn copy(
    from: Option<impl Read + Send + 'static>,
    mut to: Box<dyn Write + Send>,
    closed: Option<Sender<Event>>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let Some(mut from) = from else { return };
        let mut buffer = [0; 64 * 1024];
        let mut reading = true;
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if reading && to.write_all(&buffer[..length]).and_then(|()| to.flush()).is_err() {
                reading = false;
                closed.iter().for_each(|events| drop(events.send(Event::PipeClosed)));
            }
        }
    })
}

/// Accepts qemu's connection, then forwards the guest's lines as events.
fn listen(listener: &UnixListener, stream: &Sender<UnixStream>, events: &Sender<Event>) {
    let Ok((call, _)) = listener.accept() else { return };
    let Ok(writer) = call.try_clone() else { return };
    drop(stream.send(writer));
    for line in BufReader::new(call).lines() {
        let Ok(line) = line else { return };
        drop(events.send(Event::Guest(line)));
    }
}

fn wait(mut child: Child, events: &Sender<Event>) -> io::Result<()> {
    let ended = child.wait();
    drop(events.send(Event::Ended));
    ended.map(drop)
}

fn send(guest: Option<&mut UnixStream>, signal: &str) -> bool {
    guest.is_some_and(|guest| writeln!(guest, "{signal}").is_ok())
}

fn name(signal: i32) -> &'static str {
    match signal {
        signal_hook::consts::SIGINT => "INT",
        signal_hook::consts::SIGHUP => "HUP",
        _ => "TERM",
    }
}

/// Creates a log file for both streams.
pub(crate) fn log(path: &Path) -> Result<Sinks> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Sinks { out: Box::new(file.try_clone()?), err: Box::new(file) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_virtme_takes_are_mounted() {
        assert_eq!(mount(OsStr::new("/a"), OsStr::new("/b c")).unwrap(), "/a=/b c");
        assert!(mount(OsStr::new("/a"), OsStr::new("/b,c")).is_err());
        assert!(mount(OsStr::new("/a=b"), OsStr::new("/b")).is_err());
    }
}
