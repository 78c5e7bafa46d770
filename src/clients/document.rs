//! A client's text, parsed with the place of every value, and held to be what it must be. Changes nothing.

use std::collections::HashMap;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, parse_to_ast};

use crate::config::fault::Place;
use crate::config::file::{JSON, place};

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where.
    pub at: Place,
    /// What: lower case, no value of the file.
    pub what: String,
}

/// The byte order mark of a text, and the text.
pub(super) fn split(text: &str) -> (&str, &str) {
    text.split_at(if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 })
}

/// The object that a text (without its byte order mark) holds; `None` where it holds nothing but comments.
pub(super) fn root(text: &str) -> Result<Option<Object<'_>>, Wrong> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &JSON).map_err(|error| {
        let message = error.kind().to_string();
        let mut chars = message.chars();
        let what = chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default();
        Wrong { at: place(text, error.range().start), what }
    })?;
    match parsed.value {
        None => Ok(None),
        Some(value) => {
            each_key_once(text, &value)?;
            match value {
                Value::Object(object) => Ok(Some(object)),
                other => Err(wrong(text, &other, "the file must hold an object, { … }".to_owned())),
            }
        }
    }
}

/// Clients differ in which of two they take.
fn each_key_once(text: &str, value: &Value<'_>) -> Result<(), Wrong> {
    match value {
        Value::Object(object) => {
            let mut seen = HashMap::new();
            for property in &object.properties {
                let name = property.name.as_str();
                if let Some(first) = seen.insert(name, property.range.start) {
                    let what = format!("duplicate key {name:?}, first in line {}", place(text, first).line);
                    return Err(Wrong { at: place(text, property.range.start), what });
                }
                each_key_once(text, &property.value)?;
            }
            Ok(())
        }
        Value::Array(array) => array.elements.iter().try_for_each(|value| each_key_once(text, value)),
        _ => Ok(()),
    }
}

/// An object in an object; `None` where there is no such key.
pub(super) fn member<'a, 't>(text: &str, object: &'a Object<'t>, key: &str) -> Result<Option<&'a Object<'t>>, Wrong> {
    match find(object, key) {
        None => Ok(None),
        Some(property) => match &property.value {
            Value::Object(object) => Ok(Some(object)),
            other => Err(wrong(text, other, format!("{key:?} must be an object, {{ … }}"))),
        },
    }
}

/// The property of that key.
pub(super) fn find<'a, 't>(object: &'a Object<'t>, key: &str) -> Option<&'a ObjectProp<'t>> {
    object.properties.iter().find(|property| property.name.as_str() == key)
}

fn wrong(text: &str, value: &Value<'_>, what: String) -> Wrong {
    Wrong { at: place(text, value.start()), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        let wrong = root(text).unwrap_err();
        format!("{}:{}: {}", wrong.at.line, wrong.at.column, wrong.what)
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place() {
        assert_eq!(said("{\n  \"a\": [1,"), "2:8: unterminated array");
        assert_eq!(said("{\"a\": 1}\n{}"), "2:1: text cannot contain more than one JSON value");
        assert_eq!(said("// x\n[]"), "2:1: the file must hold an object, { … }");
        assert_eq!(said("{\"a\": {\"b\": 1,\n\"\\u0062\": 2}}"), "2:1: duplicate key \"b\", first in line 1");
        assert_eq!(said("[{\"x\":1,\"x\":2}]"), "1:9: duplicate key \"x\", first in line 1");
        assert!(said(&"[".repeat(100_000)).ends_with("maximum nesting depth exceeded"));
        for text in ["{a: 1}", "{'a': 1}", "{\"a\": 1 \"b\": 2}", "{\"a\": NaN}", "\0\0\0"] {
            assert!(root(text).is_err(), "{text}");
        }
        for empty in ["", " \r\n", "// only\n", "/* a */"] {
            assert_eq!(root(empty), Ok(None), "{empty}");
        }
    }

    #[test]
    fn what_is_no_object_where_one_must_be_is_told_without_its_value() {
        for value in ["[]", "null", "\"s3cr3t\"", "1", "true"] {
            let text = format!("{{\n \"mcpServers\": {value}}}");
            let root = root(&text).unwrap().unwrap();
            let wrong = member(&text, &root, "mcpServers").unwrap_err();
            assert_eq!((wrong.at.line, wrong.at.column), (2, 16));
            assert_eq!(wrong.what, "\"mcpServers\" must be an object, { … }");
        }
    }
}
