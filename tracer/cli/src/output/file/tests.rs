//! Files that are created, replaced and refused.

use super::*;
use std::fs::{self, hard_link, read_dir, read_to_string};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use tempfile::{TempDir, tempdir};

fn open_in(dir: &TempDir) -> Result<OutputFile> {
    OutputFile::open(&dir.path().join("file"), Sharing::Refused)
}

fn names(dir: &TempDir) -> Vec<String> {
    let entries = read_dir(dir.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn only_the_owner_reads_a_file() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("file");
    for is_named_first in [true, false] {
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let mut reader = File::open(&path).unwrap();
        let mut file = open_in(&dir).unwrap();
        if is_named_first {
            file = file.named().unwrap();
        }
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // Those who have the old file open do not see the new one.
        let mut old = String::new();
        reader.read_to_string(&mut old).unwrap();
        assert_eq!(old, "old");
        assert_eq!(names(&dir), ["file"]);
    }
}

#[test]
fn a_file_appears_at_once_or_whole_or_never() {
    let dir = tempdir().unwrap();
    drop(open_in(&dir).unwrap().named().unwrap());
    assert_eq!(names(&dir), ["file"]);
    fs::write(dir.path().join("file"), "old").unwrap();
    let mut file = open_in(&dir).unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!(read_to_string(dir.path().join("file")).unwrap(), "old");
    drop(file);
    assert_eq!(read_to_string(dir.path().join("file")).unwrap(), "old");
    assert_eq!(names(&dir), ["file"]);
}

#[test]
fn another_process_names_files_that_appear_whole() {
    let dir = tempdir().unwrap();
    let directory = Arc::new(Directory::create(dir.path(), Sharing::Refused).unwrap());
    let create = |name: &str| OutputFile::create(&directory, name).unwrap();
    let mut files = ["first", "second"].map(create);
    files[0].write_all(b"whole").unwrap();
    OutputFile::named_by_a_process(&mut files.each_mut());
    assert!(files.iter().all(|file| file.directory().is_none()));
    assert!(names(&dir).is_empty());
    let [first, second] = files;
    first.finish().unwrap();
    drop(second);
    assert_eq!(names(&dir), ["first"]);
    assert_eq!(read_to_string(dir.path().join("first")).unwrap(), "whole");
}

#[test]
fn a_temporary_name_serves_where_files_need_one() {
    let dir = tempdir().unwrap();
    let directory = Arc::new(Directory::create(dir.path(), Sharing::Refused).unwrap());
    let mut hidden = Hidden { directory, name: "file".into(), temporary: None, namer: None };
    let file: File = hidden.with_a_temporary_name().unwrap().into();
    assert!(names(&dir)[0].starts_with(".probe-"));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    hidden.appear(&file).unwrap();
    assert_eq!(names(&dir), ["file"]);
    hidden.with_a_temporary_name().unwrap();
    assert_eq!(names(&dir).len(), 2);
    drop(hidden);
    assert_eq!(names(&dir), ["file"]);
}

#[test]
fn a_file_is_created_in_the_directory_that_was_checked() {
    let (dir, other) = (tempdir().unwrap(), tempdir().unwrap());
    let path = dir.path().join("dir");
    let directory = Arc::new(Directory::create(&path, Sharing::Refused).unwrap());
    fs::rename(&path, dir.path().join("moved")).unwrap();
    symlink(other.path(), &path).unwrap();
    OutputFile::create(&directory, "file").unwrap().finish().unwrap();
    assert!(dir.path().join("moved/file").exists());
    assert_eq!(names(&other), [""; 0]);
}

#[test]
fn what_is_no_file_of_ones_own_is_neither_replaced_nor_written() {
    type Place = fn(&Path, &Path);
    let place: [(&str, Place); 4] = [
        ("a link", |path, other| symlink(other, path).unwrap()),
        ("a file with other names, too", |path, other| hard_link(other, path).unwrap()),
        ("a directory", |path, _| fs::create_dir(path).unwrap()),
        ("neither a file nor a FIFO nor a device", |path, _| {
            UnixListener::bind(path).unwrap();
        }),
    ];
    for (what, place) in place {
        let dir = tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        place(&path, &other);
        let error = open_in(&dir).unwrap_err().to_string();
        let whole = format!("{}: it is {what}; delete it, or choose another name", path.display());
        assert!(error.ends_with(&whole), "{error}");
        assert_eq!(read_to_string(&other).unwrap(), "other");
    }
}

#[test]
fn a_file_of_another_user_is_not_replaced() {
    if !geteuid().is_root() {
        return;
    }
    let dir = tempdir().unwrap();
    let path = dir.path().join("file");
    for (make, what) in
        [(Path::new("file"), "a file of user 65534"), (Path::new("fifo"), "a FIFO of user 65534")]
    {
        match make == Path::new("file") {
            true => fs::write(&path, "").unwrap(),
            false => make_fifo(&path),
        }
        chown(&path, Some(65534), None).unwrap();
        let error = open_in(&dir).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        fs::remove_file(&path).unwrap();
    }
}

fn make_fifo(path: &Path) {
    rustix::fs::mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
}

#[test]
fn fifos_and_devices_are_written_in_place() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("file");
    make_fifo(&path);
    let reader = std::thread::spawn({
        let path = path.clone();
        move || read_to_string(path).unwrap()
    });
    let mut file = open_in(&dir).unwrap();
    file.write_all(b"through").unwrap();
    file.finish().unwrap();
    assert_eq!(reader.join().unwrap(), "through");
    assert_eq!(names(&dir), ["file"]);
    let open = |path| OutputFile::open(Path::new(path), Sharing::Refused);
    open("/dev/null").unwrap().write_all(b"nowhere").unwrap();
    assert!(open("/dev/full").unwrap().write_all(b"nowhere").is_err());
}

/// A shell passes `>(command)` as such a name.
#[test]
fn a_descriptor_of_this_process_is_written_in_place() {
    let dir = tempdir().unwrap();
    let target = File::create(dir.path().join("target")).unwrap();
    let path = format!("/dev/fd/{}", target.as_raw_fd());
    let mut file = OutputFile::open(Path::new(&path), Sharing::Refused).unwrap();
    file.write_all(b"in place").unwrap();
    file.finish().unwrap();
    assert_eq!(read_to_string(dir.path().join("target")).unwrap(), "in place");
}
