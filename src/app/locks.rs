//! The register of a state directory: which configurations, with their locks, have been used with it. What none of them
//! refers to may go. Knows no engine.
//!
//! A file for each in `locks`, made whole or not at all, so that many gateways can note theirs at once and no crash leaves
//! half an entry; and the identity of the state directory, which volumes are marked with. An entry stays until its
//! configuration and its lock are surely gone: where their disk is not mounted, nobody can say what they refer to.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::compartment::reap::{Scope, Wanted, scope_key, server_key};
use crate::config::env::Environment;
use crate::config::file::{Rights, create, private_folder, read_trusted, replace};
use crate::config::{Config, resolve};
use crate::error::{Class, Fault};
use crate::route::lock::Lock;
use crate::route::lock::pins::Pins;

use super::{LOCK, shown};

/// Where the entries are, below the state directory.
const FOLDER: &str = "locks";
/// The file with the identity of the state directory.
const IDENTITY: &str = "id";
/// Larger files are no entry.
const LARGEST: u64 = 64 << 10;
/// More entries are not kept; those that are gone make room.
const MOST: usize = 4096;
/// Nobody else's business.
const OWN: Rights<'static> = Rights::Mode(0o600);
/// Version of an entry; another one is refused.
const VERSION: u64 = 1;
/// A file on its way that is older was left by a crash.
const STALE: Duration = Duration::from_secs(3600);

/// A configuration that was used with a state directory, with its lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    version: u64,
    config: Place,
    lock: Place,
    /// Where the file system begins that they lie on.
    mounted: Option<Place>,
}

/// A path; one that is no text is kept as it is all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Place {
    Text(String),
    Raw(OsString),
}

/// What became of what an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sight {
    /// The lock, the configuration, or both are there, and were read.
    Read,
    /// Neither is there any more.
    Gone,
}

/// An entry, and what was found where it points.
#[derive(Clone, Debug, Serialize)]
pub struct Known {
    /// The lock.
    pub lock: String,
    /// The configuration beside it.
    pub config: String,
    /// Whether they are there.
    pub sight: Sight,
    #[serde(skip)]
    key: String,
}

/// Notes that a state directory is used with a configuration, and tells the identity of the state directory.
pub fn remember(state: &Path, config: &Config) -> Result<String, Fault> {
    let folder = state.join(FOLDER);
    private_folder(&folder).map_err(|error| unwritten(&folder, &error))?;
    let identity = identity(&folder)?;
    let entry = Entry::of(&config.path);
    let path = folder.join(format!("{}.json", entry.key()));
    let text = serde_json::to_string(&entry).map_err(|e| Fault::new(Class::Bug, format!("no entry of a lock: {e}")))?;
    if fs::read_to_string(&path).is_ok_and(|there| there == text) {
        return Ok(identity);
    }
    make_room(state)?;
    replace(&path, text.as_bytes(), OWN).map_err(|error| unwritten(&path, &error))?;
    Ok(identity)
}

/// All that the locks and configurations refer to that this state directory knows. What is there and cannot be read makes
/// it fail: it may refer to anything. So does it where none is known. `present`, a configuration that is there, counts
/// though it was never used; those in `forgotten`, paths of locks or configurations, are left out.
pub fn wanted(
    state: &Path,
    env: &dyn Environment,
    present: Option<&Path>,
    forgotten: &[PathBuf],
) -> Result<(Wanted, Vec<Known>), Fault> {
    let folder = state.join(FOLDER);
    let mut wanted = Wanted::default();
    if folder.join(IDENTITY).symlink_metadata().is_ok() {
        wanted.keeper = identity(&folder)?;
    }
    let (mut known, mut entries) = (Vec::new(), entries(&folder)?);
    let present = present.map(Entry::of).filter(|present| entries.iter().all(|entry| entry.config != present.config));
    entries.extend(present);
    if entries.is_empty() {
        let why = format!("no configuration was ever used with \"{}\"", shown(state));
        return Err(refused(&Fault::new(Class::Usage, why)));
    }
    for entry in entries {
        let forget = forgotten.iter().any(|path| *path == entry.lock.path() || *path == entry.config.path());
        let (sight, scope) = match forget {
            true => (Sight::Gone, Scope { place: shown(&entry.config.path()), ..Scope::default() }),
            false => entry.look(state, env, &mut wanted)?,
        };
        known.push(Known { lock: shown(&entry.lock.path()), config: scope.place.clone(), sight, key: entry.key() });
        wanted.scopes.insert(entry.key(), scope);
    }
    Ok((wanted, known))
}

/// Whether there is an entry for that lock or configuration.
pub fn knows(state: &Path, path: &Path) -> Result<bool, Fault> {
    let entries = entries(&state.join(FOLDER))?;
    Ok(entries.iter().any(|entry| entry.lock.path() == path || entry.config.path() == path))
}

/// Takes the entries out whose configuration and lock are gone, but for those in `needed`, by their keys: what a volume
/// names has to be known for as long as the volume is there.
pub fn forget_gone(state: &Path, known: &[Known], needed: &dyn Fn(&str) -> bool) -> Result<Vec<String>, Fault> {
    let folder = state.join(FOLDER);
    let mut forgotten = Vec::new();
    for gone in known.iter().filter(|known| known.sight == Sight::Gone && !needed(&known.key)) {
        let path = folder.join(format!("{}.json", gone.key));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(unwritten(&path, &error)),
            _ => forgotten.push(gone.lock.clone()),
        }
    }
    Ok(forgotten)
}

// === impl Entry ===

impl Entry {
    fn of(config: &Path) -> Self {
        let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
        Entry {
            version: VERSION,
            lock: config.with_file_name(LOCK).into(),
            mounted: mounted(config.parent().unwrap_or(Path::new("/"))).map(Place::from),
            config: config.into(),
        }
    }

    fn key(&self) -> String {
        scope_key(&self.config.path().to_string_lossy())
    }

    /// Adds what the configuration, its lock and its pins refer to.
    fn look(&self, state: &Path, env: &dyn Environment, wanted: &mut Wanted) -> Result<(Sight, Scope), Fault> {
        let (config, lock) = (self.config.path(), self.lock.path());
        let mut scope = Scope { place: shown(&config), ..Scope::default() };
        let (has_config, has_lock) = (self.is_there(&config)?, self.is_there(&lock)?);
        if has_lock && let Some(read) = Lock::read(&lock).map_err(|fault| refused(&fault))? {
            images(&read, &shown(&lock), wanted);
            scope.servers.extend(read.servers.keys().map(|name| server_key(name)));
        }
        if has_config || has_lock {
            let pins = Pins::open(state, &config).map_err(|fault| refused(&fault))?;
            // Pins outlive their servers, so they keep images, and no volumes.
            images(&pins.all(), &shown(pins.path()), wanted);
        }
        if has_config {
            let read = resolve::load(&config, env);
            let read = read.map_err(|faults| refused(&Fault::new(Class::Usage, faults.to_string())))?;
            wanted.configuration(&read, &mut scope);
        }
        Ok((if has_config || has_lock { Sight::Read } else { Sight::Gone }, scope))
    }

    /// Whether there is such a file; a fault where that cannot be said.
    fn is_there(&self, path: &Path) -> Result<bool, Fault> {
        let why = match path.symlink_metadata() {
            Ok(meta) if !meta.is_symlink() || path.metadata().is_ok() => return Ok(true),
            Ok(_) => "is a link to nothing".to_owned(),
            Err(error) if error.kind() != ErrorKind::NotFound => error.to_string(),
            Err(_) => match &self.mounted {
                Some(top) if !is_mount(&top.path()) => {
                    format!("is not there, and neither is the file system that was at \"{}\"", shown(&top.path()))
                }
                _ => return Ok(false),
            },
        };
        Err(refused(&Fault::new(Class::Usage, format!("\"{}\" {why}", shown(path)))))
    }
}

fn images(lock: &Lock, who: &str, wanted: &mut Wanted) {
    lock.servers.values().filter_map(|server| server.image.as_ref()).for_each(|image| wanted.image(image, who));
}

impl Place {
    fn path(&self) -> PathBuf {
        match self {
            Place::Text(text) => PathBuf::from(text),
            Place::Raw(raw) => PathBuf::from(raw),
        }
    }
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Self {
        path.into_os_string().into_string().map_or_else(Place::Raw, Place::Text)
    }
}

// === files ===

/// Every entry; one that cannot be read, or that is none, is named.
fn entries(folder: &Path) -> Result<Vec<Entry>, Fault> {
    let mut found = Vec::new();
    for path in files(folder)? {
        found.push(read(&path)?);
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Entry, Fault> {
    let wrong = |why: String| refused(&Fault::new(Class::Usage, format!("the entry \"{}\" {why}", shown(path))));
    let bytes = read_trusted(path, LARGEST).map_err(wrong)?;
    let entry: Entry = serde_json::from_slice(&bytes).map_err(|error| wrong(format!("is none: {error}")))?;
    if entry.version != VERSION {
        return Err(wrong(format!("has version {}; this program reads {VERSION}", entry.version)));
    }
    if path.file_stem().and_then(|stem| stem.to_str()) != Some(&entry.key()) {
        return Err(wrong("is named after another configuration".to_owned()));
    }
    Ok(entry)
}

/// The files of entries, in the order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Fault> {
    let broken = |error: io::Error| refused(&Fault::new(Class::Usage, format!("\"{}\": {error}", shown(folder))));
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(broken)?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let path = entry.map_err(broken)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == IDENTITY || name.starts_with('.') {
            continue;
        }
        found.push(path);
    }
    found.sort();
    if found.len() > MOST {
        let why = format!("\"{}\" has more than {MOST} entries", shown(folder));
        return Err(refused(&Fault::new(Class::Usage, why)));
    }
    Ok(found)
}

/// Sees to it that one more entry has a place, and that nothing stays of what a crash left on its way.
fn make_room(state: &Path) -> Result<(), Fault> {
    let folder = state.join(FOLDER);
    for file in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let old = || file.metadata().ok()?.modified().ok()?.elapsed().ok();
        if file.file_name().to_string_lossy().starts_with('.') && old().is_some_and(|age| age > STALE) {
            let _ = fs::remove_file(file.path());
        }
    }
    if files(&folder)?.len() < MOST {
        return Ok(());
    }
    let gone = |entry: &Entry| [&entry.config, &entry.lock].iter().all(|p| entry.is_there(&p.path()) == Ok(false));
    for path in files(&folder)? {
        if read(&path).is_ok_and(|entry| gone(&entry)) {
            fs::remove_file(&path).map_err(|error| unwritten(&path, &error))?;
        }
    }
    if files(&folder)?.len() < MOST {
        return Ok(());
    }
    let why = format!("\"{}\" is full: {MOST} configurations were used with this state directory", shown(&folder));
    Err(Fault::new(Class::Usage, why))
}

/// The identity of the state directory, made when it is first asked for.
fn identity(folder: &Path) -> Result<String, Fault> {
    let path = folder.join(IDENTITY);
    if path.symlink_metadata().is_err() {
        let fresh = uuid::Uuid::new_v4().simple().to_string();
        put_first(&path, fresh.as_bytes()).map_err(|error| unwritten(&path, &error))?;
    }
    let wrong = |why: &str| Fault::new(Class::Usage, format!("\"{}\" {why}", shown(&path)));
    let bytes = read_trusted(&path, LARGEST).map_err(|why| wrong(&why))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let is_one = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_one {
        Ok(text)
    } else {
        Err(wrong("is no identity of a state directory: move it away, and a new one is made"))
    }
}

/// Puts a file in its place, whole, where none is. Of two at once one is first, and both use its.
fn put_first(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_file_name(format!(".{}", uuid::Uuid::new_v4().simple()));
    create(&temporary, content, OWN)?;
    let placed = match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    fs::remove_file(&temporary).and(placed)
}

// === file systems ===

/// Where the file system begins that a folder lies on.
#[cfg(unix)]
fn mounted(folder: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let folder = fs::canonicalize(folder).ok()?;
    let device = |path: &Path| path.metadata().ok().map(|meta| meta.dev());
    let own = device(&folder)?;
    folder.ancestors().take_while(|path| device(path) == Some(own)).last().map(Path::to_owned)
}

/// Whether a file system begins there.
#[cfg(unix)]
fn is_mount(path: &Path) -> bool {
    mounted(path).is_some_and(|top| top == path)
}

/// Nothing tells.
#[cfg(not(unix))]
fn mounted(_: &Path) -> Option<PathBuf> {
    None
}

#[cfg(not(unix))]
fn is_mount(_: &Path) -> bool {
    false
}

fn refused(fault: &Fault) -> Fault {
    let advice = "so it cannot be said what is still needed, and nothing is removed";
    Fault::new(fault.class, format!("{}; {advice}", fault.inward))
}

fn unwritten(path: &Path, error: &io::Error) -> Fault {
    Fault::new(Class::Usage, format!("cannot note the configuration at \"{}\": {error}", shown(path)))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;
    use crate::config::env::Fixed;

    fn config(path: &Path) -> Config {
        fs::write(path, "").unwrap();
        resolve::load(path, &Fixed::default()).unwrap()
    }

    /// Fills a register, without the care that makes each entry outlive a crash.
    fn fill(state: &Path, path: impl Fn(usize) -> PathBuf) {
        fs::create_dir_all(state.join(FOLDER)).unwrap();
        for number in 0..MOST {
            let entry = Entry::of(&path(number));
            let file = state.join(FOLDER).join(format!("{}.json", entry.key()));
            fs::write(file, serde_json::to_string(&entry).unwrap()).unwrap();
        }
    }

    #[test]
    fn of_many_at_once_all_tell_one_identity() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&dir.path().join("b.toml"));
        let ask = || remember(&dir.path().join("state"), &config).unwrap();
        let all: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|identity| *identity == all[0] && identity.len() == 32), "{all:?}");
        let left = fs::read_dir(dir.path().join("state").join(FOLDER)).unwrap();
        assert_eq!(left.count(), 2, "an entry and the identity");
    }

    #[test]
    fn what_is_gone_makes_room_and_what_is_there_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&dir.path().join("b.toml"));
        let state = dir.path().join("gone");
        fill(&state, |number| dir.path().join(format!("{number}.toml")));
        remember(&state, &config).unwrap();
        assert_eq!(files(&state.join(FOLDER)).unwrap().len(), 1);

        let state = dir.path().join("there");
        let there = dir.path().join("many");
        fs::create_dir(&there).unwrap();
        let path = |number: usize| there.join(format!("{number}.toml"));
        (0..MOST).for_each(|number| drop(fs::File::create(path(number)).unwrap()));
        fill(&state, path);
        assert!(remember(&state, &config).unwrap_err().inward.contains("is full"));
        assert_eq!(files(&state.join(FOLDER)).unwrap().len(), MOST);
    }

    #[test]
    fn a_path_that_is_no_text_is_kept_as_it_is() {
        let path = PathBuf::from(OsString::from_vec(b"/a\xff/b.toml".to_vec()));
        let text = serde_json::to_string(&Entry::of(&path)).unwrap();
        let entry: Entry = serde_json::from_str(&text).unwrap();
        assert_eq!((entry.config.path(), entry.lock.path()), (path.clone(), path.with_file_name(LOCK)));
    }
}
