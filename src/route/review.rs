//! What differs between two locked states of a server, as a value. Knows no terminal, no colours, nobody who approves.
//!
//! Every text in it has the form of [`crate::text::exact`]: whoever shows it shows nothing that acts on a terminal, and
//! nothing that is not seen.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::route::lock::{Definition, Kind, LockedServer};
use crate::text::exact;

mod facts;
mod members;
pub(in crate::route) mod node;
mod summary;
mod tree;
mod words;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use facts::{Fact, Weight};
pub use members::{Member, Members};
pub use tree::{Bump, Tree};
pub use words::{Piece, pieces};

use node::Node;

/// One server, before and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Whether anything differs.
    pub state: State,
    /// What runs and how it is confined, as far as it differs; all of it where the server is new.
    pub facts: Vec<Fact>,
    /// What it says of its capabilities and its use, member by member.
    pub says: Members,
    /// The packages that it is made of.
    pub tree: Tree,
    /// Its tools, prompts and resource templates that differ.
    pub items: Vec<Item>,
    /// Kinds of definitions whose order in the list is not as it was.
    pub moved: Vec<Kind>,
    /// How many definitions of each kind there are now.
    pub offers: [(Kind, usize); 3],
}

/// Whether a server differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was not there before.
    New,
    /// Every byte is as it was.
    Unchanged,
    /// Something is not as it was.
    Changed,
}

/// One definition that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is a definition of.
    pub kind: Kind,
    /// What the server calls it.
    pub name: String,
    /// How it differs.
    pub change: Change,
}

/// How a definition differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Added {
        /// Everything it says.
        members: Members,
        /// Names of its parameters.
        parameters: Vec<String>,
    },
    /// It is not there any more.
    Removed,
    /// It says something else.
    Changed(Members),
    /// The same members in another order.
    Reordered,
    /// The same JSON in other bytes.
    Respelled,
}

impl Review {
    /// Holds what is against what was.
    pub fn of(before: Option<&LockedServer>, now: &LockedServer) -> Review {
        let mut review = Review {
            state: State::Changed,
            facts: facts::facts(before, now),
            says: says(before, now),
            tree: Tree::between(before.map_or(&[], |b| &b.tree), &now.tree),
            items: Vec::new(),
            moved: Vec::new(),
            offers: Kind::ALL.map(|kind| (kind, now.definitions(kind).len())),
        };
        for kind in Kind::ALL {
            let old = before.map_or(&[][..], |b| b.definitions(kind));
            review.definitions(kind, old, now.definitions(kind));
        }
        review.state = match before {
            None => State::New,
            // The lock decides, so that nothing can be held back for a difference that is not shown as one.
            Some(before) if before == now => State::Unchanged,
            Some(_) => State::Changed,
        };
        review
    }

    /// Whether every byte is as it was.
    pub fn is_unchanged(&self) -> bool {
        self.state == State::Unchanged
    }

    fn definitions(&mut self, kind: Kind, before: &[Definition], now: &[Definition]) {
        let old: HashMap<&str, &Definition> = before.iter().map(|d| (d.name.as_str(), d)).collect();
        let new: HashMap<&str, &Definition> = now.iter().map(|d| (d.name.as_str(), d)).collect();
        let item = |one: &Definition, change| Item { kind, name: exact(&one.name), change };
        for one in now {
            let change = match old.get(one.name.as_str()) {
                None => Some(added(one)),
                Some(was) => changed(was, one),
            };
            self.items.extend(change.map(|change| item(one, change)));
        }
        let gone = before.iter().filter(|one| !new.contains_key(one.name.as_str()));
        self.items.extend(gone.map(|one| item(one, Change::Removed)));
        let kept = |all: &[Definition], others: &HashMap<&str, &Definition>| -> Vec<String> {
            all.iter().filter(|one| others.contains_key(one.name.as_str())).map(|one| one.name.clone()).collect()
        };
        if kept(before, &new) != kept(now, &old) {
            self.moved.push(kind);
        }
    }
}

fn says(before: Option<&LockedServer>, now: &LockedServer) -> Members {
    let all = |server: &LockedServer| {
        let mut members = vec![("capabilities".to_owned(), Node::parse(server.capabilities.get()))];
        members.extend(server.instructions.clone().map(|text| ("instructions".to_owned(), Node::Text(text))));
        Node::Map(members)
    };
    let (old, new) = (before.map(all), all(now));
    let mut members = Members::between("", old.as_ref(), Some(&new));
    if let Some(before) = before
        && members.is_empty()
        && one_line(&before.capabilities) != one_line(&now.capabilities)
    {
        let words = |server: &LockedServer| Some(exact(server.capabilities.get()));
        members.all.push(Member { path: "capabilities (spelling)".to_owned(), before: words(before), now: words(now) });
    }
    members
}

fn added(one: &Definition) -> Change {
    let node = Node::parse(one.definition.get());
    let parameters = match node.get("inputSchema").and_then(|schema| schema.get("properties")) {
        Some(Node::Map(members)) => members.iter().map(|(key, _)| exact(key)).collect(),
        _ => match node.get("arguments") {
            Some(Node::List(all)) => all.iter().filter_map(|one| Some(exact(one.get("name")?.text()?))).collect(),
            _ => Vec::new(),
        },
    };
    Change::Added { members: Members::between("", None, Some(&node)), parameters }
}

fn changed(was: &Definition, is: &Definition) -> Option<Change> {
    if was.definition.get() == is.definition.get() {
        return None;
    }
    let (old, new) = (Node::parse(was.definition.get()), Node::parse(is.definition.get()));
    if old == new {
        return Some(Change::Respelled);
    }
    if old.same(&new) {
        return Some(Change::Reordered);
    }
    Some(Change::Changed(Members::between("", Some(&old), Some(&new))))
}

/// As the lock compares: a line break between tokens is a blank.
fn one_line(json: &RawValue) -> String {
    json.get().replace(['\n', '\r'], " ")
}
