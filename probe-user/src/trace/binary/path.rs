//! Which file the name of a library or a program means.

use super::{BinaryError, is_of_this_machine};
use std::env;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file that is meant: by a path; by the name of a library, with or without `lib`, `.so` and a version,
/// as the dynamic linker would find it; by the name of a program, as a shell would.
pub(super) fn find(name: &str) -> Result<PathBuf, BinaryError> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Ok(_) => Ok(path),
            Err(source) => Err(BinaryError::Unreadable { path, source }),
        };
    }
    let is_library = name.starts_with("lib") || name.contains(".so");
    let library = match name.contains(".so") {
        true => name.to_owned(),
        false if is_library => format!("{name}.so"),
        false => format!("lib{name}.so"),
    };
    let library_of = || library_in(&directories(), name, &library).transpose();
    let found = match is_library {
        true => library_of().or_else(|| program(name).map(Ok)),
        false => program(name).map(Ok).or_else(library_of),
    };
    found.unwrap_or_else(|| {
        let looked = format!(
            "is no program in PATH, and {library} no library in the directories of /etc/ld.so.conf; a path \
             has a / in it"
        );
        Err(BinaryError::NoFile { name: name.to_owned(), looked })
    })
}

/// As a shell would find it.
fn program(name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(is_program)
}

/// A library in the first directory that has it: by this name, or else with whatever version, if there is
/// one alone.
fn library_in(
    directories: &[PathBuf],
    name: &str,
    library: &str,
) -> Result<Option<PathBuf>, BinaryError> {
    for directory in directories {
        let exact = directory.join(library);
        // It may be a text for the linker, or of another machine.
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

/// Each version of a library that is in a directory, by its shortest name.
fn versions(directory: &Path, library: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let prefix = format!("{library}.");
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix))
        .collect();
    names.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let mut files = Vec::new();
    let mut paths = Vec::new();
    for path in names.into_iter().map(|name| directory.join(name)) {
        let Ok(file) = fs::metadata(&path).map(|found| (found.dev(), found.ino())) else {
            continue;
        };
        if !files.contains(&file) && is_of_this_machine(&path) {
            files.push(file);
            paths.push(path);
        }
    }
    paths
}

/// Where the dynamic linker finds libraries, in its order.
fn directories() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    configured(Path::new("/etc/ld.so.conf"), &mut directories, 0);
    let multiarch = format!("{}-linux-gnu", env::consts::ARCH);
    for trusted in [
        &format!("/lib/{multiarch}"),
        &format!("/usr/lib/{multiarch}"),
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ] {
        directories.push(PathBuf::from(trusted));
    }
    directories
}

/// The directories that a file says, and those that it includes: ldconfig(8).
fn configured(file: &Path, directories: &mut Vec<PathBuf>, depth: u32) {
    /// Files that include each other end somewhere.
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
    fn the_linkers_directories_are_read_with_what_they_include() {
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
    fn a_library_has_one_version_or_has_to_be_named_in_full() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let own = env::current_exe().unwrap();
        let find = || library_in(&[dir.path().to_owned()], "libx", "libx.so");
        assert_eq!(find().unwrap(), None);
        // What the linker reads instead of a library.
        fs::write(at("libx.so"), "GROUP ( libx.so.1 )").unwrap();
        fs::write(at("libx.so.1.0-gdb.py"), "import gdb").unwrap();
        assert_eq!(find().unwrap(), None);
        std::os::unix::fs::symlink(&own, at("libx.so.1.0")).unwrap();
        std::os::unix::fs::symlink("libx.so.1.0", at("libx.so.1")).unwrap();
        assert_eq!(find().unwrap(), Some(at("libx.so.1")));
        fs::copy("/proc/self/exe", at("libx.so.2")).unwrap();
        let told = find().unwrap_err().to_string();
        let expected = format!(
            "libx stands for several libraries: name one of {}, {}",
            at("libx.so.1").display(),
            at("libx.so.2").display()
        );
        assert_eq!(told, expected);
        fs::remove_file(at("libx.so")).unwrap();
        std::os::unix::fs::symlink("libx.so.2", at("libx.so")).unwrap();
        assert_eq!(find().unwrap(), Some(at("libx.so")));
    }

    #[test]
    fn names_are_found_where_the_linker_and_shells_find_them() {
        let libc = ["libc", "libc.so", "libc.so.6"].map(|name| find(name).unwrap());
        assert!(libc.iter().all(|path| path.ends_with("libc.so.6")), "{libc:?}");
        assert_eq!(find("sh").unwrap().file_name().unwrap(), "sh");
        assert!(find("m").unwrap().file_name().unwrap().to_str().unwrap().starts_with("libm.so"));
        let told = find("no_such_thing").unwrap_err().to_string();
        assert!(
            told.starts_with("no_such_thing is no program in PATH, and libno_such_thing.so no"),
            "{told}"
        );
        assert_eq!(
            find("./no/such").unwrap_err().to_string(),
            "./no/such cannot be read: No such file or directory (os error 2)"
        );
    }
}
