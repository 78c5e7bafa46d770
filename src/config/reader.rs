//! Takes a tree apart key by key, and finds what is left over. Knows nothing of what our keys mean.
//!
//! A wrong value is noted and reading goes on, so that one run shows every fault; [`Reader::finish`] refuses each key
//! that nobody asked for.

use super::fault::{Place, Sink, quoted};
use super::file::{Entry, Table};

mod field;

pub(super) use field::Field;

/// One table being read.
pub(super) struct Reader<'a> {
    table: &'a Table,
    path: String,
    at: Place,
    asked: Vec<&'static str>,
    sink: &'a Sink,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// Reads the file's outermost table.
    pub(super) fn root(table: &'a Table, sink: &'a Sink) -> Self {
        Reader::new(table, String::new(), Place { line: 1, column: 1 }, sink)
    }

    /// Reads a table under a name.
    pub(super) fn new(table: &'a Table, path: String, at: Place, sink: &'a Sink) -> Self {
        Reader { table, path, at, asked: Vec::new(), sink }
    }

    /// The dotted name of this table.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The table as written.
    pub(super) fn written(&self) -> &'a Table {
        self.table
    }

    /// The dotted name of a key of this table.
    pub(super) fn path_of(&self, key: &str) -> String {
        joined(&self.path, key)
    }

    /// The value of a key, which is thereby known.
    pub(super) fn get(&mut self, key: &'static str) -> Option<Field<'a>> {
        self.asked.push(key);
        self.table.get(key).map(|entry| self.field(entry))
    }

    /// The table of a key.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Reader<'a>> {
        self.get(key)?.table()
    }

    /// Every entry, where the keys are names that the operator chose.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let (path, sink) = (self.path.clone(), self.sink);
        self.table.entries.iter().map(move |entry| {
            let path = joined(&path, &entry.key);
            (entry.key.as_str(), Field { path, key_at: entry.at, node: &entry.node, sink })
        })
    }

    /// Refuses keys of the contract that this version does not serve.
    pub(super) fn unsupported(&mut self, keys: &[&'static str]) {
        for key in keys {
            if let Some(field) = self.get(key) {
                self.sink.add(field.key_at, format!("not yet supported: {}", field.path));
            }
        }
    }

    /// Refuses keys that stand here but cannot be kept, and says why.
    pub(super) fn refuse(&mut self, keys: &[&'static str], why: &str) {
        for key in keys {
            if let Some(field) = self.get(key) {
                self.sink.add(field.key_at, format!("{} {why}", field.path));
            }
        }
    }

    /// Notes a fault of the table itself.
    pub(super) fn fault(&self, text: &str) {
        self.sink.add(self.at, format!("{} {text}", self.path));
    }

    /// Notes a fault at a place within the table.
    pub(super) fn fault_at(&self, at: Place, text: &str) {
        self.sink.add(at, format!("{} {text}", self.path));
    }

    /// Refuses every key that was not asked for.
    pub(super) fn finish(self) {
        self.finish_with(|_| None);
    }

    /// The same, where the caller may know better what is wrong with a key.
    pub(super) fn finish_with(self, hint: impl Fn(&str) -> Option<String>) {
        for entry in &self.table.entries {
            let key = entry.key.as_str();
            if self.asked.contains(&key) {
                continue;
            }
            let place = if self.path.is_empty() { String::new() } else { format!(" in {}", self.path) };
            let more = hint(key).or_else(|| closest(key, &self.asked).map(|known| format!("did you mean {known:?}?")));
            let more = more.map(|more| format!("; {more}")).unwrap_or_default();
            self.sink.add(entry.at, format!("unknown key {}{place}{more}", quoted(key)));
        }
    }

    fn field(&self, entry: &'a Entry) -> Field<'a> {
        Field { path: self.path_of(&entry.key), key_at: entry.at, node: &entry.node, sink: self.sink }
    }
}

/// A dotted name, each part quoted where it would not stand bare in TOML.
pub(super) fn joined(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let key = if bare { key.to_owned() } else { quoted(key) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// The known key that somebody may have meant.
fn closest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = |known: &&'k str| (strsim::damerau_levenshtein(&key.to_lowercase().replace('-', "_"), known), *known);
    let (distance, best) = known.iter().map(near).min()?;
    (distance <= (best.len() / 3).max(1)).then_some(best)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::file::{Syntax, parse};

    fn faults(text: &str, read: impl FnOnce(Reader<'_>)) -> String {
        let sink = Sink::default();
        let table = parse(text, Syntax::Toml, &sink).unwrap();
        read(Reader::root(&table, &sink));
        sink.finish(Path::new("f"), None::<()>).unwrap_err().to_string()
    }

    #[test]
    fn a_key_nobody_asked_for_is_named_with_its_place_and_the_likely_word() {
        let text = "memroy = \"1g\"\n\"x y\" = 1\n[t]\nidle-stop = 1\nq = 2\n";
        let said = faults(text, |mut r| {
            r.get("memory");
            let mut t = r.table("t").unwrap();
            t.get("idle_stop");
            t.finish();
            r.finish();
        });
        assert_eq!(
            said,
            "f:1:1: unknown key \"memroy\"; did you mean \"memory\"?\nf:2:1: unknown key \"x y\"\n\
             f:4:1: unknown key \"idle-stop\" in t; did you mean \"idle_stop\"?\nf:5:1: unknown key \"q\" in t"
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_or_size_is_named_with_its_place() {
        let said = faults("a = 1\nb = \"x\"\nc = 9\nd = [\"x\", 2]\ne = nan\n", |mut r| {
            r.get("a").unwrap().string();
            r.get("b").unwrap().boolean();
            r.get("c").unwrap().integer::<u8>(1, 8);
            r.get("d").unwrap().texts(|text| Ok(text.to_owned()));
            r.get("e").unwrap().number(0.0, 1.0);
        });
        assert_eq!(
            said,
            "f:1:5: a must be a string, not a number\nf:2:5: b must be true or false, not a string\n\
             f:3:5: c must be from 1 to 8, not 9\nf:4:11: d[1] must be a string, not a number\n\
             f:5:5: e must be from 0 to 1, not NaN"
        );
    }

    #[test]
    fn names_that_are_not_bare_are_quoted_in_paths() {
        assert_eq!(joined("servers", "My.Srv (dev)"), "servers.\"My.Srv (dev)\"");
        assert_eq!(joined("", "a-b_C"), "a-b_C");
        assert_eq!(joined("a", ""), "a.\"\"");
    }
}
