//! Which members of two values differ, by their paths. Knows nothing of how a difference looks.

use std::collections::{HashMap, HashSet};

use super::node::{Node, element, member, names, numbered};

/// Differences that are told one by one; the others are counted.
const MOST: usize = 5_000;

/// A member that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it is, `inputSchema.properties.path.description`.
    pub path: String,
    /// What it was; `None` where there was none. As all texts here in the form of [`crate::text::exact`].
    pub before: Option<String>,
    /// What it is; `None` where there is none.
    pub now: Option<String>,
}

/// The members that differ, in the order of the new value, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those that are told.
    pub all: Vec<Member>,
    /// How many are not.
    pub more: usize,
}

impl Members {
    /// Between two values; `None` for one that is not there.
    pub(in crate::route) fn between(path: &str, before: Option<&Node>, now: Option<&Node>) -> Self {
        let mut found = Members::default();
        found.walk(path, before, now);
        found
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn push(&mut self, path: &str, before: Option<String>, now: Option<String>) {
        if self.all.len() == MOST {
            self.more += 1;
        } else {
            self.all.push(Member { path: path.to_owned(), before, now });
        }
    }

    fn walk(&mut self, path: &str, before: Option<&Node>, now: Option<&Node>) {
        match (before, now) {
            (Some(Node::Map(a)), Some(Node::Map(b))) if a.is_empty() == b.is_empty() => self.maps(path, a, b),
            (Some(Node::List(a)), Some(Node::List(b))) if !before.is_some_and(Node::is_leaf) => self.lists(path, a, b),
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) if a.is_leaf() && b.is_leaf() => self.push(path, Some(a.words()), Some(b.words())),
            (Some(a), Some(b)) => {
                self.walk(path, Some(a), None);
                self.walk(path, None, Some(b));
            }
            (Some(one), None) | (None, Some(one)) => self.alone(path, one, before.is_some()),
            (None, None) => {}
        }
    }

    fn maps(&mut self, path: &str, before: &[(String, Node)], now: &[(String, Node)]) {
        let (before, now) = (numbered(before), numbered(now));
        let old: HashMap<_, _> = before.iter().map(|(key, n, value)| ((*key, *n), *value)).collect();
        let new: HashSet<_> = now.iter().map(|(key, n, _)| (*key, *n)).collect();
        for (key, n, value) in now {
            self.walk(&member(path, key, n), old.get(&(key, n)).copied(), Some(value));
        }
        for (key, n, value) in before.into_iter().filter(|(key, n, _)| !new.contains(&(*key, *n))) {
            self.walk(&member(path, key, n), Some(value), None);
        }
    }

    /// By name where all have one, so that one that is put in before others does not change them all.
    fn lists(&mut self, path: &str, before: &[Node], now: &[Node]) {
        let (Some(old), Some(new)) = (names(before), names(now)) else {
            for n in 0..before.len().max(now.len()) {
                self.walk(&element(path, None, n), before.get(n), now.get(n));
            }
            return;
        };
        let of: HashMap<_, _> = old.iter().copied().zip(before).collect();
        for (name, value) in new.iter().zip(now) {
            self.walk(&element(path, Some(name), 0), of.get(name).copied(), Some(value));
        }
        let kept: HashSet<_> = new.iter().copied().collect();
        for (name, value) in old.iter().zip(before).filter(|(name, _)| !kept.contains(**name)) {
            self.walk(&element(path, Some(name), 0), Some(value), None);
        }
        let order = |names: &[&str], others: &HashSet<&str>| -> Vec<Node> {
            names.iter().filter(|name| others.contains(**name)).map(|name| Node::Text((*name).to_owned())).collect()
        };
        let (was, is) = (order(&old, &kept), order(&new, &old.iter().copied().collect()));
        if was != is {
            let words = |names| Some(Node::List(names).words());
            self.push(&format!("{path} (order)"), words(was), words(is));
        }
    }

    /// Every leaf of a value that is only on one side.
    fn alone(&mut self, path: &str, one: &Node, was: bool) {
        match one {
            _ if one.is_leaf() => {
                let words = Some(one.words());
                if was { self.push(path, words, None) } else { self.push(path, None, words) }
            }
            Node::Map(members) => {
                for (key, n, value) in numbered(members) {
                    self.alone(&member(path, key, n), value, was);
                }
            }
            Node::List(all) => {
                let names = names(all);
                for (n, value) in all.iter().enumerate() {
                    let name = names.as_ref().map(|names| names[n]);
                    self.alone(&element(path, name, n), value, was);
                }
            }
            Node::Text(_) | Node::Plain(_) => {}
        }
    }
}
