//! Files that are written whole: a reader, and a machine that dies meanwhile, finds the old one or the new one. Knows
//! nothing of what is in them.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Who may do what with a file that is written.
#[derive(Clone, Copy, Debug)]
pub enum Rights<'a> {
    /// The owner, with these bits, whatever the umask says. Only where there are such bits.
    Mode(u32),
    /// Whoever may with that file: its bits, its group and, where it can be given away, its owner.
    Of(&'a Metadata),
}

/// Replaces a file, or makes it. A link stays one: what it points to is replaced.
pub fn replace(path: &Path, content: &[u8], rights: Rights<'_>) -> io::Result<()> {
    replace_if(path, content, rights, || Ok(()))
}

/// The same, if `still` has nothing against it once everything but the last step is done.
pub fn replace_if<E: From<io::Error>>(
    path: &Path,
    content: &[u8],
    rights: Rights<'_>,
    still: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let temporary = beside(&path);
    let placed = create(&temporary, content, rights).map_err(E::from).and_then(|()| {
        let placed = still().and_then(|()| Ok(fs::rename(&temporary, &path)?));
        if placed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        placed
    });
    placed.and_then(|()| Ok(sync_folder(&folder)?))
}

/// Writes a file that must not be there yet, down to the disk; one that cannot be written whole is taken away again.
pub fn create(path: &Path, content: &[u8], rights: Rights<'_>) -> io::Result<()> {
    let file = open_new(path)?;
    let written = set_rights(&file, rights).and_then(|()| (&file).write_all(content)).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// In the same folder, so that the renaming stays within one file system; unique, so that two writers do not share it.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", uuid::Uuid::new_v4().simple()))
}

/// Nobody else's to read until its rights are set.
#[cfg(unix)]
fn open_new(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn set_rights(file: &File, rights: Rights<'_>) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mode = match rights {
        Rights::Mode(mode) => mode,
        Rights::Of(metadata) => {
            // Before the bits: those of a group are meant for that group.
            if file.metadata()?.gid() != metadata.gid() {
                std::os::unix::fs::fchown(file, None, Some(metadata.gid()))?;
            }
            // A file of somebody else's stays theirs, where we may give it away.
            let _ = std::os::unix::fs::fchown(file, Some(metadata.uid()), None);
            metadata.mode() & 0o7777
        }
    };
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_rights(_: &File, _: Rights<'_>) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_file_that_is_there_is_never_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        create(&path, b"one", Rights::Mode(0o640)).unwrap();
        assert_eq!(create(&path, b"two", Rights::Mode(0o640)).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (b"one".as_slice(), 0o640));
    }

    #[test]
    fn the_rights_of_another_file_are_kept_and_what_is_against_it_leaves_all_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("l"));
        create(&path, b"one", Rights::Mode(0o604)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let against = replace_if(&link, b"two", Rights::Of(&metadata), || Err(io::Error::other("no")));
        assert_eq!(against.unwrap_err().to_string(), "no");
        assert_eq!((fs::read(&path).unwrap().as_slice(), entries(dir.path())), (b"one".as_slice(), 2));
        replace(&link, b"two", Rights::Of(&metadata)).unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (b"two".as_slice(), 0o604));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(entries(dir.path()), 2);
    }
}
