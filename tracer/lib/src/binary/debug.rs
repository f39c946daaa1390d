//! The symbols of stripped files, which distributions and `strip` keep in files of their own.

use object::Object;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const GLOBAL: &str = "/usr/lib/debug";

/// Where the symbols of the program at a path without links may be, as in the documentation of GDB ("Separate Debug
/// Files").
pub(super) fn candidates(path: &Path, id: Option<&[u8]>, link: Option<&[u8]>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let hex: String = id.unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect();
    if let Some((first, rest)) = hex.split_at_checked(2) {
        found.push(Path::new(GLOBAL).join(format!(".build-id/{first}/{rest}.debug")));
    }
    let Some(name) = link.filter(|name| !name.contains(&b'/')) else { return found };
    let (name, folder) = (OsStr::from_bytes(name), path.parent().unwrap_or(Path::new("/")));
    let in_global = Path::new(GLOBAL).join(folder.strip_prefix("/").unwrap_or(folder));
    found.extend([folder.to_owned(), folder.join(".debug"), in_global].map(|one| one.join(name)));
    found
}

/// Where a file that several programs share may be, by its name in one of them: `../../.dwz/NAME`.
pub(super) fn shared(name: &[u8]) -> Option<PathBuf> {
    let (_, name) = str::from_utf8(name).ok()?.rsplit_once("/.dwz/")?;
    let is_below = Path::new(name).components().all(|one| matches!(one, Component::Normal(_)));
    is_below.then(|| Path::new(GLOBAL).join(".dwz").join(name))
}

/// Whether a file has the symbols of a program with this build ID or, without one, of one whose debug link has this checksum of the
/// file. The addresses in a file of another build are others.
pub(super) fn is_of_build<'d>(
    debug: &impl Object<'d>,
    file: &File,
    id: Option<&[u8]>,
    sum: Option<u32>,
) -> bool {
    match (id, sum) {
        (Some(id), _) => debug.build_id() == Ok(Some(id)),
        (None, Some(sum)) => checksum(file).is_ok_and(|own| own == sum),
        (None, None) => false,
    }
}

/// The checksum of a file that debug links have.
fn checksum(mut file: &File) -> io::Result<u32> {
    let (mut sum, mut bytes) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
    file.rewind()?;
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(sum.finalize()),
            len => sum.update(&bytes[..len]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_is_in_the_folder_of_shared_files() {
        let path = |name: &str| shared(name.as_bytes());
        for (name, found) in [
            ("../../.dwz/x", "x"),
            ("/usr/lib/debug/.dwz/x86_64-linux-gnu/x.debug", "x86_64-linux-gnu/x.debug"),
        ] {
            assert_eq!(path(name), Some(Path::new("/usr/lib/debug/.dwz").join(found)));
        }
        for name in ["", "x", "a/.dwz/../x", "a/.dwz//etc/x", "/.dwz/a/../../x"] {
            assert_eq!(path(name), None, "{name}");
        }
    }
}
