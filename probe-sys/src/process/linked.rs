//! Functions of the libraries that this process is linked with.

use std::ffi::CStr;
use std::fs;
use std::path::PathBuf;

/// Finds the function that a name stands for in this process, by `dlsym(3)`: for an IFUNC, the implementation that its
/// library has chosen on this machine. Returns the path of the file and the function's offset in it, in bytes.
///
/// `None` if no library of this process has the name, or the function is not in a file.
pub fn linked_function(name: &CStr) -> Option<(PathBuf, u64)> {
    // SAFETY: the name ends with a zero. Choosing an implementation has no effect but its result.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // Other mappings may be of files with any names.
    let maps = fs::read("/proc/self/maps").ok()?;
    let mut lines = maps.split(|&byte| byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    lines.find_map(|line| place_in(line, address.addr() as u64))
}

/// The path and the offset in the file, if an address is in the mapping of this line of `/proc/self/maps`.
fn place_in(line: &str, address: u64) -> Option<(PathBuf, u64)> {
    let number = |word: &str| u64::from_str_radix(word, 16).ok();
    let mut words = line.splitn(6, ' ');
    let (range, _, offset) = (words.next()?, words.next()?, words.next()?);
    let (begin, end) = range.split_once('-')?;
    let (begin, end, offset) = (number(begin)?, number(end)?, number(offset)?);
    let path = words.nth(2)?.trim_start();
    let is_there = (begin..end).contains(&address) && path.starts_with('/');
    is_there.then(|| (path.into(), offset + (address - begin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_its_addresses() {
        let line = "7f10-7f20 r-xp 00000100 fe:00 12                 /usr/lib/a b.so";
        let place = |address| place_in(line, address);
        assert_eq!(place(0x7f18), Some(("/usr/lib/a b.so".into(), 0x108)));
        assert_eq!([0x7f0f, 0x7f20].map(place), [None, None]);
        assert_eq!(place_in("7f10-7f20 r-xp 00000000 00:00 0      [vdso]", 0x7f18), None);
        assert_eq!(place_in("7f10-7f20 r-xp 00000000 00:00 0 ", 0x7f18), None);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn a_function_of_the_c_library_is_in_its_file() {
        let (path, offset) = linked_function(c"strlen").unwrap();
        assert!(path.to_str().unwrap().contains("libc") && offset > 0, "{path:?}");
        assert_eq!(linked_function(c"no_such_function"), None);
    }
}
