//! Debian's stock kernels, unpacked but not installed, and the module that tests load into them.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::say::Step;
use crate::setup::apt::{self, Package, Suite};
use crate::setup::{Cache, files};
use crate::{process, workspace};

/// The kernels to test on, oldest first.
pub(crate) const SERIES: [Series; 4] = [
    Series { name: "5.10", suite: "bullseye-security", takes_modules: true },
    Series { name: "6.1", suite: "bookworm", takes_modules: true },
    Series { name: "6.12", suite: "trixie", takes_modules: false },
    Series { name: "7.3", suite: "trixie-backports", takes_modules: false },
];

/// The headers include `objtool`, which checks the compiled code and needs libelf. The library's own package has another name
/// in each release.
const MODULE_NEEDS: [&str; 2] = ["make", "libelf-dev"];

/// A stable series of Linux, and the Debian suite that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Series {
    name: &'static str,
    suite: &'static str,
    /// Whether its headers, and the programs that they include, work with the compiler and the C library of Debian 12
    /// and later.
    takes_modules: bool,
}

/// An unpacked kernel, ready to boot.
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
            format!("unknown kernel; the kernels are {names}")
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
            .with_context(|| format!("cannot get kernel {series}"))?;
        let release = only_entry(&root.join("lib/modules"))?.to_string_lossy().into_owned();
        let image = root.join("boot").join(format!("vmlinuz-{release}"));
        Ok(Self { series, release, image })
    }

    /// Builds the module that tests load, in `folder`. Returns the environment variable with its path for the tests, or
    /// `None` if this machine cannot build for that kernel.
    pub(crate) fn module(&self, cache: &Cache, folder: &Path) -> Result<Option<OsString>> {
        if !self.series.takes_modules {
            return Ok(None);
        }
        apt::install(&MODULE_NEEDS)?;
        let headers = self.headers(cache)?;
        let folder = folder.join(format!("module-{}", self.release));
        let sources = workspace::root().join("testing/aux_module");
        for source in files::entries(&sources)? {
            let name = source.file_name().unwrap_or_default();
            // Unchanged files must not cause a rebuild: a running machine may be loading the module.
            files::write_if_changed(&folder.join(name), &files::read(&source)?)?;
        }
        let step = Step::begin(format_args!("building a module for {}", self.series));
        let mut make = Command::new("make");
        make.arg("-C").arg(headers).arg(format!("M={}", folder.display()));
        // This machine may lack the exact compiler that the kernel was built with.
        process::watched(make.args(["CC=gcc", "modules"]), &step)
            .with_context(|| format!("cannot build {}", sources.display()))?;
        let mut variable = OsString::from("PROBE_AUX_MODULE=");
        variable.push(folder.join("probe_aux.ko"));
        Ok(Some(variable))
    }

    /// The folder of its headers, for `make -C`.
    fn headers(&self, cache: &Cache) -> Result<PathBuf> {
        let (series, release) = (self.series, &self.release);
        let root = cache
            .ensure(&format!("headers/{release}"), |root| fetch_headers(cache, self, root))
            .with_context(|| {
                let kernel = cache.path(format!("kernels/{series}"));
                let kernel = kernel.display();
                format!("cannot get the headers of kernel {release}; if Debian has a newer one by now, remove {kernel}")
            })?;
        Ok(root.join(format!("usr/src/linux-headers-{release}")))
    }
}

/// Unpacks the headers of a kernel into `root`, and makes the paths in their Makefile relative.
fn fetch_headers(cache: &Cache, kernel: &Kernel, root: &Path) -> Result<()> {
    let step = Step::begin(format_args!("fetching the headers of kernel {} (apt)", kernel.series));
    let suite = Suite::update(cache, kernel.series.suite)?;
    let name = format!("linux-headers-{}", kernel.release);
    let headers = suite.newest(&name)?;
    let parts = headers.depends.iter().filter(|name| {
        ["linux-headers-", "linux-kbuild-"].iter().any(|prefix| name.starts_with(prefix))
    });
    for name in parts {
        suite.unpack(&suite.newest(name)?, root, &step)?;
    }
    suite.unpack(&headers, root, &step)?;
    let makefile = root.join("usr/src").join(&name).join("Makefile");
    let here = "include $(dir $(lastword $(MAKEFILE_LIST)))../";
    let relative = files::read_text(&makefile)?.replace("include /usr/src/", here);
    files::write(&makefile, relative)
}

/// Unpacks the newest kernel of the series into `root`: `boot/vmlinuz-RELEASE` and `lib/modules/RELEASE`.
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
        files::create_folder(&root.join("boot"))?;
        fs::rename(modules.join("vmlinuz"), &image)
            .with_context(|| format!("cannot find {name} in the package"))?;
    }
    process::quiet(Command::new(depmod()).arg("-b").arg(root).arg(release))
}

/// The newest image of the series. The suite's metapackage may depend on one of a later series.
fn find_image(suite: &Suite, series: Series) -> Result<Package> {
    let images = suite.names(&format!("linux-image-{series}"))?;
    if let Some(name) = newest(images.iter().filter(|name| is_image(name, series))) {
        return suite.newest(name);
    }
    let meta = suite.newest("linux-image-amd64")?;
    bail!("Debian's {} has no kernel of this series any more, but {}", series.suite, meta.version)
}

/// A kernel package and its dependencies that are parts of the kernel: newer kernels are split.
fn closure(suite: &Suite, image: Package) -> Result<Vec<Package>> {
    let mut found = vec![image];
    let mut next = 0;
    while next < found.len() {
        for name in found[next].depends.clone() {
            let is_part = ["linux-base-", "linux-binary-", "linux-modules-"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            if is_part && found.iter().all(|package| package.name != name) {
                found.push(suite.newest(&name)?);
            }
        }
        next += 1;
    }
    Ok(found)
}

/// Whether a package such as `linux-image-6.12.107+deb13-amd64` is the usual image of a series such as 6.12, and not a variant
/// such as `linux-image-6.12.107+deb13-rt-amd64`.
fn is_image(name: &str, series: Series) -> bool {
    let release = name.strip_prefix("linux-image-").and_then(|name| name.strip_suffix("-amd64"));
    let is_variant = |rest: &str| ["-cloud", "-rt"].iter().any(|variant| rest.ends_with(variant));
    release
        .and_then(|release| release.strip_prefix(series.name))
        .is_some_and(|rest| rest.starts_with(['.', '-', '+']) && !is_variant(rest))
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
    match &files::entries(folder)?[..] {
        [entry] => Ok(entry.file_name().unwrap_or_default().to_owned()),
        _ => bail!("{} must have exactly one entry", folder.display()),
    }
}

/// The path of depmod. An ordinary user's PATH may lack /sbin.
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
        for other in [
            "linux-image-6.12.107+deb13-amd64",
            "linux-modules-6.1.0-50-amd64",
            "linux-image-6.1.0-50-rt-amd64",
            "linux-image-6.1.0-50-cloud-amd64",
            "linux-image-6.1.0-50-amd64-dbg",
            "linux-image-6.1.0-50-amd64-unsigned",
        ] {
            assert!(!is_image(other, series), "{other}");
        }
    }

    #[test]
    fn newest_counts_in_numbers() {
        let names =
            ["linux-image-7.3.4+deb13-amd64", "linux-image-7.3.12+deb13-amd64"].map(str::to_owned);
        assert_eq!(newest(names.iter()), Some("linux-image-7.3.12+deb13-amd64"));
        assert_eq!(newest([].iter()), None);
    }
}
