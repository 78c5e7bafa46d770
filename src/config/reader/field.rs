//! One value, read as what it should be. Knows nothing of what our keys mean.

use super::{Reader, joined};
use crate::config::fault::{Place, Sink, quoted};
use crate::config::file::{Node, Table, Value};

/// One value being read, with its full name.
#[derive(Clone)]
pub(in crate::config) struct Field<'a> {
    /// The dotted name, as messages give it.
    pub(in crate::config) path: String,
    /// Where its key stands.
    pub(in crate::config) key_at: Place,
    pub(super) node: &'a Node,
    pub(super) sink: &'a Sink,
}

impl<'a> Field<'a> {
    /// The same value under the name of another table.
    pub(in crate::config) fn under(mut self, table: &str, key: &str) -> Self {
        self.path = joined(table, key);
        self
    }

    /// Reads another table in the place of this value.
    pub(in crate::config) fn instead<'b>(&self, table: &'b Table) -> Reader<'b>
    where
        'a: 'b,
    {
        Reader::new(table, self.path.clone(), self.key_at, self.sink)
    }

    /// The value as it stands.
    pub(in crate::config) fn node(&self) -> &'a Node {
        self.node
    }

    /// Notes a fault of this value; the text goes on after the name.
    pub(in crate::config) fn fault(&self, text: impl AsRef<str>) {
        self.sink.add(self.node.at, format!("{} {}", self.path, text.as_ref()));
    }

    /// A text.
    pub(in crate::config) fn string(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::String(text) => Some(text),
            _ => self.expected("a string"),
        }
    }

    /// A text that a function understands; what it says otherwise goes on after the name.
    pub(in crate::config) fn parse<T>(&self, understand: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        understand(self.string()?).map_err(|why| self.fault(why)).ok()
    }

    /// One word of several.
    pub(in crate::config) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        self.parse(|text| {
            let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            found.ok_or_else(|| {
                let words: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
                format!("must be {}, not {}", words.join(" or "), quoted(text))
            })
        })
    }

    /// The one word that is served, where the contract has more.
    pub(in crate::config) fn only(&self, served: &str, later: &[&str]) {
        match self.string() {
            Some(text) if later.contains(&text) => self.later(text),
            Some(text) if text != served => {
                self.fault(format!("must be {served:?}, not {}", quoted(text)));
            }
            _ => {}
        }
    }

    /// Refuses a word of the contract that this version does not serve.
    pub(in crate::config) fn later(&self, text: &str) {
        self.sink.add(self.node.at, format!("not yet supported: {} = {text:?}", self.path));
    }

    /// `true` or `false`.
    pub(in crate::config) fn boolean(&self) -> Option<bool> {
        match self.node.value {
            Value::Boolean(value) => Some(value),
            _ => self.expected("true or false"),
        }
    }

    /// A whole number within bounds.
    pub(in crate::config) fn integer<T: TryFrom<i64>>(&self, least: i64, most: i64) -> Option<T> {
        let Value::Integer(number) = self.node.value else { return self.expected("a whole number") };
        let fits = (least..=most).contains(&number).then(|| T::try_from(number).ok()).flatten();
        if fits.is_none() {
            self.fault(format!("must be from {least} to {most}, not {number}"));
        }
        fits
    }

    /// A number within bounds.
    pub(in crate::config) fn number(&self, least: f64, most: f64) -> Option<f64> {
        let number = match self.node.value {
            Value::Integer(number) => number as f64,
            Value::Float(number) => number,
            _ => return self.expected("a number"),
        };
        if number >= least && number <= most {
            return Some(number);
        }
        self.fault(format!("must be from {least} to {most}, not {number}"));
        None
    }

    /// The items of a list.
    pub(in crate::config) fn list(&self) -> Option<Vec<Field<'a>>> {
        let Value::List(items) = &self.node.value else { return self.expected("a list") };
        let item = |(index, node): (usize, &'a Node)| Field {
            path: format!("{}[{index}]", self.path),
            key_at: node.at,
            node,
            sink: self.sink,
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// Whether this is a list without items.
    pub(in crate::config) fn is_empty_list(&self) -> bool {
        matches!(&self.node.value, Value::List(items) if items.is_empty())
    }

    /// A list of texts, each of which a function understands.
    pub(in crate::config) fn texts<T>(&self, understand: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        self.list().unwrap_or_default().iter().filter_map(|item| item.parse(&understand)).collect()
    }

    /// A table of its own.
    pub(in crate::config) fn table(&self) -> Option<Reader<'a>> {
        match &self.node.value {
            Value::Table(table) => Some(Reader::new(table, self.path.clone(), self.key_at, self.sink)),
            _ => self.expected("a table"),
        }
    }

    fn expected<T>(&self, what: &str) -> Option<T> {
        self.fault(format!("must be {what}, not {}", self.node.value.kind()));
        None
    }
}
