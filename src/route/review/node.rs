//! A definition as a tree that loses nothing of it: order, members that come twice, numbers as they were spelled. Knows
//! nothing of what the members mean.

use std::collections::HashMap;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::text::exact;
use crate::wire::Object;

/// Deeper than this, a value is not taken apart any more: each level is another pass over what it holds.
const DEEPEST: usize = 48;
/// Longest key in a path, in characters.
const KEY_MAX: usize = 60;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::route) enum Node {
    /// A string, decoded.
    Text(String),
    /// A number, a truth value or null as it was spelled, and whatever cannot be taken apart.
    Plain(String),
    /// An array.
    List(Vec<Node>),
    /// An object.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Takes a value apart. There is none that it cannot represent.
    pub fn parse(json: &str) -> Self {
        Self::below(json, 0)
    }

    fn below(json: &str, depth: usize) -> Self {
        let json = json.trim_matches([' ', '\t', '\r', '\n']);
        let whole = match json.as_bytes().first() {
            Some(b'"') => serde_json::from_str(json).ok().map(Node::Text),
            Some(b'{') if depth < DEEPEST => Object::parse(json).ok().map(|object| {
                let member = |(key, value): &(std::borrow::Cow<'_, str>, &RawValue)| {
                    (key.clone().into_owned(), Self::below(value.get(), depth + 1))
                };
                Node::Map(object.members().iter().map(member).collect())
            }),
            Some(b'[') if depth < DEEPEST => serde_json::from_str::<Vec<&RawValue>>(json)
                .ok()
                .map(|all| Node::List(all.iter().map(|value| Self::below(value.get(), depth + 1)).collect())),
            _ => None,
        };
        whole.unwrap_or_else(|| Node::Plain(json.to_owned()))
    }

    /// The value of a member; the first where there are two.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Node::Map(members) => members.iter().find(|(k, _)| k == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The string that it is.
    pub fn text(&self) -> Option<&str> {
        match self {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is shown as one text, and not member by member.
    pub fn is_leaf(&self) -> bool {
        match self {
            Node::Text(_) | Node::Plain(_) => true,
            Node::List(all) => all.iter().all(Node::is_scalar),
            Node::Map(members) => members.is_empty(),
        }
    }

    fn is_scalar(&self) -> bool {
        matches!(self, Node::Text(_) | Node::Plain(_))
    }

    /// A leaf for people, in the form of [`exact`]: a string bare where it cannot be taken for something else.
    pub fn words(&self) -> String {
        match self {
            Node::Text(text) if serde_json::from_str::<IgnoredAny>(text).is_err() && !text.trim().is_empty() => {
                exact(text)
            }
            Node::Text(text) => quoted(text),
            Node::Plain(json) => exact(json),
            Node::List(all) => {
                let all: Vec<String> = all.iter().map(Node::element).collect();
                format!("[{}]", all.join(", "))
            }
            Node::Map(_) => "{}".to_owned(),
        }
    }

    fn element(&self) -> String {
        self.text().map_or_else(|| self.words(), quoted)
    }

    /// The same value, members in whatever order.
    pub fn same(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::Map(a), Node::Map(b)) => {
                let of: HashMap<_, _> = numbered(b).into_iter().map(|(key, n, value)| ((key, n), value)).collect();
                a.len() == b.len()
                    && numbered(a).iter().all(|(key, n, value)| of.get(&(*key, *n)).is_some_and(|o| value.same(o)))
            }
            (Node::List(a), Node::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b)),
            (a, b) => a == b,
        }
    }
}

/// Members with the how-manieth of its key each is.
pub(super) fn numbered(members: &[(String, Node)]) -> Vec<(&str, usize, &Node)> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let number = |(key, value)| {
        let n: &mut usize = seen.entry(key).or_default();
        *n += 1;
        (key, *n, value)
    };
    members.iter().map(|(key, value)| (key.as_str(), value)).map(number).collect()
}

/// The path of a member of what is at `path`.
pub(in crate::route) fn member(path: &str, key: &str, n: usize) -> String {
    let plain = !key.is_empty()
        && key.len() <= KEY_MAX
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_$-".contains(&b));
    let mut out = path.to_owned();
    if plain {
        out.push_str(if path.is_empty() { "" } else { "." });
        out.push_str(key);
    } else {
        let mut short: String = key.chars().take(KEY_MAX).collect();
        short.push_str(if short.len() < key.len() { "…" } else { "" });
        out.push_str(&format!("[{}]", quoted(&short)));
    }
    if n > 1 {
        out.push_str(&format!("#{n}"));
    }
    out
}

/// The path of an element of the array at `path`: by its name, or else its number.
pub(in crate::route) fn element(path: &str, name: Option<&str>, n: usize) -> String {
    match name {
        Some(name) => member(path, name, 1),
        None => format!("{path}[{n}]"),
    }
}

/// Names of the elements where each has one of its own.
pub(in crate::route) fn names(all: &[Node]) -> Option<Vec<&str>> {
    let names: Option<Vec<&str>> = all.iter().map(|one| one.get("name").and_then(Node::text)).collect();
    let mut sorted = names.clone()?;
    sorted.sort_unstable();
    sorted.dedup();
    names.filter(|names| names.len() == sorted.len())
}

fn quoted(text: &str) -> String {
    exact(&serde_json::Value::from(text).to_string())
}
