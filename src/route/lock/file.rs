//! The lock file on the disk: read whole, replaced whole. Knows nothing of what is in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::Lock;
use super::read::parse;
use crate::config::file::read_trusted;
use crate::error::{Class, Fault};

/// Larger files are no lock: room for some ten thousand definitions.
const LARGEST: u64 = 64 << 20;

impl Lock {
    /// Reads the file; `None` where there is none.
    pub fn read(path: &Path) -> Result<Option<Lock>, Fault> {
        if fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let shown = path.display().to_string();
        // What is approved is no less than the configuration: who can write it can name what runs.
        let bytes = read_trusted(path, LARGEST)
            .map_err(|why| Fault::new(Class::Usage, format!("the lock file \"{shown}\" {why}")))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Fault::new(Class::Usage, format!("the lock file \"{shown}\" is not UTF-8")))?;
        Lock::parse(&text, &shown).map(Some)
    }

    /// Replaces the file: a reader, and a machine that dies meanwhile, finds the old one or the new one.
    pub fn write(&self, path: &Path) -> Result<(), Fault> {
        let text = self.to_text();
        // What cannot be read again is not written: a server may well list two tools of one name.
        parse(&text).map_err(|wrong| Fault::new(Class::Malformed, format!("cannot lock {wrong}")))?;
        replace(path, text.as_bytes()).map_err(|error| fault("write", path, &error))
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    // A link stays one: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let temporary = beside(&path);
    let placed = fill(&temporary, content).and_then(|()| fs::rename(&temporary, &path));
    if let Err(error) = placed {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_folder(&folder)
}

/// In the same folder, so that the renaming stays within one file system; unique, so that two writers do not share it.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", uuid::Uuid::new_v4().simple()))
}

fn fill(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(unix)]
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    // It is committed and read by others, whatever the umask says; nothing in it is secret.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

fn fault(what: &str, path: &Path, error: &io::Error) -> Fault {
    Fault::new(Class::Usage, format!("cannot {what} the lock file \"{}\": {error}", path.display()))
}
