//! Folders that are their owner's alone, and the turns that processes take at what lies in them. Knows nothing of what
//! that is.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long another process may have its turn: one that is stopped in it must not hold up everybody else.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes a folder, and those above it, for its owner alone; one that is there is left as it is.
pub fn private_folder(folder: &Path) -> io::Result<()> {
    let mut making = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut making, 0o700);
    making.recursive(true).create(folder)
}

/// Waits for a turn, which ends when what is returned is dropped. It is had by a file in that folder that nobody replaces,
/// since a lock on one that is replaced would be a lock on what it was.
pub fn alone(folder: &Path) -> io::Result<File> {
    private_folder(folder)?;
    let guard = OpenOptions::new().create(true).append(true).open(folder.join("guard"))?;
    let end = Instant::now() + PATIENCE;
    loop {
        match guard.try_lock() {
            Ok(()) => return Ok(guard),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() > end => {
                return Err(io::Error::other("another process does not let go of it"));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_one_process_at_a_time_and_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let turn = alone(&folder).unwrap();
        assert!(alone(&folder).unwrap_err().to_string().contains("does not let go"));
        drop(turn);
        alone(&folder).unwrap();
    }
}
