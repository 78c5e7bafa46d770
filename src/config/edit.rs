//! Adds servers to a configuration file. Knows nothing of where they come from.
//!
//! What stands in the file stays, byte for byte: entries are written behind it. Each is tried by itself first, and the
//! whole is read again before it replaces anything: a file that would not load, or would say something else than was
//! meant, is not written.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Server;
use super::env::Environment;
use super::fault::{Place, quoted};
use super::file::{Entry, Node, Rights, Syntax, Table, Value, private_folder, read_trusted, replace};
use super::resolve::{LARGEST, alone, check};
use crate::name::ServerName;
use text::{entry, same};

mod text;

/// What a new file begins with.
const HEAD: &str =
    "# The servers behind bulkhead, one [servers.NAME] each; \"bulkhead check\" says what is wrong with it.\n";

/// A new file is its owner's alone: values may be put into it later on.
#[cfg(unix)]
const MODE: u32 = 0o600;

/// A configuration with servers to be added.
pub struct Edit<'e> {
    path: PathBuf,
    env: &'e dyn Environment,
    /// The file as it is; none where there is none.
    before: Option<String>,
    /// What it says.
    root: Table,
    added: Vec<(ServerName, Table)>,
}

/// What became of an entry.
pub enum Added {
    /// It is to be written; and what it means.
    New(Box<Server>),
    /// The same stands there already.
    Same,
}

impl<'e> Edit<'e> {
    /// Reads the file, if it is there. What is wrong with it is said in whole lines.
    pub fn open(path: &Path, env: &'e dyn Environment) -> Result<Self, String> {
        let shown = path.display();
        if Syntax::of(path) == Syntax::Json {
            let why = "entries are only written into TOML; name a file such as bulkhead.toml with --config, or write them \
                       by hand";
            return Err(format!("{shown}: {why}"));
        }
        let before = read(path).map_err(|why| format!("{shown}: {why}"))?;
        let text = before.as_deref().unwrap_or_default();
        let (root, _) = check(path, text, env).map_err(|faults| faults.to_string())?;
        let probe = format!("{text}\n[servers.\"a probe that nobody has\"]\nimage = \"a\"\n");
        if check(path, &probe, env).is_err() {
            return Err(format!("{shown}: no server can be added to it: write each as a table, [servers.NAME]"));
        }
        Ok(Edit { path: path.to_owned(), env, before, root, added: Vec::new() })
    }

    /// The entries that the file has, by name.
    pub fn present(&self) -> impl Iterator<Item = (&str, &Node)> {
        let servers = self.root.get("servers").and_then(|servers| match &servers.node.value {
            Value::Table(servers) => Some(servers.entries.as_slice()),
            _ => None,
        });
        servers.unwrap_or_default().iter().map(|entry| (entry.key.as_str(), &entry.node))
    }

    /// Takes a server, if it would load, and nothing else has its name. Otherwise says why not.
    pub fn add(&mut self, name: &ServerName, table: Table) -> Result<Added, Vec<String>> {
        let key = |written: &str| ServerName::parse(written).map(|name| name.collision_key()).unwrap_or_default();
        let present = self.present().find(|(written, _)| key(written) == name.collision_key());
        if let Some((written, node)) = present {
            let equal = written == name.as_str() && same(&node.value, &Value::Table(table));
            let other =
                if written == name.as_str() { "another server of that name" } else { "a server of nearly that name" };
            let why = || vec![format!("{other} stands in {} already", self.path.display())];
            return if equal { Ok(Added::Same) } else { Err(why()) };
        }
        if let Some((_, before)) = self.added.iter().find(|(added, _)| added.collision_key() == name.collision_key()) {
            let equal = same(&Value::Table(before.clone()), &Value::Table(table));
            let why = || vec!["another server of that name was taken from the same file".to_owned()];
            return if equal { Ok(Added::Same) } else { Err(why()) };
        }
        let server = alone(&self.path, &self.with(name, &table), self.env);
        let server = server.map_err(|faults| faults.texts().map(str::to_owned).collect::<Vec<_>>())?;
        self.added.push((name.clone(), table));
        Ok(Added::New(Box::new(server)))
    }

    /// The file's own tree, with that server for all of its servers.
    fn with(&self, name: &ServerName, table: &Table) -> Table {
        let at = Place { line: 1, column: 1 };
        let one =
            |key: &str, table: Table| Entry { key: key.to_owned(), at, node: Node { value: Value::Table(table), at } };
        let servers = Table { entries: vec![one(name.as_str(), table.clone())] };
        let rest = self.root.entries.iter().filter(|entry| entry.key != "servers").cloned();
        Table { entries: rest.chain([one("servers", servers)]).collect() }
    }

    /// Whether there is anything to be written.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
    }

    /// The file that is written to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is written behind what is there.
    pub fn text(&self) -> String {
        self.added.iter().map(|(name, table)| entry(name.as_str(), table)).collect::<Vec<_>>().join("\n")
    }

    /// The file as it is to be.
    fn whole(&self) -> String {
        let Some(before) = &self.before else { return format!("{HEAD}\n{}", self.text()) };
        let line = if before.contains("\r\n") { "\r\n" } else { "\n" };
        let gap = match before.trim_start_matches('\u{feff}') {
            "" => "",
            text if text.ends_with('\n') => line,
            _ => &line.repeat(2),
        };
        format!("{before}{gap}{}", self.text().replace('\n', line))
    }

    /// Writes the file. Nothing is written where an error says what is wrong.
    pub fn save(&self) -> Result<(), String> {
        let (shown, whole) = (self.path.display(), self.whole());
        let (root, _) = check(&self.path, &whole, self.env).map_err(|faults| faults.to_string())?;
        let wanted = self.with_added();
        if !same(&Value::Table(root), &Value::Table(wanted)) {
            return Err(format!(
                "{shown}: what was to be written would not mean what it should, so nothing was written"
            ));
        }
        let now = read(&self.path).map_err(|why| format!("{shown}: {why}"))?;
        if now != self.before {
            return Err(format!("{shown}: somebody has changed it meanwhile, so nothing was written; try again"));
        }
        let failed = |error: std::io::Error| format!("{shown}: cannot be written: {error}");
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            private_folder(folder).map_err(failed)?;
        }
        let there = fs::metadata(&self.path).ok();
        replace(&self.path, whole.as_bytes(), there.as_ref().map_or(Rights::Mode(MODE), Rights::Of)).map_err(failed)
    }

    /// The tree that the file should have then.
    fn with_added(&self) -> Table {
        let at = Place { line: 1, column: 1 };
        let entry =
            |key: &str, table: Table| Entry { key: key.to_owned(), at, node: Node { value: Value::Table(table), at } };
        let present = self.present().map(|(key, node)| Entry { key: key.to_owned(), at, node: node.clone() });
        let added = self.added.iter().map(|(name, table)| entry(name.as_str(), table.clone()));
        let servers = entry("servers", Table { entries: present.chain(added).collect() });
        let rest = self.root.entries.iter().filter(|entry| entry.key != "servers").cloned();
        Table { entries: rest.chain([servers]).collect() }
    }
}

/// The text of the file; none where there is none.
fn read(path: &Path) -> Result<Option<String>, String> {
    // Not through a link: one that leads nowhere is no reason to put a file in its place.
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    let bytes = read_trusted(path, LARGEST)?;
    String::from_utf8(bytes).map(Some).map_err(|_| "is not UTF-8".to_owned())
}

/// A server's name out of one that was written elsewhere, and whether it is another one.
pub fn server_name(written: &str) -> Result<(ServerName, bool), String> {
    if let Ok(name) = ServerName::parse(written) {
        return Ok((name, false));
    }
    let mut mapped = String::new();
    for c in written.chars().take(256) {
        let c = if c.is_ascii_alphanumeric() || " ._()-".contains(c) { c } else { '-' };
        if !(matches!(c, '-' | '.') && mapped.ends_with(c)) {
            mapped.push(c);
        }
    }
    let begun = mapped.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let end = begun.len().min(64);
    let name = ServerName::parse(begun[..end].trim_end_matches(['-', ' ', '.']));
    name.map(|name| (name, true)).map_err(|_| format!("{} gives no name for a server", quoted(written)))
}
