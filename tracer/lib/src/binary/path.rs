//! Finding the file of a library or program by name.

use super::{BinaryError, is_of_this_machine};
use std::collections::HashSet;
use std::env;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Finds a file: by its path; by the name of a library, with or without `lib`, `.so` and a version, as the dynamic
/// linker does; or by the name of a program, as a shell does.
pub(super) fn find(name: &str) -> Result<PathBuf, BinaryError> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let is_library = name.starts_with("lib") || name.contains(".so");
    let library = library_of_name(name);
    let library_of = || library_in(&directories(), name, &library).transpose();
    let found = match is_library {
        true => library_of().or_else(|| program(name).map(Ok)),
        false => program(name).map(Ok).or_else(library_of),
    };
    found.unwrap_or_else(|| Err(BinaryError::NoFile { name: name.to_owned(), library }))
}

/// The file name, without a version, of the library that a name stands for.
fn library_of_name(name: &str) -> String {
    match name.contains(".so") {
        true => name.to_owned(),
        false if name.starts_with("lib") => format!("{name}.so"),
        false => format!("lib{name}.so"),
    }
}

/// Whether a file of this name is some version of the library that `name` stands for: `libc.so.6` or `libc-2.31.so` for
/// `libc` or `c`.
pub(super) fn is_library_name(file: &str, name: &str) -> bool {
    let library = library_of_name(name);
    let after = |prefix: &str| file.strip_prefix(prefix);
    let is_version = |rest: &str| {
        rest.starts_with(|first: char| first.is_ascii_digit()) && rest.ends_with(".so")
    };
    after(&library).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        || library
            .strip_suffix("so")
            .is_some_and(|stem| after(&stem.replace('.', "-")).is_some_and(is_version))
}

/// Whether a program of this name is in `PATH`.
pub(crate) fn is_program(name: &str) -> bool {
    !name.contains('/') && program(name).is_some()
}

/// Looks a program up in `PATH`.
pub(crate) fn program(name: impl AsRef<Path>) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    // The C library's default.
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&path).map(|directory| directory.join(&name)).find(is_program)
}

/// Looks a library up in the first directory that has it: by this name, or otherwise by any version if there is only
/// one.
fn library_in(
    directories: &[PathBuf],
    name: &str,
    library: &str,
) -> Result<Option<PathBuf>, BinaryError> {
    for directory in directories {
        let exact = directory.join(library);
        // It may be a linker script, or a library for another machine.
        if is_of_this_machine(&exact) {
            return Ok(Some(exact));
        }
        let mut found = versions(directory, library);
        match found.len() {
            0 => {}
            1 => return Ok(found.pop()),
            _ => return Err(BinaryError::SeveralFiles { name: name.to_owned(), found }),
        }
    }
    Ok(None)
}

/// The versions of a library in a directory, each by its shortest name.
fn versions(directory: &Path, library: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let prefix = format!("{library}.");
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix))
        .collect();
    names.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let mut files = HashSet::new();
    let mut is_new = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| files.insert((found.dev(), found.ino())))
    };
    let paths = names.into_iter().map(|name| directory.join(name));
    paths.filter(|path| is_of_this_machine(path) && is_new(path)).collect()
}

/// The directories that the dynamic linker searches, in order.
fn directories() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    configured(Path::new("/etc/ld.so.conf"), &mut directories, 0);
    for folder in ["/lib", "/usr/lib"] {
        directories.push(format!("{folder}/{}-linux-gnu", env::consts::ARCH).into());
    }
    directories.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    directories
}

/// The directories listed in a file and in the files that it includes (see ldconfig(8)).
fn configured(file: &Path, directories: &mut Vec<PathBuf>, depth: u32) {
    /// Bounds the recursion of files that include each other.
    const DEEPEST: u32 = 8;
    let Ok(text) = fs::read_to_string(file) else { return };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None | Some("hwcap") => {}
            Some("include") if depth < DEEPEST => {
                let beside = file.parent().unwrap_or(Path::new("/"));
                for pattern in words {
                    let pattern = beside.join(pattern).to_string_lossy().into_owned();
                    let included = glob::glob(&pattern).into_iter().flatten().flatten();
                    included.for_each(|file| configured(&file, directories, depth + 1));
                }
            }
            Some("include") => {}
            Some(_) => {
                let separators =
                    |char: char| char.is_ascii_whitespace() || matches!(char, ':' | ',');
                let all = line.split(separators).filter(|one| one.starts_with('/'));
                directories
                    .extend(all.map(|one| PathBuf::from(one.split('=').next().unwrap_or(one))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linker_directories_include_those_of_included_files() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("main", "# a comment\ninclude more*.conf\n/b:/c /d=libc6\nhwcap 1 x\n\nrelative\n");
        write("more1.conf", "/a # behind\ninclude more1.conf\n");
        write("other", "/not/this");
        let mut found = Vec::new();
        configured(&dir.path().join("main"), &mut found, 0);
        found.dedup();
        assert_eq!(found, ["/a", "/b", "/c", "/d"].map(PathBuf::from));
    }

    #[test]
    fn one_of_several_versions_has_to_be_named_in_full() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let own = env::current_exe().unwrap();
        let find = || library_in(&[dir.path().to_owned()], "libx", "libx.so");
        assert_eq!(find().unwrap(), None);
        // A linker script in place of a library.
        fs::write(at("libx.so"), "GROUP ( libx.so.1 )").unwrap();
        fs::write(at("libx.so.1.0-gdb.py"), "import gdb").unwrap();
        assert_eq!(find().unwrap(), None);
        std::os::unix::fs::symlink(&own, at("libx.so.1.0")).unwrap();
        std::os::unix::fs::symlink("libx.so.1.0", at("libx.so.1")).unwrap();
        assert_eq!(find().unwrap(), Some(at("libx.so.1")));
        fs::copy("/proc/self/exe", at("libx.so.2")).unwrap();
        let [one, two] = ["libx.so.1", "libx.so.2"].map(|name| at(name).display().to_string());
        let expected = format!("libx matches several libraries; name one of {one}, {two}");
        assert_eq!(find().unwrap_err().to_string(), expected);
        fs::remove_file(at("libx.so")).unwrap();
        std::os::unix::fs::symlink("libx.so.2", at("libx.so")).unwrap();
        assert_eq!(find().unwrap(), Some(at("libx.so")));
    }

    #[test]
    fn versions_of_a_library_have_its_name() {
        for (file, name, is_it) in [
            ("libc.so.6", "libc", true),
            ("libc.so.6", "c", true),
            ("libc.so.6", "libc.so", true),
            ("libc.so.6", "libc.so.6", true),
            ("libc-2.31.so", "libc", true),
            ("libc-client.so", "libc", false),
            ("libcrypt.so.1", "libc", false),
            ("bash", "bash", false),
        ] {
            assert_eq!(is_library_name(file, name), is_it, "{file} {name}");
        }
    }

    #[test]
    fn libraries_and_programs_are_found_by_name() {
        let libc = ["libc", "libc.so", "libc.so.6"].map(|name| find(name).unwrap());
        assert!(libc.iter().all(|path| path.ends_with("libc.so.6")), "{libc:?}");
        assert_eq!(find("sh").unwrap().file_name().unwrap(), "sh");
        assert!(find("m").unwrap().file_name().unwrap().to_str().unwrap().starts_with("libm.so"));
        let error = find("no_such_thing").unwrap_err().to_string();
        let start = "no_such_thing is not a program in PATH, and libno_such_thing.so is not in";
        assert!(error.starts_with(start), "{error}");
    }
}
