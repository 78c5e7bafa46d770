//! Files that belong to us alone: how they are opened, what makes them unfit, how they are locked. Knows nothing of what
//! is in them.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::chain::Broken;
use crate::config::file::private_folder;

/// How long another process may hold the lock before we call it stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Permission bits by which others could write.
pub(super) const WRITABLE: u32 = 0o022;

/// Permission bits by which others could do anything.
pub(super) const ANY: u32 = 0o077;

/// Why a file cannot be used; reads on after its path.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The system said no.
    #[error("cannot be {0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// It could lead anywhere.
    #[error("is a symbolic link; it must be a file")]
    Link,
    /// A pipe, a device, a directory.
    #[error("is not a regular file")]
    NotAFile,
    /// Its owner could rewrite it.
    #[error("belongs to uid {0}, not to the gateway's own")]
    Foreign(u32),
    /// Others could get at it.
    #[error("is open to other users (mode {0:o}); take that away with chmod go-rwx")]
    Open(u32),
    /// Another process does not let go.
    #[error("is held by another process for too long")]
    Held,
    /// It was moved or removed while in use.
    #[error("is gone; put it back, or restart the gateway to begin a new one")]
    Gone,
    /// Another file is in its place.
    #[error("is another file than before; put the old one back, or restart the gateway to go on with this one")]
    Replaced,
    /// It has lost records since we last wrote.
    #[error("was cut from {0} to {1} bytes; keep it for an inquiry, and restart the gateway to go on")]
    Cut(u64, u64),
    /// The chain does not go on where it has to.
    #[error("is broken after record {0}: the next line {1}; run `bulkhead audit verify`, and move the file away")]
    Broken(u64, Broken),
    /// The last line is no sound record.
    #[error("is broken at its end: the last line {0}; run `bulkhead audit verify`, and move the file away")]
    BadEnd(Broken),
    /// It is something else.
    #[error("has no audit record at its end; run `bulkhead audit verify`, and move the file away")]
    NoRecords,
    /// A key of the wrong form.
    #[error("does not hold a key; move it away, and a new one is made")]
    NoKey,
}

/// The exclusive lock on a file, held by this value across all processes.
pub(super) struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    /// Waits for the lock, but not for a process that is stuck.
    pub(super) fn take(file: &'a File) -> Result<Self, Trouble> {
        patiently(PATIENCE, || file.try_lock())?;
        Ok(Lock(file))
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // An error means that there is no lock to give back.
        let _ = self.0.unlock();
    }
}

/// The length of a file at a moment when nobody is in the middle of writing to it, as far as that can be had.
pub(super) fn settled_len(file: &File) -> io::Result<u64> {
    let locked = patiently(PATIENCE, || file.try_lock_shared()).is_ok();
    let len = file.metadata().map(|m| m.len());
    if locked {
        file.unlock()?;
    }
    len
}

/// Tries until it is granted; with a blocking lock a process that is stuck would stop us too, for ever.
fn patiently(patience: Duration, lock: impl Fn() -> Result<(), TryLockError>) -> Result<(), Trouble> {
    let end = Instant::now() + patience;
    let mut pause = Duration::from_micros(100);
    loop {
        match lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(e)) => return Err(Trouble::Io("locked", e)),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return Err(Trouble::Held),
            Err(TryLockError::WouldBlock) => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Makes the directory of `path`, and those above it, for us alone; one that exists is left as it is.
pub(super) fn make_dir(path: &Path) -> Result<(), Trouble> {
    let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) else { return Ok(()) };
    private_folder(dir).map_err(|e| Trouble::Io("given a directory", e))
}

/// Opens `path` for reading and appending, making it if it is not there, and refuses what is not ours alone.
pub(super) fn open_own(path: &Path, forbidden: u32) -> Result<File, Trouble> {
    // Without NONBLOCK a named pipe in this place would hang us before it can be refused.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut how = OpenOptions::new();
    how.read(true).append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let file = how.open(path).map_err(|e| match rustix::io::Errno::from_io_error(&e) {
        Some(rustix::io::Errno::LOOP) => Trouble::Link,
        _ => Trouble::Io("opened", e),
    })?;
    check_own(&file.metadata().map_err(|e| Trouble::Io("examined", e))?, forbidden)?;
    Ok(file)
}

fn check_own(meta: &Metadata, forbidden: u32) -> Result<(), Trouble> {
    if !meta.is_file() {
        return Err(Trouble::NotAFile);
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(Trouble::Foreign(meta.uid()));
    }
    if meta.mode() & forbidden != 0 {
        return Err(Trouble::Open(meta.mode() & 0o777));
    }
    Ok(())
}

/// Whether `path` still leads to `file`, and nobody else has been let in meanwhile.
pub(super) fn check_still_there(path: &Path, file: &File, forbidden: u32) -> Result<(), Trouble> {
    let ours = file.metadata().map_err(|e| Trouble::Io("examined", e))?;
    let there = match path.symlink_metadata() {
        Ok(there) => there,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Trouble::Gone),
        Err(e) => return Err(Trouble::Io("examined", e)),
    };
    if (there.dev(), there.ino()) != (ours.dev(), ours.ino()) {
        return Err(Trouble::Replaced);
    }
    check_own(&ours, forbidden)
}

/// Puts the name of a new file on disk; its bytes alone would not be found again after a power loss.
pub(super) fn sync_dir(path: &Path) -> Result<(), Trouble> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| Trouble::Io("synced with its directory", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_waited_for_but_not_for_ever() {
        let (_dir, path) = crate::audit::fixture::dir();
        let (ours, theirs) = (open_own(&path, ANY).unwrap(), open_own(&path, ANY).unwrap());
        let held = Lock::take(&theirs).unwrap();
        let refused = patiently(Duration::from_millis(30), || ours.try_lock());
        assert!(matches!(refused, Err(Trouble::Held)));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| Lock::take(&ours).is_ok());
            thread::sleep(Duration::from_millis(20));
            drop(held);
            assert!(waiting.join().unwrap());
        });
        assert!(Lock::take(&theirs).is_ok(), "given back when dropped");
    }
}
