//! Entries as TOML. Knows nothing of files.

use crate::config::file::{Node, Table, Value};
use crate::config::resolve::KEYS;

/// A server as a table of its own, its keys in the order in which they are documented.
pub(super) fn entry(name: &str, server: &Table) -> String {
    let place = |key: &str| KEYS.iter().position(|known| *known == key).unwrap_or(KEYS.len());
    let mut entries: Vec<_> = server.entries.iter().collect();
    entries.sort_by_key(|entry| place(&entry.key));
    let lines = entries.iter().map(|entry| format!("{} = {}\n", key(&entry.key), value(&entry.node.value)));
    format!("[servers.{}]\n{}", key(name), lines.collect::<String>())
}

fn key(text: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.chars().all(bare) { text.to_owned() } else { string(text) }
}

fn value(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(value) => value.to_string(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| self::value(&item.value)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) if table.entries.is_empty() => "{}".to_owned(),
        Value::Table(table) => {
            let pair = |entry: &crate::config::file::Entry| {
                format!("{} = {}", key(&entry.key), self::value(&entry.node.value))
            };
            format!("{{ {} }}", table.entries.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        // No entry that loads has one; what is written is read again before it replaces anything.
        Value::Null | Value::Date => "null".to_owned(),
    }
}

/// On one line, with nothing in it that is not seen: what moves a cursor or the direction of writing is an escape.
fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\'' | ' ' => out.push(c),
            c if c.escape_debug().len() == 1 => out.push(c),
            c if u32::from(c) > 0xffff => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Whether two values say the same, wherever they stand and in whatever order their keys are.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    let equal = |(a, b): (&Node, &Node)| same(&a.value, &b.value);
    match (one, other) {
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(equal),
        (Value::Table(a), Value::Table(b)) => {
            let there = |entry: &crate::config::file::Entry| {
                b.get(&entry.key).is_some_and(|other| equal((&entry.node, &other.node)))
            };
            a.entries.len() == b.entries.len() && a.entries.iter().all(there)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::fault::Sink;
    use crate::config::file::{Syntax, parse};

    proptest! {
        #[test]
        fn whatever_a_text_holds_it_is_read_back_the_same_and_is_one_line(text in any::<String>()) {
            let written = format!("{} = {}", key(&text), string(&text));
            prop_assert_eq!(written.lines().count(), 1);
            let read = parse(&written, Syntax::Toml, &Sink::default()).unwrap();
            prop_assert_eq!(&read.entries[0].key, &text);
            prop_assert!(same(&read.entries[0].node.value, &Value::String(text)));
        }
    }

    #[test]
    fn what_is_not_seen_is_an_escape() {
        assert_eq!(
            string("a\"\\\n\u{1b}[2J\u{202e}\u{200b}\u{e0041}é'"),
            r#""a\"\\\n\u001B[2J\u202E\u200B\U000E0041é'""#
        );
    }
}
