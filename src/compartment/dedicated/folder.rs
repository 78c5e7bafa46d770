//! A folder of the host as the context of a build: read whole, bounded, and nothing from outside of it. Knows no engine.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Class, Fault};

/// The file that says how an image is made.
pub(super) const DOCKERFILE: &str = "Dockerfile";
/// Files, folders and links that a folder may have.
const ENTRIES: usize = 4096;
/// Bytes of all its files together.
const BYTES: u64 = 64 << 20;

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Relative to the folder, with `/` between its parts.
    pub path: String,
    pub content: Content,
}

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Data(Vec<u8>),
    /// A file that may be executed.
    Program(Vec<u8>),
    Folder,
    /// A link to another place in the folder.
    Link(String),
}

/// What was read so far.
struct Reading<'a> {
    root: &'a Path,
    /// The folder itself, links resolved.
    real: PathBuf,
    found: Vec<File>,
    bytes: u64,
}

/// All that is in a folder, sorted by path.
pub(super) fn read(root: &Path) -> Result<Vec<File>, Fault> {
    let metadata = root.symlink_metadata().map_err(|error| unreadable(root, &error))?;
    if !metadata.is_dir() {
        return Err(refused(root, "is no folder"));
    }
    let real = root.canonicalize().map_err(|error| unreadable(root, &error))?;
    let mut reading = Reading { root, real, found: Vec::new(), bytes: 0 };
    reading.folder("")?;
    let Reading { mut found, .. } = reading;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl Reading<'_> {
    fn folder(&mut self, path: &str) -> Result<(), Fault> {
        let folder = self.root.join(path);
        let entries = fs::read_dir(&folder).map_err(|error| unreadable(&folder, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(&folder, &error))?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(refused(&entry.path(), "has a name that is no text"));
            };
            if path.is_empty() && name == ".dockerignore" {
                let why = "is not kept: a folder is taken whole, so what is no part of the image belongs elsewhere";
                return Err(refused(&entry.path(), why));
            }
            let inner = if path.is_empty() { name } else { format!("{path}/{name}") };
            self.entry(inner)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: String) -> Result<(), Fault> {
        if self.found.len() == ENTRIES {
            return Err(refused(self.root, &format!("has more than {ENTRIES} files")));
        }
        let full = self.root.join(&path);
        let metadata = full.symlink_metadata().map_err(|error| unreadable(&full, &error))?;
        let content = if metadata.is_dir() {
            Content::Folder
        } else if metadata.is_symlink() {
            Content::Link(self.link(&full)?)
        } else if metadata.is_file() {
            self.bytes += metadata.len();
            if self.bytes > BYTES {
                return Err(refused(self.root, &format!("has more than {} MiB", BYTES >> 20)));
            }
            let data = fs::read(&full).map_err(|error| unreadable(&full, &error))?;
            if is_program(&metadata) { Content::Program(data) } else { Content::Data(data) }
        } else {
            return Err(refused(&full, "is neither a file nor a folder"));
        };
        self.found.push(File { path: path.clone(), content });
        if metadata.is_dir() { self.folder(&path) } else { Ok(()) }
    }

    /// The target of a link, which must be there and in the folder.
    fn link(&self, full: &Path) -> Result<String, Fault> {
        let target = fs::read_link(full).map_err(|error| unreadable(full, &error))?;
        let inside = full.canonicalize().is_ok_and(|real| real.starts_with(&self.real));
        match target.into_os_string().into_string() {
            Ok(target) if inside && !Path::new(&target).is_absolute() => Ok(target),
            _ => Err(refused(full, "is a link that leads out of its folder")),
        }
    }
}

#[cfg(unix)]
fn is_program(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o100 != 0
}

#[cfg(not(unix))]
fn is_program(_: &Metadata) -> bool {
    false
}

fn refused(path: &Path, why: &str) -> Fault {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Fault::new(Class::Usage, format!("{name:?} {why}")).with_inward(format!("{} {why}", path.display()))
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    refused(path, &format!("cannot be read: {error}"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(DOCKERFILE), "FROM x\n").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        dir
    }

    #[test]
    fn files_folders_programs_and_inner_links_are_taken() {
        let dir = folder();
        fs::write(dir.path().join("sub/run"), "x").unwrap();
        fs::set_permissions(dir.path().join("sub/run"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("../Dockerfile", dir.path().join("sub/link")).unwrap();
        let file = |path: &str, content| File { path: path.to_owned(), content };
        assert_eq!(
            read(dir.path()).unwrap(),
            [
                file("Dockerfile", Content::Data(b"FROM x\n".to_vec())),
                file("sub", Content::Folder),
                file("sub/link", Content::Link("../Dockerfile".to_owned())),
                file("sub/run", Content::Program(b"x".to_vec())),
            ]
        );
    }

    #[test]
    fn nothing_from_outside_is_taken() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        let secret = outside.path().join("secret").to_str().unwrap().to_owned();
        let up = format!("../../{}/secret", outside.path().file_name().unwrap().to_str().unwrap());
        for target in [secret.as_str(), &up, "../..", "no-such-file", "/etc/passwd"] {
            let dir = folder();
            symlink(target, dir.path().join("sub/link")).unwrap();
            let fault = read(dir.path()).unwrap_err();
            assert_eq!(
                (fault.class, fault.outward.as_str()),
                (Class::Usage, "\"link\" is a link that leads out of its folder")
            );
        }
        let linked = outside.path().join("linked");
        symlink(folder().path(), &linked).unwrap();
        assert!(read(&linked).unwrap_err().outward.contains("is no folder"));
    }

    #[test]
    fn what_is_too_much_or_not_kept_is_refused() {
        let dir = folder();
        fs::write(dir.path().join(".dockerignore"), "*\n").unwrap();
        assert!(read(dir.path()).unwrap_err().outward.contains("is not kept"));

        let dir = folder();
        fs::File::create(dir.path().join("large")).unwrap().set_len(BYTES).unwrap();
        assert!(read(dir.path()).unwrap_err().outward.contains("more than 64 MiB"));

        let dir = folder();
        for number in 0..ENTRIES {
            fs::write(dir.path().join(format!("sub/{number}")), "").unwrap();
        }
        assert!(read(dir.path()).unwrap_err().outward.contains("more than 4096 files"));

        let dir = folder();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        assert!(read(dir.path()).unwrap_err().outward.contains("neither a file nor a folder"));
    }
}
