//! What was seen of servers at their first use, where nobody has locked them: one file a configuration, in the format of
//! the lock, in the state directory. Knows no server that runs.
//!
//! Several gateways can meet a server for the first time at once; the one that writes first decides for all.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

use super::{Lock, LockedServer};
use crate::config::file::alone;
use crate::error::{Class, Fault};

/// Where the files are, below the state directory.
const FOLDER: &str = "pins";

/// The pins of one configuration.
#[derive(Debug)]
pub struct Pins {
    path: PathBuf,
    known: Mutex<Lock>,
}

impl Pins {
    /// Those of the configuration at `config`, an absolute path, as they are on disk.
    pub fn open(state: &Path, config: &Path) -> Result<Self, Fault> {
        let key = crate::hex(&Sha256::digest(config.as_os_str().as_encoded_bytes())[..8]);
        let path = state.join(FOLDER).join(format!("{key}.lock"));
        let known = Mutex::new(read(&path)?);
        Ok(Pins { path, known })
    }

    /// All of them.
    pub fn all(&self) -> Lock {
        self.known().clone()
    }

    /// What was pinned of a server.
    pub fn get(&self, name: &str) -> Option<LockedServer> {
        self.known().servers.get(name).cloned()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads them anew; whether others have changed them.
    pub fn refresh(&self) -> Result<bool, Fault> {
        let now = read(&self.path)?;
        let mut known = self.known();
        let news = *known != now;
        *known = now;
        Ok(news)
    }

    /// Pins a server that has no pin yet. Returns the pin that holds, which may be another's.
    pub fn pin(&self, name: &str, server: LockedServer) -> Result<LockedServer, Fault> {
        self.change(|pins| pins.servers.entry(name.to_owned()).or_insert(server).clone())
    }

    /// Puts other pins in the place of those there are. A package has none: without a lock nobody knows what it is.
    pub fn replace(&self, servers: impl IntoIterator<Item = (String, LockedServer)>) -> Result<(), Fault> {
        self.change(|pins| {
            pins.servers.extend(servers.into_iter().filter(|(_, server)| server.kind != "package"));
        })
    }

    /// The folder in which those who write them, or the lock, take turns.
    pub fn turns(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// One change at a time, whoever makes it, to what is on disk by then.
    fn change<T>(&self, change: impl FnOnce(&mut Lock) -> T) -> Result<T, Fault> {
        let _turn = alone(self.turns()).map_err(|error| {
            let text = format!("what was first seen of servers cannot be kept: {}: {error}", self.path.display());
            Fault::new(Class::Usage, text)
        })?;
        let mut pins = read(&self.path)?;
        let done = change(&mut pins);
        if pins != *self.known() || !self.path.exists() {
            pins.write(&self.path)?;
        }
        *self.known() = pins;
        Ok(done)
    }

    fn known(&self) -> MutexGuard<'_, Lock> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Result<Lock, Fault> {
    let advice = "; with the file moved away, what servers offer next is taken for their first";
    let read = Lock::read(path).map_err(|fault| Fault::new(fault.class, format!("{}{advice}", fault.inward)))?;
    Ok(read.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::value::RawValue;

    use super::*;
    use crate::route::lock::{Definition, Kind};

    fn server(tool: &str) -> LockedServer {
        let raw = |text: String| RawValue::from_string(text).unwrap();
        LockedServer {
            kind: "unisolated".to_owned(),
            revision: "2025-11-25".to_owned(),
            tools: vec![Definition::new(Kind::Tool, &raw(format!("{{\"name\":\"{tool}\"}}"))).unwrap()],
            ..LockedServer::default()
        }
    }

    #[test]
    fn the_first_pin_holds_for_all_and_is_there_the_next_time() {
        let state = tempfile::tempdir().unwrap();
        let config = Path::new("/etc/bulkhead.toml");
        let (one, other) = (Pins::open(state.path(), config).unwrap(), Pins::open(state.path(), config).unwrap());
        assert_eq!(one.pin("a", server("first")).unwrap(), server("first"));
        assert_eq!(other.pin("a", server("second")).unwrap(), server("first"));
        other.pin("b", server("b")).unwrap();
        assert!(one.refresh().unwrap() && !one.refresh().unwrap());
        assert_eq!(one.all().servers.len(), 2);
        let package = LockedServer { kind: "package".to_owned(), ..server("p") };
        one.replace([("a".to_owned(), server("second")), ("p".to_owned(), package)]).unwrap();
        let again = Pins::open(state.path(), config).unwrap().all();
        let held = [("a".to_owned(), server("second")), ("b".to_owned(), server("b"))];
        assert_eq!(again.servers.into_iter().collect::<Vec<_>>(), held);
        assert!(Pins::open(state.path(), Path::new("/other.toml")).unwrap().all().servers.is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let state = tempfile::tempdir().unwrap();
        let config = Path::new("/etc/bulkhead.toml");
        let pins = Pins::open(state.path(), config).unwrap();
        pins.pin("a", server("first")).unwrap();
        fs::write(pins.path(), "{").unwrap();
        assert!(pins.pin("b", server("b")).is_err() && pins.refresh().is_err());
        let fault = Pins::open(state.path(), config).unwrap_err();
        assert!(fault.inward.contains("moved away"), "{fault}");
    }

    #[test]
    fn many_writers_lose_nothing() {
        let state = tempfile::tempdir().unwrap();
        let config = Path::new("/etc/bulkhead.toml");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let pins = Pins::open(state.path(), config).unwrap();
                scope.spawn(move || {
                    for round in 0..8 {
                        pins.pin(&format!("s{thread}-{round}"), server("x")).unwrap();
                    }
                });
            }
        });
        assert_eq!(Pins::open(state.path(), config).unwrap().all().servers.len(), 64);
    }
}
