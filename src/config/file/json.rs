//! JSON text, with comments and trailing commas, into the tree. Knows nothing of our keys.

use jsonc_parser::ast::{Object, Value as Ast};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::lines::Lines;
use super::{Entry, Node, Table, Value};
use crate::config::fault::Sink;

/// Comments and trailing commas are what editors write; nothing else is let through that is not JSON.
pub const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Reads a document, which must be an object.
pub(super) fn parse(text: &str, sink: &Sink) -> Option<Table> {
    let reading = Reading { lines: Lines::of(text), sink };
    match parse_to_ast(text, &CollectOptions::default(), &OPTIONS) {
        Ok(document) => match document.value {
            Some(Ast::Object(object)) => {
                let table = reading.table(&object);
                sink.is_empty().then_some(table)
            }
            other => {
                sink.add(reading.lines.place(other.map_or(0, |v| v.start())), "the file must hold an object, { … }");
                None
            }
        },
        Err(error) => {
            sink.add(reading.lines.place(error.range().start), lower_case(&error.kind().to_string()));
            None
        }
    }
}

/// The parser's messages begin with a capital; ours do not.
fn lower_case(message: &str) -> String {
    let mut chars = message.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

struct Reading<'a> {
    lines: Lines<'a>,
    sink: &'a Sink,
}

impl Reading<'_> {
    fn table(&self, object: &Object<'_>) -> Table {
        let mut table = Table::default();
        for property in &object.properties {
            let (key, at) = (property.name.as_str(), self.lines.place(property.start()));
            if let Some(first) = table.get(key) {
                self.sink.add(at, format!("duplicate key {key:?}, first in line {}", first.at.line));
                continue;
            }
            table.entries.push(Entry { key: key.to_owned(), at, node: self.node(&property.value) });
        }
        table
    }

    fn node(&self, value: &Ast<'_>) -> Node {
        let at = self.lines.place(value.start());
        let value = match value {
            Ast::StringLit(text) => Value::String(text.value.to_string()),
            Ast::NumberLit(number) => match (number.value.parse(), number.value.parse()) {
                (Ok(integer), _) => Value::Integer(integer),
                (_, Ok(float)) => Value::Float(float),
                _ => Value::Null,
            },
            Ast::BooleanLit(boolean) => Value::Boolean(boolean.value),
            Ast::NullKeyword(_) => Value::Null,
            Ast::Array(array) => Value::List(array.elements.iter().map(|item| self.node(item)).collect()),
            Ast::Object(object) => Value::Table(self.table(object)),
        };
        Node { value, at }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn fault(text: &str) -> String {
        let sink = Sink::default();
        let table = parse(text, &sink);
        sink.finish(Path::new("b.json"), table).unwrap_err().to_string()
    }

    #[test]
    fn comments_and_commas_inside_strings_are_text() {
        let sink = Sink::default();
        let table = parse("{ // x\r\n \"a\": [\"a//b\", \"c,]\",], /* \"b\": 1 */ }", &sink).unwrap();
        let Value::List(items) = &table.get("a").unwrap().node.value else { panic!("no list") };
        let texts: Vec<_> = items.iter().map(|i| i.value.clone()).collect();
        assert_eq!(texts, [Value::String("a//b".into()), Value::String("c,]".into())]);
        assert_eq!(table.entries.len(), 1);
    }

    #[test]
    fn a_text_that_ends_early_is_refused_with_the_place_that_stays_open() {
        assert_eq!(fault(r#"{"mcpServers": {"s1": {"command": "x"}"#), "b.json:1:16: unterminated object");
        assert_eq!(fault("{\n  \"a\": [1,"), "b.json:2:8: unterminated array");
        assert_eq!(fault("{\"a\": \"x"), "b.json:1:7: unterminated string literal");
        assert_eq!(fault(""), "b.json:1:1: the file must hold an object, { … }");
        assert_eq!(fault("// only\n[]"), "b.json:2:1: the file must hold an object, { … }");
    }

    #[test]
    fn a_key_twice_is_refused_wherever_it_stands() {
        assert_eq!(fault("{\"a\": 1,\n \"a\": 2}"), "b.json:2:2: duplicate key \"a\", first in line 1");
        assert_eq!(
            fault("{\"s\": {\"a\": {}, \"\\u0061\": {}}}"),
            "b.json:1:17: duplicate key \"a\", first in line 1",
            "an escape is the same key"
        );
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in
            ["{a: 1}", "{'a': 1}", "{\"a\": 0x10}", "{\"a\": 1 \"b\": 2}", "{\"a\": +1}", "{} {}", "{\"a\": NaN}"]
        {
            assert!(fault(text).starts_with("b.json:1:"), "{text}");
        }
    }
}
