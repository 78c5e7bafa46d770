//! A snapshot of every tool under its exposed name. Pure; built anew when a listing changes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::{Names, Server};
use crate::gate;
use crate::name::{ExposedName, Principal};
use crate::wire::edit::quoted;
use crate::wire::{Edit, Object};

use super::Listing;
use super::listing::{Why, Withheld};
use super::lock::Kind;

/// One tool under its exposed name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which server it belongs to, by its place in the configuration.
    pub server: usize,
    /// The server's own name for it.
    pub tool: String,
    /// The definition that clients see: the server's, with the exposed name.
    pub shown: Arc<str>,
    /// The name clients call.
    pub exposed: ExposedName,
}

/// All tools of all servers.
#[derive(Debug, Default)]
pub struct Catalog {
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// Names that several tools claim, so that none has them.
    pub contested: Vec<String>,
    held: Vec<Held>,
}

/// A tool that is not served before somebody has approved it.
#[derive(Clone, Debug)]
pub struct Held {
    /// Which server it belongs to, by its place in the configuration.
    pub server: usize,
    /// The server's own name for it.
    pub tool: String,
    /// The name under which it would be served.
    pub exposed: ExposedName,
    /// Why it is not.
    pub why: Why,
}

impl Catalog {
    /// Builds the snapshot; the order is that of the configuration, then that of each server.
    pub fn build<'a>(names: Names, servers: impl Iterator<Item = (&'a Server, Option<Arc<Listing>>)>) -> Self {
        let (mut entries, mut held) = (Vec::new(), Vec::new());
        for (place, (server, listing)) in servers.enumerate() {
            let expose = |tool: &str| match names {
                Names::Prefixed => ExposedName::prefixed(&server.name, tool),
                Names::Bare => ExposedName::bare(tool),
            };
            for Withheld { kind, name, why } in listing.iter().flat_map(|l| l.unapproved()) {
                if let (Kind::Tool, Some(tool)) = (kind, name) {
                    held.push(Held { server: place, tool: tool.clone(), exposed: expose(tool), why: why.clone() });
                }
            }
            for tool in listing.iter().flat_map(|l| &l.tools) {
                let exposed = expose(&tool.name);
                let shown = renamed(&tool.definition, &exposed);
                entries.push(Entry { server: place, tool: tool.name.clone(), shown, exposed });
            }
        }
        Catalog { held, ..Self::without_contested(entries) }
    }

    fn without_contested(mut entries: Vec<Entry>) -> Self {
        let mut claims: HashMap<&str, usize> = HashMap::new();
        for entry in &entries {
            *claims.entry(entry.exposed.as_str()).or_default() += 1;
        }
        let mut contested: Vec<String> =
            claims.iter().filter(|(_, count)| **count > 1).map(|(name, _)| (*name).to_owned()).collect();
        contested.sort();
        entries.retain(|entry| contested.binary_search_by(|name| name.as_str().cmp(entry.exposed.as_str())).is_err());
        let by_name = entries.iter().enumerate().map(|(n, e)| (e.exposed.as_str().to_owned(), n)).collect();
        Catalog { entries, by_name, contested, held: Vec::new() }
    }

    /// The tool of that exposed name.
    pub fn find(&self, exposed: &str) -> Option<&Entry> {
        self.by_name.get(exposed).map(|n| &self.entries[*n])
    }

    /// The tool of a server by the server's own name for it.
    pub fn find_own(&self, server: usize, tool: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.server == server && e.tool == tool)
    }

    /// The tool that would have that exposed name if somebody had approved it.
    pub fn find_held(&self, exposed: &str) -> Option<&Held> {
        self.held.iter().find(|held| held.exposed.as_str() == exposed)
    }

    /// The same by the server's own name for it.
    pub fn find_own_held(&self, server: usize, tool: &str) -> Option<&Held> {
        self.held.iter().find(|held| held.server == server && held.tool == tool)
    }

    /// What a principal sees, by the same decision that a call is made with.
    pub fn visible<'c, 's>(&'c self, principal: &Principal, server: impl Fn(usize) -> &'s Server) -> Vec<&'c Entry> {
        self.entries.iter().filter(|e| gate::decide(principal, server(e.server), &e.tool).allow).collect()
    }
}

fn renamed(definition: &str, exposed: &ExposedName) -> Arc<str> {
    let Ok(object) = Object::parse(definition) else { return definition.into() };
    let mut edit = Edit::new(&object);
    edit.set("name", quoted(exposed.as_str()));
    edit.apply().into()
}
