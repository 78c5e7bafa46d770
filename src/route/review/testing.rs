//! Servers for tests.

use serde_json::value::RawValue;

use super::{Definition, Kind, LockedServer};

pub(crate) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

pub(crate) fn tool(definition: &str) -> Definition {
    Definition::new(Kind::Tool, &raw(definition)).unwrap()
}

/// A package with these tools, each as its definition.
pub(crate) fn server(tools: &[&str]) -> LockedServer {
    let settings = [("network", "none"), ("memory", "512m"), ("share", "principal")];
    LockedServer {
        kind: "package".to_owned(),
        package: Some("npx:notes".to_owned()),
        version: Some("1.2.0".to_owned()),
        integrity: Some("sha512-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_owned()),
        image: Some(format!("sha256:{}", "1".repeat(64))),
        content: Some("c".repeat(64)),
        config: "d".repeat(64),
        settings: settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        revision: "2025-11-25".to_owned(),
        capabilities: raw(r#"{"tools":{"listChanged":true}}"#),
        instructions: None,
        tools: tools.iter().map(|definition| tool(definition)).collect(),
        prompts: Vec::new(),
        templates: Vec::new(),
        tree: Vec::new(),
    }
}

/// A package of a tree.
pub(crate) fn package(name: &str, version: &str, hash: &str) -> Box<RawValue> {
    raw(&format!(r#"{{"name":"{name}","version":"{version}","integrity":"{hash}"}}"#))
}

/// The same server before and after something was done to it.
pub(crate) fn after(before: &LockedServer, change: impl FnOnce(&mut LockedServer)) -> LockedServer {
    let mut now = before.clone();
    change(&mut now);
    now
}
