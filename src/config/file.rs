//! What was written: a tree of values, each with its place in the file. Knows TOML and JSON, but no key of ours.
//!
//! TOML and JSON (with comments and trailing commas) become the same tree, so that one reader finds all faults of
//! either. A key that stands twice is a fault: the second would silently win.

use std::fmt;
use std::path::Path;

use super::fault::{Place, Sink};

mod json;
mod lines;
mod open;
mod own;
mod replace;
mod toml;

pub use json::OPTIONS as JSON;
pub use open::read_trusted;
pub use own::{alone, private_folder};
pub use replace::{Rights, create, replace, replace_if};

/// A value and where it begins.
#[derive(Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its first character.
    pub at: Place,
}

/// A value as written. `Debug` tells only its kind, since any value may be a secret.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// `null` (JSON).
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// A date or a time (TOML).
    Date,
    /// A text.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values.
    Table(Table),
}

/// Keys and values, in the order of the file, each key once.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Table {
    /// The entries.
    pub entries: Vec<Entry>,
}

/// One key with its value.
#[derive(Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub at: Place,
    /// The value.
    pub node: Node,
}

/// The language a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// TOML.
    Toml,
    /// JSON with comments and trailing commas.
    Json,
}

impl Syntax {
    /// By the file's name: `.json` and `.jsonc` are JSON, everything else is TOML.
    pub fn of(path: &Path) -> Self {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if ["json", "jsonc"].iter().any(|json| extension.eq_ignore_ascii_case(json)) {
            Syntax::Json
        } else {
            Syntax::Toml
        }
    }
}

/// Reads a text into a tree; `None` where the text is at fault, which the sink then knows.
pub(super) fn parse(text: &str, syntax: Syntax, sink: &Sink) -> Option<Table> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match syntax {
        Syntax::Toml => toml::parse(text, sink),
        Syntax::Json => json::parse(text, sink),
    }
}

/// The place of a byte of a text.
pub fn place(text: &str, byte: usize) -> Place {
    lines::Lines::of(text).place(byte)
}

impl Table {
    /// The entry of that key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Adds a key of a table that is made up rather than read.
    pub fn put(&mut self, key: &str, value: Value) {
        let at = NOWHERE;
        self.entries.push(Entry { key: key.to_owned(), at, node: Node { value, at } });
    }
}

/// The place of what stands in no file.
pub(super) const NOWHERE: Place = Place { line: 1, column: 1 };

impl Value {
    /// A list of texts that is made up rather than read.
    pub fn texts(texts: impl IntoIterator<Item = String>) -> Self {
        Value::List(texts.into_iter().map(|text| Node { value: Value::String(text), at: NOWHERE }).collect())
    }

    /// The word for its kind in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean(_) => "true or false",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Date => "a date",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.key, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_decides() {
        for (name, syntax) in [
            ("bulkhead.toml", Syntax::Toml),
            ("a.json", Syntax::Json),
            ("a.JSONC", Syntax::Json),
            ("json", Syntax::Toml),
            ("a.json.bak", Syntax::Toml),
        ] {
            assert_eq!(Syntax::of(Path::new(name)), syntax, "{name}");
        }
    }

    #[test]
    fn both_languages_give_the_same_tree() {
        let flat = |text, syntax| {
            let sink = Sink::default();
            let table = parse(text, syntax, &sink).unwrap();
            table.entries.into_iter().map(|e| (e.key, format!("{:?}", e.node))).collect::<Vec<_>>()
        };
        let toml = flat("\u{feff}b = [1, 2.5]\r\na = { c = \"x\" } # why\r\nd = true\r\n", Syntax::Toml);
        let json = flat("\u{feff}{\"b\": [1, 2.5], /* why */\r\n \"a\": {\"c\": \"x\",}, \"d\": true,}", Syntax::Json);
        assert_eq!(toml, json);
        assert_eq!(toml.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["b", "a", "d"]);
    }

    #[test]
    fn debug_shows_no_value() {
        let table = parse("a = { token = \"s3cr3t\" }", Syntax::Toml, &Sink::default()).unwrap();
        assert!(!format!("{table:?}").contains("s3cr3t"));
    }
}
