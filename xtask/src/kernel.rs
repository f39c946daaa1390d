//! Debian's stock kernels, unpacked but not installed.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::apt::{Package, Suite};
use crate::cache::Cache;
use crate::process;
use crate::say::Step;

/// The kernels that are tested, the oldest first.
pub(crate) const SERIES: [Series; 4] = [
    Series { name: "5.10", suite: "bullseye-security", takes_modules: true },
    Series { name: "6.1", suite: "bookworm", takes_modules: true },
    Series { name: "6.12", suite: "trixie", takes_modules: false },
    Series { name: "7.3", suite: "trixie-backports", takes_modules: false },
];

/// A stable series of Linux, and the Debian suite that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Series {
    name: &'static str,
    suite: &'static str,
    /// Its headers, and the programs among them, can be used with the compiler and the C library of Debian 12
    /// and later.
    takes_modules: bool,
}

impl Series {
    /// Whether modules for it can be built on this machine.
    pub(crate) fn takes_modules(self) -> bool {
        self.takes_modules
    }
}

/// A kernel that can be booted.
pub(crate) struct Kernel {
    pub(crate) series: Series,
    /// `6.12.107+deb13-amd64`
    pub(crate) release: String,
    pub(crate) image: PathBuf,
}

impl FromStr for Series {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        SERIES.into_iter().find(|series| series.name == name).ok_or_else(|| {
            let names = SERIES.map(|series| series.name).join(", ");
            format!("no such kernel here; there are {names}")
        })
    }
}

impl fmt::Display for Series {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name)
    }
}

impl Kernel {
    pub(crate) fn ensure(cache: &Cache, series: Series) -> Result<Self> {
        let root = cache
            .ensure(&format!("kernels/{series}"), |root| fetch(cache, series, root))
            .with_context(|| format!("no kernel {series}"))?;
        let release = only_entry(&root.join("lib/modules"))?.to_string_lossy().into_owned();
        let image = root.join("boot").join(format!("vmlinuz-{release}"));
        Ok(Self { series, release, image })
    }
}

/// What modules for a kernel are built by.
pub(crate) struct Headers {
    folder: PathBuf,
}

impl Headers {
    pub(crate) fn ensure(cache: &Cache, kernel: &Kernel) -> Result<Self> {
        let (series, release) = (kernel.series, &kernel.release);
        let root = cache
            .ensure(&format!("headers/{release}"), |root| fetch_headers(cache, kernel, root))
            .with_context(|| format!("no headers of kernel {series}"))?;
        Ok(Self { folder: root.join(format!("usr/src/linux-headers-{release}")) })
    }

    /// The folder that `make -C` takes.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Unpacks the headers of a kernel into `root`, and has them find each other there.
fn fetch_headers(cache: &Cache, kernel: &Kernel, root: &Path) -> Result<()> {
    let step = Step::begin(format_args!("fetching the headers of kernel {} (apt)", kernel.series));
    let suite = Suite::update(cache, kernel.series.suite)?;
    let name = format!("linux-headers-{}", kernel.release);
    let headers = first(suite.show(&name)?, &name)?;
    let parts = headers.depends.iter().filter(|name| {
        ["linux-headers-", "linux-kbuild-"].iter().any(|prefix| name.starts_with(prefix))
    });
    for name in parts {
        suite.unpack(&first(suite.show(name)?, name)?, root, &step)?;
    }
    suite.unpack(&headers, root, &step)?;
    let makefile = root.join("usr/src").join(&name).join("Makefile");
    let found = fs::read_to_string(&makefile)
        .with_context(|| format!("cannot read {}", makefile.display()))?;
    let here = "include $(dir $(lastword $(MAKEFILE_LIST)))../";
    fs::write(&makefile, found.replace("include /usr/src/", here))
        .with_context(|| format!("cannot write {}", makefile.display()))
}

/// Unpacks the series' newest kernel into `root`: `boot/vmlinuz-RELEASE`, `lib/modules/RELEASE`.
fn fetch(cache: &Cache, series: Series, root: &Path) -> Result<()> {
    let step = Step::begin(format_args!("fetching kernel {series} (apt)"));
    let suite = Suite::update(cache, series.suite)?;
    let image = find_image(&suite, series)?;
    for package in closure(&suite, image)? {
        suite.unpack(&package, root, &step)?;
    }
    if !root.join("lib").exists() {
        symlink("usr/lib", root.join("lib"))?; // trixie and later keep modules there
    }
    let release = only_entry(&root.join("lib/modules"))?;
    let modules = root.join("lib/modules").join(&release);
    let name = format!("vmlinuz-{}", release.display());
    let image = root.join("boot").join(&name);
    if !image.exists() {
        fs::create_dir_all(root.join("boot"))?;
        fs::rename(modules.join("vmlinuz"), &image)
            .with_context(|| format!("{name} is not where it is known to be"))?;
    }
    process::quiet(Command::new(depmod()).arg("-b").arg(root).arg(release))
}

/// The package that the suite's meta package follows, if that is still of the series.
fn find_image(suite: &Suite, series: Series) -> Result<Package> {
    let meta = suite.show("linux-image-amd64")?;
    let followed = meta.iter().flat_map(|one| &one.depends).filter(|name| is_image(name, series));
    let Some(name) = newest(followed) else {
        let version = meta.first().map_or("none", |one| &one.version);
        bail!("Debian's {} has {version} now", series.suite);
    };
    first(suite.show(name)?, name)
}

/// A package and those of the kernel's packages that it depends on: later ones are split.
fn closure(suite: &Suite, image: Package) -> Result<Vec<Package>> {
    let mut found = vec![image];
    let mut next = 0;
    while next < found.len() {
        for name in found[next].depends.clone() {
            let is_part = ["linux-base-", "linux-binary-", "linux-modules-"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            if is_part && found.iter().all(|package| package.name != name) {
                found.push(first(suite.show(&name)?, &name)?);
            }
        }
        next += 1;
    }
    Ok(found)
}

fn first(packages: Vec<Package>, name: &str) -> Result<Package> {
    packages.into_iter().next().with_context(|| format!("Debian has no package {name}"))
}

/// Whether `linux-image-6.12.107+deb13-amd64` is of series 6.12.
fn is_image(name: &str, series: Series) -> bool {
    name.strip_prefix("linux-image-")
        .and_then(|release| release.strip_prefix(series.name))
        .is_some_and(|rest| rest.starts_with(['.', '-', '+']))
}

fn newest<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let numbers = |name: &str| -> Vec<u64> {
        name.split(|byte: char| !byte.is_ascii_digit())
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    names.max_by_key(|name| numbers(name)).map(String::as_str)
}

fn only_entry(folder: &Path) -> Result<OsString> {
    let mut entries = fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .collect::<Result<Vec<_>, _>>()?;
    match (entries.pop(), entries.is_empty()) {
        (Some(entry), true) => Ok(entry.file_name()),
        _ => bail!("{} should have one entry", folder.display()),
    }
}

/// An ordinary user's PATH has no /sbin.
fn depmod() -> PathBuf {
    which::which("depmod").unwrap_or_else(|_| "/sbin/depmod".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_known_by_name() {
        assert_eq!("6.12".parse::<Series>().unwrap().suite, "trixie");
        assert!("6.11".parse::<Series>().unwrap_err().contains("5.10, 6.1, 6.12, 7.3"));
    }

    #[test]
    fn image_is_of_its_series() {
        let series: Series = "6.1".parse().unwrap();
        assert!(is_image("linux-image-6.1.0-50-amd64", series));
        assert!(!is_image("linux-image-6.12.107+deb13-amd64", series));
        assert!(!is_image("linux-modules-6.1.0-50-amd64", series));
    }

    #[test]
    fn newest_counts_in_numbers() {
        let names =
            ["linux-image-7.3.4+deb13-amd64", "linux-image-7.3.12+deb13-amd64"].map(str::to_owned);
        assert_eq!(newest(names.iter()), Some("linux-image-7.3.12+deb13-amd64"));
        assert_eq!(newest([].iter()), None);
    }
}
