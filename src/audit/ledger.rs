//! The file of records and our place in it. Blocking; knows nothing of queues.
//!
//! Several gateways may append to one file. Each takes the lock for one batch, looks whether the file is still the one it
//! knows, reads and checks what others have written since, and goes on from there. A file that is missing, replaced, cut or
//! broken is never written to: a new chain must not begin in silence.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::chain::Head;
use super::place::{self, Lock, Trouble, WRITABLE};
use super::record::{GatewayEvent, Record};
use super::redact::Redactor;
use super::tail::{self, Tail};

/// Names tried for a side file before we give up.
const SIDE_FILES: u32 = 100;

/// The open file, and the last record that we know of.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: Arc<File>,
    head: Head,
    /// The bytes up to the end of that record.
    len: u64,
    /// Every batch is put on disk before it counts as written.
    durable: bool,
    /// Something torn was set aside and no record says so yet.
    unrecorded: bool,
    gateway: String,
}

impl Ledger {
    /// Opens or makes the file, refuses one that is not ours alone, and finds the end of its chain.
    pub fn open(path: &Path, durable: bool, gateway: &str) -> Result<Self, Trouble> {
        place::make_dir(path)?;
        let file = Arc::new(place::open_own(path, WRITABLE)?);
        let (path, gateway) = (path.to_owned(), gateway.to_owned());
        let mut ledger = Ledger { path, file, head: Head::start(), len: 0, durable, unrecorded: false, gateway };
        ledger.locked(|ledger| {
            let len = ledger.file_len()?;
            if len == 0 {
                place::sync_dir(&ledger.path)?;
            }
            let tail = tail::of(&ledger.file, len)?;
            ledger.adopt(tail)
        })?;
        Ok(ledger)
    }

    /// The last record that we know of; other gateways may have gone on.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Seals `bodies` and appends them, all or none.
    pub fn append(&mut self, bodies: &[String]) -> Result<(), Trouble> {
        self.locked(|ledger| {
            place::check_still_there(&ledger.path, &ledger.file, WRITABLE)?;
            ledger.catch_up()?;
            ledger.write(bodies)
        })
    }

    /// Puts on disk what was written.
    pub fn sync(&self) -> Result<(), Trouble> {
        self.file.sync_data().map_err(|e| Trouble::Io("put on disk", e))
    }

    /// Runs `work` while no other gateway is at the file.
    pub(super) fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Trouble>) -> Result<T, Trouble> {
        let file = Arc::clone(&self.file);
        let _lock = Lock::take(&file)?;
        work(self)
    }

    /// Takes in what other gateways have written since.
    fn catch_up(&mut self) -> Result<(), Trouble> {
        let len = self.file_len()?;
        if len < self.len {
            return Err(Trouble::Cut(self.len, len));
        }
        if len == self.len {
            return Ok(());
        }
        let tail = tail::since(&self.file, &self.head, self.len)?;
        self.adopt(tail)
    }

    /// Goes on from the last whole record; what is torn after it is completed if only its line break is missing, else set
    /// aside.
    fn adopt(&mut self, tail: Tail) -> Result<(), Trouble> {
        (self.head, self.len) = (tail.head, tail.whole);
        if tail.torn.is_empty() {
            return Ok(());
        }
        if let Ok(sealed) = self.head.follow(&tail.torn) {
            self.put(b"\n")?;
            (self.head, self.len) = (sealed.head, self.len + tail.torn.len() as u64 + 1);
            return Ok(());
        }
        self.set_aside(&tail.torn)?;
        self.cut_back()?;
        self.unrecorded = true;
        Ok(())
    }

    /// Keeps the torn bytes beside the file, under the number of the record that will tell of it.
    fn set_aside(&self, torn: &[u8]) -> Result<(), Trouble> {
        let mut how = OpenOptions::new();
        how.write(true).create_new(true).mode(0o600);
        for n in 1..=SIDE_FILES {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".torn-{}", self.head.seq + 1));
            if n > 1 {
                name.push(format!(".{n}"));
            }
            match how.open(&name) {
                Ok(mut side) => {
                    return side.write_all(torn).and_then(|()| side.sync_all()).map_err(|e| Trouble::Io("mended", e));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Trouble::Io("mended", e)),
            }
        }
        Err(Trouble::Io("mended", io::ErrorKind::AlreadyExists.into()))
    }

    /// One write for all; if it fails, nothing of it stays.
    fn write(&mut self, bodies: &[String]) -> Result<(), Trouble> {
        let recovered = self.unrecorded.then(|| self.recovered());
        let (mut bytes, mut head) = (Vec::new(), self.head.clone());
        for body in recovered.iter().chain(bodies) {
            let line;
            (line, head) = head.seal(body);
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        if bytes.is_empty() {
            return Ok(());
        }
        if let Err(trouble) = self.put(&bytes) {
            // Should this fail too, the next batch finds what is left, takes over its whole records and sets the rest aside.
            let _ = self.cut_back();
            return Err(trouble);
        }
        (self.head, self.len, self.unrecorded) = (head, self.len + bytes.len() as u64, false);
        Ok(())
    }

    fn recovered(&self) -> String {
        Record::Gateway(GatewayEvent::recovered()).body(SystemTime::now(), &self.gateway, &Redactor::default())
    }

    fn put(&self, bytes: &[u8]) -> Result<(), Trouble> {
        (&*self.file).write_all(bytes).map_err(|e| Trouble::Io("written", e))?;
        if self.durable { self.sync() } else { Ok(()) }
    }

    fn cut_back(&self) -> Result<(), Trouble> {
        self.file.set_len(self.len).map_err(|e| Trouble::Io("cut back", e))
    }

    fn file_len(&self) -> Result<u64, Trouble> {
        self.file.metadata().map(|meta| meta.len()).map_err(|e| Trouble::Io("examined", e))
    }
}

#[cfg(test)]
mod tests;
