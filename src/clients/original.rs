//! A client's file as it was found, its backups, and its replacement by another text. Knows nothing of what is in it.
//!
//! The client may write to its file at any moment. What it wrote since the file was read is never lost: a file that is
//! not as it was found is not replaced.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::config::file::{Rights, create, read_trusted, replace_if};

/// Larger files are no configuration.
const LARGEST: u64 = 64 << 20;
/// More backups of one file are not kept.
const MOST_BACKUPS: usize = 999;
/// The rights of a file that we make: clients keep secrets in theirs.
const PRIVATE: u32 = 0o600;

/// A file as it was found.
#[derive(Debug)]
pub struct Original {
    /// Its name, which may be that of a link.
    path: PathBuf,
    found: Option<Found>,
}

#[derive(Debug)]
struct Found {
    /// The file itself.
    file: PathBuf,
    metadata: Metadata,
    text: String,
}

/// Why a file was not replaced.
struct Refused(String);

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused(format!("cannot be written: {error}"))
    }
}

impl Original {
    /// Reads a file, or finds that there is none. An error reads on after the file's name.
    pub fn read(path: &Path) -> Result<Self, String> {
        let path = path.to_owned();
        let link = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Original { path, found: None }),
            Err(error) => return Err(format!("cannot be read: {error}")),
            Ok(metadata) => metadata.is_symlink(),
        };
        let file = fs::canonicalize(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if link => "is a link to a file that does not exist".to_owned(),
            _ => format!("cannot be read: {error}"),
        })?;
        let text = read_text(&file)?;
        let metadata = fs::metadata(&file).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(Original { path, found: Some(Found { file, metadata, text }) })
    }

    /// What it says; `None` where there is no file.
    pub fn text(&self) -> Option<&str> {
        self.found.as_ref().map(|found| found.text.as_str())
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The texts of its backups, the newest first. One that cannot be read is none.
    pub fn backups(&self) -> impl Iterator<Item = String> {
        let last = (1..=MOST_BACKUPS).take_while(|n| self.backup(*n).symlink_metadata().is_ok()).count();
        (1..=last).rev().filter_map(|n| read_text(&self.backup(n)).ok())
    }

    /// Replaces the file and gives the name of the backup that was made of it before; a file that was not there is made,
    /// with its directories. An error reads on after the file's name, and leaves all as it was.
    pub fn replace(&self, text: &str) -> Result<Option<PathBuf>, String> {
        let Some(found) = &self.found else { return self.make(text).map(|()| None) };
        found.may_be_replaced()?;
        let rights = Rights::Of(&found.metadata);
        let backup = self.back_up(found)?;
        let still = || if self.is_as_found() { Ok(()) } else { Err(Refused(CHANGED.to_owned())) };
        match replace_if(&found.file, text.as_bytes(), rights, still) {
            Ok(()) => Ok(Some(backup)),
            Err(Refused(why)) => {
                // Of a file that stays as it is, it is of no use.
                let _ = fs::remove_file(backup);
                Err(why)
            }
        }
    }

    fn make(&self, text: &str) -> Result<(), String> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let made = parent.map_or(Ok(()), fs::create_dir_all);
        made.map_err(|error| format!("cannot be made: its directory cannot: {error}"))?;
        let still = || if self.is_as_found() { Ok(()) } else { Err(Refused(CHANGED.to_owned())) };
        replace_if(&self.path, text.as_bytes(), Rights::Mode(PRIVATE), still).map_err(|Refused(why)| why)
    }

    /// By its bytes: a time stamp is too coarse on some file systems, and a client that writes the same has changed
    /// nothing.
    fn is_as_found(&self) -> bool {
        match &self.found {
            None => self.path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound),
            Some(found) => {
                fs::canonicalize(&self.path).is_ok_and(|file| file == found.file)
                    && read_text(&found.file).is_ok_and(|text| text == found.text)
            }
        }
    }

    fn back_up(&self, found: &Found) -> Result<PathBuf, String> {
        for n in 1..=MOST_BACKUPS {
            let backup = self.backup(n);
            match create(&backup, found.text.as_bytes(), Rights::Of(&found.metadata)) {
                Ok(()) => return Ok(backup),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("cannot be backed up, so it was left as it is: {error}")),
            }
        }
        Err(format!("has {MOST_BACKUPS} backups beside it: remove those that are not needed any more"))
    }

    fn backup(&self, n: usize) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".bulkhead-backup-{n}"));
        self.path.with_file_name(name)
    }
}

const CHANGED: &str = "was changed by something else meanwhile, so it was left as it is: try again";

impl Found {
    /// A new file takes the place of the old one, so what its owner meant by owning or closing it would be lost.
    fn may_be_replaced(&self) -> Result<(), String> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let (owner, me) = (self.metadata.uid(), rustix::process::geteuid().as_raw());
            if owner != me {
                return Err(format!("belongs to user {owner}, not to user {me}, who would replace it"));
            }
        }
        if self.metadata.permissions().readonly() {
            return Err("is read-only, so it was left as it is".to_owned());
        }
        Ok(())
    }
}

fn read_text(file: &Path) -> Result<String, String> {
    String::from_utf8(read_trusted(file, LARGEST)?).map_err(|_| "is not UTF-8".to_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn with(text: &str) -> (Self, PathBuf) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("c.json");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            (Folder(dir), path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.0.path()).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_change_between_reading_and_writing_is_kept_and_nothing_is_left_beside_it() {
        let (folder, path) = Folder::with("old");
        let original = Original::read(&path).unwrap();
        fs::write(&path, "the client's").unwrap();
        assert_eq!(original.replace("new").unwrap_err(), CHANGED);
        assert_eq!(fs::read_to_string(&path).unwrap(), "the client's");
        assert_eq!(folder.names(), ["c.json"]);

        fs::remove_file(&path).unwrap();
        assert_eq!(original.replace("new").unwrap_err(), CHANGED, "nor is one that is gone made again");
        let missing = Original::read(&path).unwrap();
        assert_eq!(missing.text(), None);
        fs::write(&path, "the client's").unwrap();
        assert_eq!(missing.replace("new").unwrap_err(), CHANGED);
        assert_eq!(fs::read_to_string(&path).unwrap(), "the client's");
        assert_eq!(folder.names(), ["c.json"]);
    }

    #[test]
    fn a_link_that_points_elsewhere_meanwhile_is_a_change() {
        let (folder, path) = Folder::with("same");
        let (link, other) = (folder.0.path().join("l.json"), folder.0.path().join("o.json"));
        fs::copy(&path, &other).unwrap();
        symlink(&path, &link).unwrap();
        let original = Original::read(&link).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(&other, &link).unwrap();
        assert_eq!(original.replace("new").unwrap_err(), CHANGED);
        assert_eq!(folder.names(), ["c.json", "l.json", "o.json"]);
    }

    #[test]
    fn backups_are_numbered_have_the_same_rights_and_are_never_written_over() {
        let (folder, path) = Folder::with("one");
        for (text, n) in [("two", 1), ("three", 2)] {
            let backup = Original::read(&path).unwrap().replace(text).unwrap().unwrap();
            assert!(backup.ends_with(format!("c.json.bulkhead-backup-{n}")));
            assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o7777, 0o640);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(Original::read(&path).unwrap().backups().collect::<Vec<_>>(), ["two", "one"]);
        assert_eq!(folder.names().len(), 3);
    }

    #[test]
    fn what_is_no_file_of_ours_to_replace_is_refused() {
        let (folder, path) = Folder::with("x");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        assert_eq!(Original::read(&path).unwrap().replace("y").unwrap_err(), "is read-only, so it was left as it is");
        let dangling = folder.0.path().join("d.json");
        symlink("nowhere", &dangling).unwrap();
        assert_eq!(Original::read(&dangling).unwrap_err(), "is a link to a file that does not exist");
        assert_eq!(Original::read(folder.0.path()).unwrap_err(), "is no regular file");
        fs::write(folder.0.path().join("u.json"), b"\xff\xfe{").unwrap();
        assert_eq!(Original::read(&folder.0.path().join("u.json")).unwrap_err(), "is not UTF-8");
        assert_eq!(folder.names(), ["c.json", "d.json", "u.json"]);
    }
}
