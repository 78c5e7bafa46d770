//! Reads the file's bytes, once it is sure that nobody else could have written them. Knows nothing of their meaning.
//!
//! Whoever can write the configuration or the lock can run anything as the operator, so a file that others may write to
//! is refused.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::Path;

/// The bytes of a file of the operator's, or why it is not read: what reads on after its name. More than `largest` bytes
/// are refused.
pub fn read_trusted(path: &Path, largest: u64) -> Result<Vec<u8>, String> {
    let broken = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist yet: write it, or name another one with --config".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    // Before opening, since opening a pipe would wait for its writer.
    regular(&std::fs::metadata(path).map_err(broken)?)?;
    let mut file = File::open(path).map_err(broken)?;
    // Once more on what was really opened: the name may point elsewhere by now.
    let metadata = file.metadata().map_err(broken)?;
    regular(&metadata)?;
    trusted(&metadata)?;
    let mut bytes = Vec::new();
    file.by_ref().take(largest + 1).read_to_end(&mut bytes).map_err(broken)?;
    if bytes.len() as u64 > largest {
        return Err(format!("is larger than {} MiB", largest >> 20));
    }
    Ok(bytes)
}

fn regular(metadata: &Metadata) -> Result<(), String> {
    if metadata.is_file() { Ok(()) } else { Err("is no regular file".to_owned()) }
}

#[cfg(unix)]
fn trusted(metadata: &Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    if metadata.mode() & 0o002 != 0 {
        return Err("every user of this machine may write to it; take that away with \"chmod o-w\"".to_owned());
    }
    let (owner, me) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != me && owner != 0 {
        return Err(format!("belongs to user {owner}, neither to user {me}, who reads it, nor to root"));
    }
    Ok(())
}

/// Elsewhere the standard library tells neither owner nor rights, and a new file is private to its user by default.
#[cfg(not(unix))]
fn trusted(_: &Metadata) -> Result<(), String> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn open(path: &Path) -> Result<Vec<u8>, String> {
        read_trusted(path, 1 << 20)
    }

    #[test]
    fn a_file_that_anyone_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.toml");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(open(&path).unwrap(), b"x");
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(open(&path).unwrap_err().contains("chmod o-w"));
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return; // only root can give a file away
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.toml");
        std::fs::write(&path, "x").unwrap();
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(open(&path).unwrap_err().starts_with("belongs to user 12345"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(open(dir.path()).unwrap_err(), "is no regular file");
        assert!(open(&dir.path().join("none")).unwrap_err().starts_with("does not exist yet"));
    }
}
