//! The tracer's peers in their newest versions: Debian's unstable suite in a folder of its own, whose programs run on this machine's kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Cache, apt};
use crate::process;
use crate::say::Step;

const SUITE: &str = "sid";
/// perf needs binutils to name inlined functions; the package of gcc installs them.
const PACKAGES: &str = "bpftrace,linux-perf,bpfcc-tools,gcc";

/// The name of the folder. Another choice of packages has another one.
const FOLDER: &str = "peers/sid-gcc";

/// Runs the words after the first with the first one's `/usr` instead of this machine's, which the rest of the machine
/// does not see.
const RUN: &str = r#"mount --bind "$0/usr" /usr && exec "$@""#;

/// A root file system that has bpftrace, perf and bcc.
pub(crate) struct Peers(PathBuf);

impl Peers {
    /// Finds the file system in the cache, or makes it.
    pub(crate) fn set_up(cache: &Cache) -> Result<Self> {
        // Programs, libraries and data of a system whose /bin and /lib are links are all below /usr.
        ensure!(
            fs::read_link("/bin").is_ok_and(|target| target.ends_with("usr/bin")),
            "/bin is not a link to usr/bin, and {SUITE}'s programs would lack their libraries"
        );
        let root = cache.ensure(FOLDER, |root| {
            apt::install(&["debootstrap"])?;
            let step =
                Step::begin(format_args!("installing Debian {SUITE}'s {PACKAGES} (debootstrap)"));
            let mut command = Command::new("debootstrap");
            command.arg("--variant=minbase").arg(format!("--include={PACKAGES}"));
            command.args([SUITE.as_ref(), root.as_os_str()]).arg(apt::archive(SUITE)?);
            process::watched(&mut command, &step)
                .with_context(|| format!("cannot install Debian {SUITE}"))
        })?;
        Ok(Self(root))
    }

    /// A command that finds these programs in place of the machine's own.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", RUN]);
        command.arg(&self.0).arg(program);
        command
    }
}
