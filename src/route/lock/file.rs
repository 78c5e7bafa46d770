//! The lock file on the disk: read whole, replaced whole. Knows nothing of what is in it.

use std::path::Path;
use std::{fs, io};

use super::Lock;
use super::read::parse;
use crate::config::file::{Rights, read_trusted, replace};
use crate::error::{Class, Fault};

/// Larger files are no lock: room for some ten thousand definitions.
const LARGEST: u64 = 64 << 20;

impl Lock {
    /// Reads the file; `None` where there is none.
    pub fn read(path: &Path) -> Result<Option<Lock>, Fault> {
        // Of the name itself: a link that leads nowhere is no lock that never was.
        if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
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
        if text.len() as u64 > LARGEST {
            let text = format!("cannot lock so much: the file would be larger than {} MiB", LARGEST >> 20);
            return Err(Fault::new(Class::TooLarge, text));
        }
        // It is committed and read by others, whatever the umask says; nothing in it is secret.
        replace(path, text.as_bytes(), Rights::Mode(0o644)).map_err(|error| fault("write", path, &error))
    }
}

fn fault(what: &str, path: &Path, error: &io::Error) -> Fault {
    Fault::new(Class::Usage, format!("cannot {what} the lock file \"{}\": {error}", path.display()))
}
