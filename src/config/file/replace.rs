//! Replaces a file whole: a reader, and a machine that dies meanwhile, finds the old one or the new one. Knows nothing of
//! what is in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Puts the content in the place of the file, or of the file that a link there points to. `mode` is what others may do
/// with it, whatever the umask says, where the system has such modes.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // A link stays one: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let temporary = beside(&path);
    let placed = fill(&temporary, content, mode).and_then(|file| {
        keep_owner(&file, &path);
        fs::rename(&temporary, &path)
    });
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

fn fill(path: &Path, content: &[u8], mode: u32) -> io::Result<File> {
    let mut file = create(path, mode)?;
    file.write_all(content)?;
    file.sync_all()?;
    Ok(file)
}

/// A file of somebody else's stays theirs, where we may give it away.
#[cfg(unix)]
fn keep_owner(file: &File, replaced: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    if let Ok(before) = fs::metadata(replaced) {
        let _ = std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()));
    }
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Path) {}

#[cfg(unix)]
fn create(path: &Path, mode: u32) -> io::Result<File> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(file)
}

#[cfg(not(unix))]
fn create(path: &Path, _: u32) -> io::Result<File> {
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
