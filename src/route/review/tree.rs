//! The packages that a server is made of, held against those it was made of. Knows nothing of who bakes them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::one_line;
use crate::text::exact;
use crate::wire::Object;

/// What differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Names and versions of packages that were not there.
    pub added: Vec<String>,
    /// Names and versions of packages that are not there any more.
    pub removed: Vec<String>,
    /// Packages of another version.
    pub changed: Vec<Bump>,
    /// Names and versions of packages of which something else differs: another hash for the same version, above all.
    pub replaced: Vec<String>,
    /// Whether only their order differs, or how often one of them is there.
    pub reordered: bool,
}

/// A package in another version, or in other versions where there are several of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bump {
    /// Its name.
    pub name: String,
    /// The versions before.
    pub before: String,
    /// The versions now.
    pub now: String,
}

impl Tree {
    pub(super) fn between(before: &[Box<RawValue>], now: &[Box<RawValue>]) -> Self {
        let (old, new) = (by_name(before), by_name(now));
        let mut tree = Tree::default();
        for (name, is) in &new {
            match old.get(name) {
                None => tree.added.extend(is.keys().map(|version| shown(name, version))),
                Some(was) => tree.compare(name, was, is),
            }
        }
        for (name, was) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            tree.removed.extend(was.keys().map(|version| shown(name, version)));
        }
        let bytes = |tree: &[Box<RawValue>]| tree.iter().map(|package| one_line(package)).collect::<Vec<_>>();
        tree.reordered = tree.is_empty() && bytes(before) != bytes(now);
        tree
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Tree::default()
    }

    fn compare(&mut self, name: &str, was: &Versions, is: &Versions) {
        if !was.keys().eq(is.keys()) {
            let versions = |all: &Versions| exact(&all.keys().cloned().collect::<Vec<_>>().join(", "));
            self.changed.push(Bump { name: exact(name), before: versions(was), now: versions(is) });
        }
        for (version, bytes) in is {
            if was.get(version).is_some_and(|before| before != bytes) {
                self.replaced.push(shown(name, version));
            }
        }
    }
}

/// The objects of each version of one package.
type Versions = BTreeMap<String, BTreeSet<String>>;

fn by_name(tree: &[Box<RawValue>]) -> BTreeMap<String, Versions> {
    let mut found: BTreeMap<String, Versions> = BTreeMap::new();
    for package in tree {
        let object = Object::parse(package.get()).ok();
        let text = |key: &str| object.as_ref().and_then(|object| object.string(key));
        // What has no name is its own one, so that it is not lost.
        let name = text("name").unwrap_or_else(|| package.get().to_owned());
        let versions = found.entry(name).or_default();
        versions.entry(text("version").unwrap_or_default()).or_default().insert(one_line(package));
    }
    found
}

fn shown(name: &str, version: &str) -> String {
    exact(format!("{name} {version}").trim_end())
}
