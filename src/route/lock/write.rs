//! From a [`Lock`] to the text of its file. Pure.
//!
//! Written by hand rather than by a serializer, because the lines matter: a review is a diff of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::value::RawValue;

use super::{Definition, Kind, Lock, LockedServer, VERSION, one_line};

impl Lock {
    /// The text of the file.
    pub fn to_text(&self) -> String {
        let mut out = format!("{{\n  \"version\": {VERSION},\n  \"servers\": {{");
        for (at, (name, server)) in self.servers.iter().enumerate() {
            out.push_str(if at == 0 { "\n" } else { ",\n" });
            let _ = write!(out, "    {}: {{", quoted(name));
            members(&mut out, server);
            out.push_str("\n    }");
        }
        out.push_str(if self.servers.is_empty() { "}\n}\n" } else { "\n  }\n}\n" });
        out
    }
}

fn members(out: &mut String, server: &LockedServer) {
    let mut first = true;
    let mut member = |key: &str, value: &str| {
        let comma = if std::mem::take(&mut first) { "" } else { "," };
        let _ = write!(out, "{comma}\n      \"{key}\": {value}");
    };
    let mut text = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            member(key, &quoted(value));
        }
    };
    text("kind", Some(&server.kind));
    text("package", server.package.as_deref());
    text("version", server.version.as_deref());
    text("integrity", server.integrity.as_deref());
    text("image", server.image.as_deref());
    text("content", server.content.as_deref());
    text("config", Some(&server.config));
    member("settings", &settings(&server.settings));
    member("revision", &quoted(&server.revision));
    member("capabilities", one_line(&server.capabilities).get());
    if let Some(instructions) = &server.instructions {
        member("instructions", &quoted(instructions));
    }
    member("offer_hash", &quoted(&server.offer_hash()));
    member("tools", &lines(server.tools.iter().map(definition)));
    for (key, kind) in [("prompts", Kind::Prompt), ("templates", Kind::Template)] {
        if !server.definitions(kind).is_empty() {
            member(key, &lines(server.definitions(kind).iter().map(definition)));
        }
    }
    if !server.tree.is_empty() {
        member("tree_hash", &quoted(&server.tree_hash()));
        member("tree", &lines(server.tree.iter().map(|package| one_line(package).get().to_owned())));
    }
}

/// One setting a line.
fn settings(settings: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> =
        settings.iter().map(|(key, value)| format!("        {}: {}", quoted(key), quoted(value))).collect();
    if lines.is_empty() { "{}".to_owned() } else { format!("{{\n{}\n      }}", lines.join(",\n")) }
}

/// One item a line, whatever is in it.
fn lines(items: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = items.map(|item| format!("        {item}")).collect();
    if lines.is_empty() { "[]".to_owned() } else { format!("[\n{}\n      ]", lines.join(",\n")) }
}

fn definition(one: &Definition) -> String {
    let definition: &RawValue = &one.definition;
    let (name, hash) = (quoted(&one.name), quoted(&one.hash));
    format!("{{\"name\":{name},\"hash\":{hash},\"definition\":{}}}", definition.get())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
