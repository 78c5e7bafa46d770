//! What was written becomes what it means, or the list of everything that is wrong with it. Knows no container engine.
//!
//! Every key is either kept, or refused by name: nothing is ignored, and nothing is mapped to something weaker. The one
//! thing that does not stop the whole file is a server that lacks something of the environment: that server is disabled,
//! and says what it lacks.

use std::collections::HashMap;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::env::{Environment, Fixed};
use super::fault::{Faults, Sink};
use super::file::{Syntax, Table, parse, read_trusted};
use super::import;
use super::mounts::Guard;
use super::reader::{Field, Reader};
use super::{Config, Server};
use crate::name::ServerName;
use server::Surroundings;

mod compartment;
mod digest;
mod environment;
mod gateway;
mod image;
mod limits;
mod package;
mod registry;
mod run;
mod server;
mod settings;
mod texts;
mod tools;

#[cfg(test)]
mod tests;

pub(super) use server::KEYS;

/// Larger files are no configuration.
pub(super) const LARGEST: u64 = 4 << 20;

/// Reads and checks a configuration file.
pub fn load(path: &Path, env: &dyn Environment) -> Result<Config, Faults> {
    let sink = Sink::default();
    let config = read(path, env, &sink);
    sink.finish(path, config)
}

/// A server of the program's own, from an entry in the words of the file, in TOML, that stands in none: whatever the
/// entry leaves out is as in everybody's.
pub fn own(name: &str, entry: &str) -> Result<Server, Faults> {
    let sink = Sink::default();
    let path = Path::new("(the program's own)");
    let text = format!("[servers.{name}]\n{entry}\n");
    let config = understand(path, text.into_bytes(), &Fixed::default(), &sink);
    sink.finish(path, config.and_then(|config| config.servers.into_iter().next()))
}

fn read(path: &Path, env: &dyn Environment, sink: &Sink) -> Option<Config> {
    let bytes = read_trusted(path, LARGEST).map_err(|why| sink.whole(why)).ok()?;
    understand(path, bytes, env, sink)
}

/// The same of a text that stands in no file yet, and of the tree in it.
pub(super) fn check(path: &Path, text: &str, env: &dyn Environment) -> Result<(Table, Config), Faults> {
    let sink = Sink::default();
    let tree = parse(text, Syntax::of(path), &sink);
    let config = tree.as_ref().and_then(|tree| meaning(path, String::new(), tree, env, &sink));
    sink.finish(path, tree.zip(config))
}

/// What one server would be in a configuration of which the rest is `root`.
pub(super) fn alone(path: &Path, root: &Table, env: &dyn Environment) -> Result<Server, Faults> {
    let sink = Sink::default();
    let config = meaning(path, String::new(), root, env, &sink);
    sink.finish(path, config.and_then(|config| config.servers.into_iter().next()))
}

fn understand(path: &Path, bytes: Vec<u8>, env: &dyn Environment, sink: &Sink) -> Option<Config> {
    let digest = crate::hex(&Sha256::digest(&bytes));
    let text = String::from_utf8(bytes).map_err(|_| sink.whole("is not UTF-8")).ok()?;
    let table = parse(&text, Syntax::of(path), sink)?;
    meaning(path, digest, &table, env, sink)
}

fn meaning(path: &Path, digest: String, table: &Table, env: &dyn Environment, sink: &Sink) -> Option<Config> {
    let syntax = Syntax::of(path);
    let mut root = Reader::root(table, sink);

    let gateway = gateway::gateway(root.table("gateway"));
    let stdio = gateway::front(root.table("front"));
    let limits = limits::limits(root.table("limits"));
    let audit = gateway::audit(root.table("audit"));
    gateway::refuse_unsupported(&mut root);

    let mut guard = Guard::new(path, env);
    if audit.path.is_absolute() {
        guard.protect(&audit.path);
    }
    let surroundings =
        Surroundings { env, guard: &guard, idle_stop: gateway.idle_stop, limits: limits.base, total: limits.total };
    let mut notes = Vec::new();
    let registry = registry::registry(root.table("registry"), env, &mut notes);
    let servers = servers(&mut root, syntax, &surroundings, &mut notes, sink);
    root.finish();
    let config = Config {
        path: path.to_owned(),
        digest,
        gateway: gateway.gateway,
        stdio,
        limits: limits.roles,
        total: limits.total,
        audit,
        registry,
        servers,
        notes,
    };
    sink.is_empty().then_some(config)
}

/// Every server of `servers` and, in JSON, of `mcpServers`, as other clients call that table.
fn servers(
    root: &mut Reader<'_>,
    syntax: Syntax,
    surroundings: &Surroundings<'_>,
    notes: &mut Vec<String>,
    sink: &Sink,
) -> Vec<Server> {
    let mut tables = vec![(root.table("servers"), false)];
    if syntax == Syntax::Json {
        tables.push((root.table("mcpServers"), true));
    }
    let mut names = HashMap::new();
    let mut found = Vec::new();
    for (table, foreign) in tables {
        for (written, entry) in table.iter().flat_map(Reader::entries) {
            let name = claim(written, &entry, &mut names, sink);
            let entry = entry.under("servers", written);
            let Some(mut table) = entry.table() else { continue };
            let translated: Table;
            if syntax == Syntax::Json && (foreign || import::is_foreign(table.written())) {
                let Some(ours) = import::translate(table, notes) else { continue };
                translated = ours;
                table = entry.instead(&translated);
            }
            found.extend(server::server(name, table, surroundings).map(|server| (entry.key_at, server)));
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, server)| server).collect()
}

/// A server's name, if it can be one and no other server's name comes out the same.
fn claim(written: &str, entry: &Field<'_>, names: &mut HashMap<String, ServerName>, sink: &Sink) -> Option<ServerName> {
    let name = ServerName::parse(written).map_err(|why| sink.add(entry.key_at, why.to_string())).ok()?;
    if let Some(other) = names.get(&name.collision_key()) {
        let text = format!("the servers {other:?} and {name:?} would share one name in tools, containers and volumes");
        sink.add(entry.key_at, text);
        return None;
    }
    names.insert(name.collision_key(), name.clone());
    Some(name)
}
