//! The tracer's peers in their newest versions: Debian's unstable suite in a folder of its own, whose programs run on this machine's kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Cache, apt, files};
use crate::process;
use crate::say::{self, Step};

const SUITE: &str = "sid";
/// perf needs binutils to name inlined functions; the package of gcc installs them.
const PACKAGES: &str = "bpftrace,linux-perf,bpfcc-tools,gcc";

/// The folder of all file systems in the cache.
const FOLDER: &str = "peers";
/// How the name of a file system begins; the month follows. Another choice of packages has another name.
const NAME: &str = "sid-gcc";

/// Runs the words after the first with the first one's `/usr` instead of this machine's, which the rest of the machine
/// does not see.
const RUN: &str = r#"mount --bind "$0/usr" /usr && exec "$@""#;

/// A root file system that has bpftrace, perf and bcc.
pub(crate) struct Peers(PathBuf);

impl Peers {
    /// Finds the file system of this month in the cache, or makes it.
    pub(crate) fn set_up(cache: &Cache) -> Result<Self> {
        // Programs, libraries and data of a system whose /bin and /lib are links are all below /usr.
        ensure!(
            fs::read_link("/bin").is_ok_and(|target| target.ends_with("usr/bin")),
            "/bin is not a link to usr/bin, and {SUITE}'s programs would lack their libraries"
        );
        let month = process::read(Command::new("date").args(["--utc", "+%Y-%m"]))?;
        renew(cache, month.trim(), install).map(Self)
    }

    /// A command that finds these programs in place of the machine's own.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", RUN]);
        command.arg(&self.0).arg(program);
        command
    }
}

/// Installs the programs into a folder.
fn install(root: &Path) -> Result<()> {
    apt::install(&["debootstrap"])?;
    let step = Step::begin(format_args!("installing Debian {SUITE}'s {PACKAGES} (debootstrap)"));
    let mut command = Command::new("debootstrap");
    command.arg("--variant=minbase").arg(format!("--include={PACKAGES}"));
    command.args([SUITE.as_ref(), root.as_os_str()]).arg(apt::archive(SUITE)?);
    process::watched(&mut command, &step).with_context(|| format!("cannot install Debian {SUITE}"))
}

/// The file system of a month. One of an earlier month is removed after the new one has been made, and used if that fails.
fn renew(cache: &Cache, month: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let name = format!("{NAME}-{month}");
    let made = cache.ensure(&format!("{FOLDER}/{name}"), make);
    cache.locked(|| {
        let older = older(&cache.path(FOLDER), &name)?;
        match (made, older.last()) {
            (Ok(root), _) => {
                for error in older.iter().filter_map(|link| remove(link).err()) {
                    say::line(format_args!("{error:#}"));
                }
                Ok(root)
            }
            (Err(error), Some(link)) => {
                say::line(format_args!("using the older {}: {error:#}", link.display()));
                Ok(link.canonicalize()?)
            }
            (Err(error), None) => Err(error),
        }
    })
}

/// The file systems other than the named one, newest last.
fn older(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut links = files::entries(folder)?;
    links.retain(|link| {
        let other = link.file_name().and_then(|name| name.to_str()).filter(|one| *one != name);
        other.is_some_and(|other| other.starts_with(NAME)) && link.exists()
    });
    links.sort();
    Ok(links)
}

/// Removes a file system and the link to it.
fn remove(link: &Path) -> Result<()> {
    let root = link.canonicalize()?;
    fs::remove_file(link)
        .and_then(|()| fs::remove_dir_all(&root))
        .with_context(|| format!("cannot remove {}", root.display()))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn peers_are_renewed_each_month() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned(), || {}).unwrap();
        let make = |root: &Path| Ok(fs::write(root.join("perf"), "")?);
        renew(&cache, "2026-11", |_| bail!("no network")).unwrap_err();
        let first = renew(&cache, "2026-11", make).unwrap();
        assert_eq!(renew(&cache, "2026-11", |_| bail!("it is there")).unwrap(), first);
        assert_eq!(renew(&cache, "2026-12", |_| bail!("no network")).unwrap(), first);
        assert!(first.join("perf").exists());

        let second = renew(&cache, "2026-12", make).unwrap();
        assert!(second.join("perf").exists() && !first.exists());
        assert_eq!(files::entries(&cache.path(FOLDER)).unwrap().len(), 1);
    }
}
