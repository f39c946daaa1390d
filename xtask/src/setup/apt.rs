//! Debian packages: installed on this machine, or downloaded from any suite and unpacked.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Cache, files};
use crate::process;
use crate::say::{self, Step};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const ATTEMPTS: u32 = 4;
/// Serialises installations. apt locks only parts of its state, and fails instead of waiting.
const LOCK: &str = "/run/probe-xtask-apt.lock";
/// How long an installation waits for other programs that use apt, such as those that update a machine after its start.
const PATIENCE: Duration = Duration::from_secs(600);

/// A suite of this machine's Debian archive, with its own apt state.
pub(crate) struct Suite {
    name: &'static str,
    state: PathBuf,
}

/// One version of a package, as `apt-cache show` reports it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Names of its dependencies, without those that have alternatives.
    pub(crate) depends: Vec<String>,
}

impl Suite {
    /// Downloads the suite's index. Every process does so: the index is small compared to the packages.
    pub(crate) fn update(cache: &Cache, name: &'static str) -> Result<Self> {
        ensure!(
            Path::new(KEYRING).exists(),
            "{KEYRING} is missing: this needs Debian, with debian-archive-keyring"
        );
        let suite = Self::create(name, cache.path("apt").join(name), &archive(name)?)?;
        retry(|| process::quiet(suite.apt("apt-get").args(["-q", "update"])))
            .with_context(|| format!("cannot read the index of Debian's {name}"))?;
        Ok(suite)
    }

    /// Creates the apt state of a suite that is downloaded from `archive`.
    fn create(name: &'static str, state: PathBuf, archive: &str) -> Result<Self> {
        for dir in ["lists/partial", "archives/partial"] {
            files::create_folder(&state.join(dir))?;
        }
        let source = format!("deb [signed-by={KEYRING}] {archive} {name} main\n");
        files::write(&state.join("sources.list"), source)?;
        files::write(&state.join("status"), "")?;
        Ok(Self { name, state })
    }

    /// The names of all packages that begin with a text.
    pub(crate) fn names(&self, begin: &str) -> Result<Vec<String>> {
        let names = process::read(self.apt("apt-cache").args(["pkgnames", begin]))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// All versions of a package in this suite.
    pub(crate) fn show(&self, package: &str) -> Result<Vec<Package>> {
        let shown = process::read(self.apt("apt-cache").args(["show", package]))
            .with_context(|| format!("Debian's {} has no package {package}", self.name))?;
        Ok(parse_show(&shown))
    }

    /// The first version of a package, which is the newest.
    pub(crate) fn newest(&self, package: &str) -> Result<Package> {
        let mut versions = self.show(package)?.into_iter();
        versions.next().with_context(|| format!("Debian has no package {package}"))
    }

    /// Downloads a package and unpacks it under `root`.
    pub(crate) fn unpack(&self, package: &Package, root: &Path, step: &Step) -> Result<()> {
        let folder = tempfile::tempdir_in(&self.state)?;
        let wanted = format!("{}={}", package.name, package.version);
        retry(|| {
            let mut apt = self.apt("apt-get");
            process::watched(apt.args(["download", &wanted]).current_dir(folder.path()), step)
        })
        .with_context(|| format!("cannot download {wanted} from Debian's {}", self.name))?;
        for archive in files::entries(folder.path())? {
            process::quiet(Command::new("dpkg").arg("-x").arg(archive).arg(root))
                .with_context(|| format!("cannot unpack {wanted}"))?;
        }
        Ok(())
    }

    fn apt(&self, program: &str) -> Command {
        let state = self.state.display();
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        for option in [
            format!("Dir::State::Lists={state}/lists"),
            // apt also lists installed packages, in versions that the suite may not have.
            format!("Dir::State::status={state}/status"),
            format!("Dir::Cache={state}"),
            format!("Dir::Etc::SourceList={state}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            // apt fails if this machine's default release is not among the sources.
            "APT::Default-Release=".to_owned(),
            // apt's sandbox user cannot write to a home directory. Packages are signed anyway.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=3".to_owned(),
            // Otherwise apt goes on with an old index, or none, where the network fails.
            "APT::Update::Error-Mode=any".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }
}

/// Installs the packages that this machine lacks.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    let command = format!("apt-get install --no-install-recommends {names}");
    ensure!(which::which("apt-get").is_ok(), "missing Debian packages: {names}");
    ensure!(is_root(), "missing packages; run as root: {command}");
    let lock = File::create(LOCK).with_context(|| format!("cannot create {LOCK}"))?;
    let _lock = probe_build::lock(Path::new(LOCK), lock, || {})?;
    // Another xtask may have installed them while this one waited.
    let missing = self::missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let step = Step::begin(format_args!("installing {names} (apt)"));
    let deadline = Instant::now() + PATIENCE;
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-q", "-y"]).args(args);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        when_unlocked(deadline, || process::watched(&mut command, &step))
    };
    retry(|| apt(&["update"])).context("cannot read the archive's index")?;
    let mut args = vec!["install", "--no-install-recommends"];
    args.extend(missing);
    retry(|| {
        apt(&args).inspect_err(|_| {
            // A half-finished installation blocks the next one.
            let _ = apt(&["-f", "install", "--no-remove"]);
        })
    })
    .with_context(|| format!("cannot install; try: {command}"))
}

fn missing<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    packages.iter().copied().filter(|one| !is_installed(one)).collect()
}

fn is_installed(package: &str) -> bool {
    // A package may be there for several architectures.
    process::read(Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status}\\n", package]))
        .is_ok_and(|statuses| statuses.lines().any(|status| status == "installed"))
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The URL from which this machine gets `suite`.
pub(crate) fn archive(suite: &str) -> Result<String> {
    let targets = process::read(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(LABEL)|$(SITE)",
        "Created-By: Packages",
    ]))
    .context("apt-get cannot list its archives: this needs Debian")?;
    match find_archive(&targets, suite.ends_with("-security")) {
        Some(site) => Ok(site),
        None => bail!("apt has no Debian archive; on Debian, run `apt-get update`"),
    }
}

/// Finds the archive in `LABEL|SITE` lines. Unless listed, the security archive has the main one's URL plus
/// `-security`.
fn find_archive(targets: &str, security: bool) -> Option<String> {
    let site = |wanted: &str| {
        targets
            .lines()
            .filter_map(|line| line.split_once('|'))
            .find(|(label, _)| *label == wanted)
            .map(|(_, site)| site.trim_end_matches('/').to_owned())
    };
    if !security {
        return site("Debian");
    }
    site("Debian-Security").or_else(|| site("Debian").map(|main| format!("{main}-security")))
}

fn parse_show(shown: &str) -> Vec<Package> {
    let field = |paragraph: &str, name: &str| {
        paragraph
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .map(str::to_owned)
    };
    shown
        .split("\n\n")
        .filter_map(|paragraph| {
            Some(Package {
                name: field(paragraph, "Package")?,
                version: field(paragraph, "Version")?,
                depends: field(paragraph, "Depends")
                    .unwrap_or_default()
                    .split(',')
                    .filter(|one| !one.contains('|'))
                    .filter_map(|one| one.split_whitespace().next().map(str::to_owned))
                    .collect(),
            })
        })
        .collect()
}

/// Runs apt. While another program holds one of apt's locks, runs it again until the deadline: apt has an option to wait
/// for dpkg's lock, but not for its own.
fn when_unlocked(deadline: Instant, mut apt: impl FnMut() -> Result<()>) -> Result<()> {
    let mut result = apt();
    if is_locked(&result) {
        say::line("waiting for another program that uses apt");
    }
    while is_locked(&result) && Instant::now() < deadline {
        thread::sleep(Duration::from_secs(1));
        result = apt();
    }
    result
}

fn is_locked(result: &Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.to_string().contains("Could not get lock"))
}

/// Retries with growing pauses, since networks fail for moments. Returns the last error.
fn retry(mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let mut pause = Duration::from_secs(2);
    for _ in 1..ATTEMPTS {
        match work() {
            Ok(()) => return Ok(()),
            Err(_) => thread::sleep(pause),
        }
        pause *= 2;
    }
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_gives_versions_and_dependencies() {
        let shown = "Package: linux-image-amd64\n\
            Version: 7.3.4-1~bpo13+1\n\
            Depends: linux-base-amd64 (= 7.3.4-1~bpo13+1), linux-image-7.3.4+deb13-amd64 (= 7.3.4-1~bpo13+1), a | b\n\
            Description: Linux\n\
            \n\
            Package: linux-image-amd64\n\
            Version: 6.12.1-1\n\
            \n";
        let packages = parse_show(shown);
        assert_eq!(packages.len(), 2);
        assert_eq!(packages[0].version, "7.3.4-1~bpo13+1");
        assert_eq!(packages[0].depends, ["linux-base-amd64", "linux-image-7.3.4+deb13-amd64"]);
        assert_eq!(packages[1].depends, [""; 0]);
    }

    #[test]
    fn a_suite_knows_nothing_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let suite = Suite::create("sid", dir.path().join("sid"), "http://a/debian").unwrap();
        let command = suite.apt("apt-cache");
        let options = command.get_args().filter_map(|option| option.to_str()).collect::<Vec<_>>();
        let status = options.iter().find_map(|option| option.strip_prefix("Dir::State::status="));
        assert_eq!(fs::read_to_string(status.unwrap()).unwrap(), "");
        assert!(options.contains(&"APT::Default-Release="), "{options:?}");
    }

    #[test]
    fn security_archive_stands_beside_the_main_one() {
        let both = "Other|http://x/o\nDebian|http://a/debian/\nDebian-Security|http://b/sec/\n";
        assert_eq!(find_archive(both, false).unwrap(), "http://a/debian");
        assert_eq!(find_archive(both, true).unwrap(), "http://b/sec");
        let main = "Debian|http://a/debian\n";
        assert_eq!(find_archive(main, true).unwrap(), "http://a/debian-security");
        assert_eq!(find_archive("", false), None);
    }

    #[test]
    fn failures_are_retried() {
        let mut results = vec![Ok(()), Err(anyhow::anyhow!("once"))];
        retry(|| results.pop().unwrap()).unwrap();
    }

    #[test]
    fn locks_of_other_programs_are_waited_for() {
        let locked = || Err(anyhow::anyhow!("E: Could not get lock /var/lib/apt/lists/lock."));
        let mut results = vec![Ok(()), locked()];
        when_unlocked(Instant::now() + PATIENCE, || results.pop().unwrap()).unwrap();
        assert!(results.is_empty());

        let mut results = vec![Ok(()), locked()];
        when_unlocked(Instant::now(), || results.pop().unwrap()).unwrap_err();
        let mut results = vec![Ok(()), Err(anyhow::anyhow!("E: Unable to locate package"))];
        when_unlocked(Instant::now() + PATIENCE, || results.pop().unwrap()).unwrap_err();
    }
}
