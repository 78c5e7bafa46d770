//! Small works on trees of values. Knows no key.

use crate::config::fault::Place;
use crate::config::file::{Entry, Node, Table, Value};

/// A text at a place.
pub(super) fn text(text: impl Into<String>, at: Place) -> Node {
    Node { value: Value::String(text.into()), at }
}

/// A list of texts at a place.
pub(super) fn texts(texts: impl IntoIterator<Item = String>, at: Place) -> Node {
    Node { value: Value::List(texts.into_iter().map(|item| text(item, at)).collect()), at }
}

/// Sets a key, in the place of what it had.
pub(super) fn set(table: &mut Table, key: &str, node: Node) {
    let at = node.at;
    match table.entries.iter_mut().find(|entry| entry.key == key) {
        Some(entry) => entry.node = node,
        None => table.entries.push(Entry { key: key.to_owned(), at, node }),
    }
}

/// Takes a key out.
pub(super) fn remove(table: &mut Table, key: &str) -> Option<Entry> {
    let at = table.entries.iter().position(|entry| entry.key == key)?;
    Some(table.entries.remove(at))
}

/// The table of a key, which is made where it is not there.
pub(super) fn inner<'t>(table: &'t mut Table, key: &str, at: Place) -> Option<&'t mut Table> {
    if table.get(key).is_none() {
        set(table, key, Node { value: Value::Table(Table::default()), at });
    }
    match table.entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node.value) {
        Some(Value::Table(inner)) => Some(inner),
        _ => None,
    }
}

/// Goes through every text, keys left out.
pub(super) fn each<'n>(node: &'n Node, see: &mut dyn FnMut(&'n str)) {
    match &node.value {
        Value::String(text) => see(text),
        Value::List(items) => items.iter().for_each(|item| each(item, see)),
        Value::Table(table) => table.entries.iter().for_each(|entry| each(&entry.node, see)),
        _ => {}
    }
}

/// Changes every text, keys left out.
pub(super) fn change<E>(node: &mut Node, to: &mut dyn FnMut(&str) -> Result<String, E>) -> Result<(), E> {
    match &mut node.value {
        Value::String(text) => *text = to(text)?,
        Value::List(items) => items.iter_mut().try_for_each(|item| change(item, to))?,
        Value::Table(table) => table.entries.iter_mut().try_for_each(|entry| change(&mut entry.node, to))?,
        _ => {}
    }
    Ok(())
}
