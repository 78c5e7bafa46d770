//! Which host paths a server may see, and where they may appear. Knows nothing of the rest of a server.
//!
//! A host path is judged after its links are followed, and in both directions: a directory *above* a sensitive place
//! holds it, a path *below* a system directory is part of it. What a server must never reach: the system, an engine's
//! socket or data (root on the host, by another name), anybody's credentials, and the gateway's own files.

use std::fs::{DirEntry, FileType};
use std::path::{Path, PathBuf};

use super::env::{Environment, home, state_dir, usual_sockets};
use super::fault::quoted;

mod credentials;
mod target;
#[cfg(all(test, unix))]
mod tests;
mod within;

pub(super) use target::target;
pub use within::unescaped;
pub(super) use within::within;

/// System directories and engine data: refused whole, with all that is above and below.
const TREES: [&str; 13] = [
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/boot",
    "/System",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/var/db",
];

/// Where a host has its programs: these may be read, and never written to.
const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/Library", "/Applications"];

/// Directories of home directories: these and each directory in them are refused, but not what lies deeper.
const HOMES: [&str; 3] = ["/home", "/Users", "/mnt/c/Users"];

/// Directories where everybody's programs leave files and sockets: refused whole, but not what lies deeper.
const SHARED: [&str; 2] = ["/tmp", "/var/tmp"];

/// Why `.config` and its like are refused in a home.
const PART_OF_HOME: &str = "has what somebody's programs are and do";

/// How many entries of a directory, and of each directory in it, are looked at for sockets a level deeper.
const LOOKED_AT: usize = 256;

/// Sockets of engines are known by these parts of their names, wherever they are.
const ENGINES: [&str; 5] = ["docker", "podman", "containerd", "crio", "buildkit"];

/// The judge of host paths on this machine.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Refused with all above and below; and why.
    trees: Vec<(PathBuf, &'static str)>,
    /// Refused with all above; and why.
    places: Vec<(PathBuf, &'static str)>,
    /// Each directory directly in these is refused too.
    homes: Vec<PathBuf>,
}

impl Guard {
    /// Learns what is sensitive here. `config` is the file that asks.
    pub fn new(config: &Path, env: &dyn Environment) -> Self {
        let known = |paths: &[&str]| paths.iter().flat_map(|path| with_real(Path::new(path))).collect::<Vec<_>>();
        let homes = known(&HOMES);
        let mut trees = reasons(known(&TREES), "belongs to the system or to a container engine");
        trees.extend(reasons(with_real(&absolute(&state_dir(None, env))), "is the gateway's own state"));
        let (config, lock) = (absolute(config), absolute(&config.with_file_name("bulkhead.lock")));
        let mut places = reasons(with_real(&config), "is the gateway's own configuration");
        places.extend(reasons(with_real(&lock), "holds what was approved"));
        places.extend(reasons(known(&SHARED), "is everybody's temporary directory"));
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let people: Vec<_> = people(&passwd).chain(home(env)).chain([PathBuf::from("/root")]).collect();
        places.extend(reasons(people.iter().flat_map(|home| with_real(home)).collect(), "is a home directory"));
        let parts = people.iter().flat_map(|home| credentials::OF_HOMES.map(|part| home.join(part)));
        places.extend(reasons(parts.flat_map(|part| with_real(&part)).collect(), PART_OF_HOME));
        places.extend(reasons(homes.clone(), "holds home directories"));
        places.extend(reasons(engine_sockets(env), "is a container engine's socket"));
        Guard { trees, places, homes }
    }

    /// Learns of one more file of the gateway's own.
    pub(super) fn protect(&mut self, file: &Path) {
        self.places.extend(reasons(with_real(&absolute(file)), "is the gateway's own"));
    }

    /// The real path behind a host path, or why a server may not see it.
    pub fn vet(&self, written: &str) -> Result<PathBuf, String> {
        let path = Path::new(written);
        if !path.is_absolute() || written.contains(char::is_control) {
            return Err(format!("must be an absolute path, not {}", quoted(written)));
        }
        let real = path.canonicalize().map_err(|error| format!("{} cannot be used: {error}", quoted(written)))?;
        let name = if real == path { quoted(written) } else { format!("{} (really {real:?})", quoted(written)) };
        let kind = real.metadata().map_err(|error| format!("{name} cannot be used: {error}"))?.file_type();
        match self.objection(&real, kind) {
            Some(why) => Err(format!("{name} is refused: {why}")),
            None => Ok(real),
        }
    }

    /// Why a server may not write to a host path that it may see, if so.
    pub fn vet_writing(&self, real: &Path) -> Result<(), String> {
        let path = lower(real);
        let mut programs = PROGRAMS.iter().flat_map(|place| with_real(Path::new(place)));
        match programs.find(|place| path.starts_with(lower(place)) || lower(place).starts_with(&path)) {
            Some(place) => Err(format!("must not be true for {real:?}: {place:?} has programs of the host")),
            None => Ok(()),
        }
    }

    fn objection(&self, real: &Path, kind: FileType) -> Option<String> {
        if !kind.is_dir() && !kind.is_file() {
            return Some("it is neither a directory nor a regular file".to_owned());
        }
        let path = &lower(real);
        let tree = self.trees.iter().find(|(tree, _)| path.starts_with(lower(tree)) || lower(tree).starts_with(path));
        let place = || self.places.iter().find(|(place, _)| lower(place).starts_with(path));
        if let Some((sensitive, why)) = tree.or_else(place) {
            let is = if path.starts_with(lower(sensitive)) { "it is in" } else { "it holds" };
            let what = if lower(sensitive) == *path { "it".to_owned() } else { format!("{is} {sensitive:?}, which") };
            return Some(format!("{what} {why}"));
        }
        if self.homes.iter().any(|homes| path.parent() == Some(&lower(homes))) {
            return Some("it is a home directory".to_owned());
        }
        let home = path.parent().and_then(Path::parent);
        let part = path.file_name().is_some_and(|name| credentials::OF_HOMES.iter().any(|part| name == *part));
        if part && self.homes.iter().any(|homes| home == Some(&lower(homes))) {
            return Some(format!("it {PART_OF_HOME}"));
        }
        let file = || kind.is_file().then(|| credentials::file(real)).flatten();
        credentials::found(real).or_else(file).or_else(|| engine_socket_in(real, kind))
    }
}

/// A path and, where links lead elsewhere, the real path behind it.
fn with_real(path: &Path) -> Vec<PathBuf> {
    let mut paths = vec![path.to_owned()];
    paths.extend(real(path).filter(|real| real != path));
    paths
}

/// The path with its links followed, as far as it exists: what is not there yet is known by what will hold it.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(real(path.parent()?)?.join(path.file_name()?)))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn reasons(paths: Vec<PathBuf>, why: &'static str) -> Vec<(PathBuf, &'static str)> {
    paths.into_iter().map(|path| (path, why)).collect()
}

/// The sockets by which this machine's engine may be reached, the chosen one first.
fn engine_sockets(env: &dyn Environment) -> Vec<PathBuf> {
    let chosen = env.var("DOCKER_HOST").and_then(|host| host.strip_prefix("unix://").map(PathBuf::from));
    chosen.into_iter().chain(usual_sockets(env)).flat_map(|socket| with_real(&socket)).collect()
}

/// The homes of people in a password file: root and ordinary accounts, not those of services.
fn people(passwd: &str) -> impl Iterator<Item = PathBuf> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let uid: u32 = fields.nth(2)?.parse().ok()?;
        let home = Path::new(fields.nth(2)?);
        ((uid == 0 || (1000..65534).contains(&uid)) && home.is_absolute() && home.parent().is_some())
            .then(|| home.to_owned())
    })
}

/// Some file systems take `/Etc` for `/etc`, so paths are compared without regard to case.
fn lower(path: &Path) -> PathBuf {
    PathBuf::from(path.to_string_lossy().to_lowercase())
}

/// Whether a directory directly holds a socket with an engine's name. One that cannot be looked into may.
fn engine_socket_in(real: &Path, kind: FileType) -> Option<String> {
    if !kind.is_dir() {
        return None;
    }
    let entries = match std::fs::read_dir(real).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => return Some(format!("it cannot be looked into: {error}")),
    };
    let found = entries.iter().find_map(|entry| {
        let ordinary = || entry.path().metadata().is_ok_and(|target| target.is_dir() || target.is_file());
        (is_of_engine(entry) && !ordinary()).then(|| format!("({:?})", entry.file_name()))
    });
    let found =
        found.or_else(|| entries.iter().filter(|entry| is_a(entry, FileType::is_dir)).take(LOOKED_AT).find_map(deeper));
    found.map(|which| format!("it holds a container engine's socket {which}"))
}

/// The same of a directory in it, as far as it can be looked into. Links lead nowhere from where a server sees them.
fn deeper(directory: &DirEntry) -> Option<String> {
    let mut entries = std::fs::read_dir(directory.path()).ok()?.take(LOOKED_AT).flatten();
    let other = |kind: &FileType| !kind.is_dir() && !kind.is_file() && !kind.is_symlink();
    let found = entries.find(|entry| is_of_engine(entry) && is_a(entry, other))?;
    Some(format!("({:?})", Path::new(&directory.file_name()).join(found.file_name())))
}

fn is_a(entry: &DirEntry, kind: impl Fn(&FileType) -> bool) -> bool {
    entry.file_type().is_ok_and(|found| kind(&found))
}

fn is_of_engine(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy().to_lowercase();
    ENGINES.iter().any(|engine| name.contains(engine))
}
