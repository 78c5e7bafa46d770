//! TOML text into the tree. Knows nothing of our keys.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::lines::Lines;
use super::{Entry, Node, Table, Value};
use crate::config::fault::{Place, Sink};

/// Reads a document; every fault that the parser finds goes to the sink.
pub(super) fn parse(text: &str, sink: &Sink) -> Option<Table> {
    let reading = Reading { lines: Lines::of(text), sink };
    let (document, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(reading.table(document.get_ref()));
    }
    for error in errors {
        let span = error.span().unwrap_or_default();
        let mut message = error.message().to_owned();
        if message == "duplicate key" {
            let key = text.get(span.clone()).unwrap_or_default().trim_matches(['"', '\'']);
            message = format!("duplicate key {key:?}");
        }
        sink.add(reading.lines.place(span.start), message);
    }
    None
}

struct Reading<'a> {
    lines: Lines<'a>,
    sink: &'a Sink,
}

impl Reading<'_> {
    fn table(&self, table: &DeTable<'_>) -> Table {
        // The parser sorts keys by name; the spans bring the order of the file back.
        let mut keys: Vec<_> = table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| Entry {
            key: key.get_ref().to_string(),
            at: self.lines.place(key.span().start),
            node: self.node(value),
        };
        Table { entries: keys.into_iter().map(entry).collect() }
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let at = self.lines.place(value.span().start);
        let value = match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                parsed.map_or_else(|_| self.too_large(at), Value::Integer)
            }
            DeValue::Float(number) => number.as_str().parse().map_or_else(|_| self.too_large(at), Value::Float),
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(items) => Value::List(items.iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node { value, at }
    }

    fn too_large(&self, at: Place) -> Value {
        self.sink.add(at, "number out of range");
        Value::Null
    }
}
