//! The symbols of stripped files, which distributions and `strip` keep in files of their own.

use super::Elf;
use super::functions::Functions;
use super::parts::parts;
use super::process::open_regular;
use object::Object;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const GLOBAL: &str = "/usr/lib/debug";

/// Adds the functions of the file with the symbols of a stripped one, if it is installed: by the build ID, or by the
/// debug link.
pub(super) fn add_symbols(path: &Path, elf: &Elf<'_>, functions: &mut Functions) {
    let (Ok(id), Ok(link)) = (elf.build_id(), elf.gnu_debuglink()) else { return };
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for candidate in candidates(&path, id, link.map(|(name, _)| name)) {
        // Whatever is at that path, nothing but a regular file is opened.
        let Ok(file) = open_regular(&candidate) else { continue };
        let read = parts(&file);
        let Ok(debug) = Elf::parse(&read) else { continue };
        // A file of another build has other addresses. Without a build ID, the link has the checksum of the file.
        let is_of_this_build = match (id, link) {
            (Some(id), _) => debug.build_id() == Ok(Some(id)),
            (None, Some((_, sum))) => checksum(&file).is_ok_and(|own| own == sum),
            (None, None) => false,
        };
        if is_of_this_build && functions.add_all(&debug).is_ok() {
            return;
        }
    }
}

/// Where the symbols of the program at a path without links may be, as in the documentation of GDB ("Separate Debug
/// Files").
pub(crate) fn candidates(path: &Path, id: Option<&[u8]>, link: Option<&[u8]>) -> Vec<PathBuf> {
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

/// The checksum of a file that debug links have.
pub(crate) fn checksum(mut file: &File) -> io::Result<u32> {
    let (mut sum, mut bytes) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
    file.rewind()?;
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(sum.finalize()),
            len => sum.update(&bytes[..len]),
        }
    }
}
