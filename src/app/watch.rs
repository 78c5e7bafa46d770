//! Notices that the configuration, the lock or the pins have changed on disk. Reads none of them.
//!
//! Asked for rather than told by the system: that works on every file system, and a change that is noticed a second later
//! is early enough.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Pause between two looks. A change counts once two looks in a row see the same.
const PAUSE: Duration = Duration::from_millis(500);

/// What files looked like from outside at one moment, none where there is no such file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prints(Vec<Option<Print>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Print {
    modified: Option<SystemTime>,
    length: u64,
    file: u64,
}

impl Prints {
    /// As they look now.
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        Prints(paths.iter().map(|path| print(path)).collect())
    }

    /// Whether all but the last of them look the same.
    pub(super) fn is_all_but_last(&self, other: &Prints) -> bool {
        let all_but_last = |prints: &Prints| prints.0.split_last().map(|(_, others)| others.to_vec());
        all_but_last(self) == all_but_last(other)
    }
}

fn print(path: &Path) -> Option<Print> {
    let found = std::fs::metadata(path).ok()?;
    Some(Print { modified: found.modified().ok(), length: found.len(), file: file(&found) })
}

#[cfg(unix)]
fn file(found: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

#[cfg(not(unix))]
fn file(_: &std::fs::Metadata) -> u64 {
    0
}

/// Waits until the files look otherwise than they did, and have for a moment.
pub(super) async fn changed(paths: &[PathBuf], seen: impl Fn() -> Prints) {
    let mut last = seen();
    loop {
        tokio::time::sleep(PAUSE).await;
        let paths = paths.to_vec();
        // A disk that does not answer holds up nothing but this.
        let Ok(now) = tokio::task::spawn_blocking(move || Prints::of(&paths)).await else { return };
        if now == last && now != seen() {
            return;
        }
        last = now;
    }
}
