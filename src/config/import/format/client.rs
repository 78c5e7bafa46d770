//! The entries of clients, each with its own words for the same things, in the form that is translated. Knows nothing of
//! commands.
//!
//! A key that is not spoken of here goes on as it is; the translation refuses it by name if it does not know it either.

use super::variables::Inputs;
use super::{Candidate, table, wrong};
use crate::config::fault::{Place, quoted};
use crate::config::file::{Node, Table, Value};
use crate::config::import::tree;
use crate::config::reader::joined;

/// Other words for a key.
const CALLED: [(&str, &str); 3] = [("serverUrl", "url"), ("httpUrl", "url"), ("transportType", "type")];

/// Other words for a value of `type`.
const TYPES: [(&str, &str); 3] = [("local", "stdio"), ("remote", "http"), ("streamable_http", "http")];

/// Keys that ask for what cannot be kept.
const REFUSED: [(&str, &str); 8] = [
    ("envFile", "the file is not read; name its variables in \"env\", each as ${NAME}"),
    ("cwd", "a directory of the host is not there in a compartment; see \"mounts\""),
    ("oauth", "signing in to remote servers is not yet supported"),
    ("auth", "signing in to remote servers is not yet supported"),
    ("headersHelper", "no command of the host is run"),
    ("authProviderType", "signing in to remote servers is not yet supported"),
    ("settings", "the settings of an extension are its own; name the command it runs"),
    ("extension", "an extension of the editor runs it; name the command it runs"),
];

/// Every entry of a table of servers. `off` are those that are disabled elsewhere in the file.
pub(super) fn entries(place: &str, node: &Node, inputs: &Inputs, off: &[&str]) -> Result<Vec<Candidate>, String> {
    let servers = table(node).ok_or_else(|| wrong(place, "a table", node))?;
    let candidate = |entry: &crate::config::file::Entry| {
        let mut notes = Vec::new();
        let place = joined(place, &entry.key);
        let mut normal = normal(&place, &entry.node, inputs, &mut notes);
        if let (true, Ok(table)) = (off.contains(&entry.key.as_str()), &mut normal) {
            tree::set(table, "disabled", Node { value: Value::Boolean(true), at: entry.at });
        }
        Candidate { written: entry.key.clone(), place, entry: normal, notes, original: entry.node.clone() }
    };
    Ok(servers.entries.iter().map(candidate).collect())
}

/// The texts of a list, where there is one.
pub(super) fn texts<'t>(from: &'t Table, key: &str) -> Result<Vec<&'t str>, String> {
    let Some(entry) = from.get(key) else { return Ok(Vec::new()) };
    let Value::List(items) = &entry.node.value else { return Err(wrong(key, "a list", &entry.node)) };
    let text = |item: &'t Node| match &item.value {
        Value::String(text) => Ok(text.as_str()),
        _ => Err(wrong(key, "a list of strings", item)),
    };
    items.iter().map(text).collect()
}

/// One entry in the form that is translated.
fn normal(place: &str, node: &Node, inputs: &Inputs, notes: &mut Vec<String>) -> Result<Table, String> {
    let mut entry = table(node).ok_or_else(|| wrong(place, "a table", node))?.clone();
    for (theirs, ours) in CALLED {
        if let Some(found) = tree::remove(&mut entry, theirs) {
            if entry.get(ours).is_some() {
                return Err(format!("{theirs:?} and {ours:?} say the same twice"));
            }
            tree::set(&mut entry, ours, found.node);
        }
    }
    source(&mut entry)?;
    gives_itself_nothing(&entry)?;
    if let Some((key, why)) = REFUSED.iter().find(|(key, _)| entry.get(key).is_some()) {
        return Err(format!("{key:?} cannot be taken over: {why}"));
    }
    if let Some(Value::String(kind)) = entry.entries.iter_mut().find(|e| e.key == "type").map(|e| &mut e.node.value)
        && let Some((_, ours)) = TYPES.iter().find(|(theirs, _)| theirs == kind)
    {
        *kind = (*ours).to_owned();
    }
    whole_command(&mut entry)?;
    switched(&mut entry)?;
    tools(&mut entry, node.at)?;
    environment(&mut entry, notes);
    for key in ["sandboxEnabled", "sandbox"] {
        if tree::remove(&mut entry, key).is_some() {
            notes.push(format!("{key:?} is left out, since every server has its compartment"));
        }
    }
    let mut whole = Node { value: Value::Table(entry), at: node.at };
    tree::change(&mut whole, &mut |text| inputs.apply(text, notes))?;
    match whole.value {
        Value::Table(entry) => Ok(entry),
        _ => Err(wrong(place, "a table", node)),
    }
}

/// What lets more in or out than the defaults do, or reads what lies here.
const WIDENING: [&str; 9] =
    ["network", "egress", "host_ports", "egress_limits", "mounts", "writable_root", "user", "min_role", "secrets"];

/// A file of another client is no place from which reach is given: nobody has looked at it for that.
fn gives_itself_nothing(entry: &Table) -> Result<(), String> {
    let Some(Value::Table(inner)) = entry.get("bulkhead").map(|inner| &inner.node.value) else { return Ok(()) };
    match WIDENING.into_iter().find(|key| inner.get(key).is_some()) {
        Some(key) => Err(format!("it gives itself {key:?}; write that into the configuration yourself")),
        None => Ok(()),
    }
}

/// `source` says whether a command follows, or an extension's own.
fn source(entry: &mut Table) -> Result<(), String> {
    let Some(found) = tree::remove(entry, "source") else { return Ok(()) };
    match &found.node.value {
        Value::String(word) if word == "custom" => Ok(()),
        Value::String(word) if word == "extension" => Err(format!("\"source\" is \"extension\": {}", REFUSED[7].1)),
        Value::String(word) => Err(format!("\"source\" must be \"custom\", not {}", quoted(word))),
        _ => Err(wrong("source", "a string", &found.node)),
    }
}

/// `command = { path, args, env }` holds all of it.
fn whole_command(entry: &mut Table) -> Result<(), String> {
    let Some(Value::Table(command)) = entry.get("command").map(|command| &command.node.value) else { return Ok(()) };
    let command = command.clone();
    tree::remove(entry, "command");
    for part in command.entries {
        let key = match part.key.as_str() {
            "path" => "command",
            "args" => "args",
            "env" if part.node.value == Value::Null => continue,
            "env" => "env",
            "timeout" => "timeout",
            other => return Err(format!("unknown key {} in command", quoted(other))),
        };
        if entry.get(key).is_some() {
            return Err(format!("{key:?} stands in \"command\" and beside it"));
        }
        tree::set(entry, key, part.node);
    }
    Ok(())
}

/// `enabled = false` is `disabled = true`.
fn switched(entry: &mut Table) -> Result<(), String> {
    let Some(found) = tree::remove(entry, "enabled") else { return Ok(()) };
    match found.node.value {
        Value::Boolean(true) => Ok(()),
        Value::Boolean(false) => {
            tree::set(entry, "disabled", Node { value: Value::Boolean(true), at: found.at });
            Ok(())
        }
        _ => Err(wrong("enabled", "true or false", &found.node)),
    }
}

/// Tools that the client hides stay hidden.
fn tools(entry: &mut Table, at: Place) -> Result<(), String> {
    let lists = [("disabledTools", "deny"), ("excludeTools", "deny"), ("includeTools", "allow"), ("tools", "allow")];
    for (theirs, ours) in lists {
        let Some(found) = tree::remove(entry, theirs) else { continue };
        let own = Table { entries: vec![found] };
        let names: Vec<String> = texts(&own, theirs)?.into_iter().map(str::to_owned).collect();
        if (ours == "deny" && names.is_empty()) || (ours == "allow" && names == ["*"]) {
            continue;
        }
        let rules = tree::inner(entry, "bulkhead", at).and_then(|inner| tree::inner(inner, "tools", at));
        match rules {
            Some(rules) if rules.get(ours).is_none() => tree::set(rules, ours, tree::texts(names, at)),
            _ => return Err(format!("{theirs:?} says a second time which tools there are")),
        }
    }
    Ok(())
}

/// Numbers are the texts they are written as; what is null is not set.
fn environment(entry: &mut Table, notes: &mut Vec<String>) {
    let variables = entry.entries.iter_mut().find(|e| e.key == "env").map(|e| &mut e.node.value);
    let Some(Value::Table(variables)) = variables else { return };
    for variable in &mut variables.entries {
        if let Value::Integer(number) = variable.node.value {
            variable.node.value = Value::String(number.to_string());
        }
    }
    variables.entries.retain(|variable| {
        let set = variable.node.value != Value::Null;
        if !set {
            notes.push(format!("the variable {} is left out, since it is null", quoted(&variable.key)));
        }
        set
    });
}
