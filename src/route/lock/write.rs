//! From a [`Lock`] to the text of its file. Pure.
//!
//! Written by hand rather than by a serializer, because the lines matter: a review is a diff of them.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use super::{Lock, LockedServer, LockedTool, VERSION, one_line};

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
    text("config", Some(&server.config));
    text("revision", Some(&server.revision));
    member("capabilities", one_line(&server.capabilities).get());
    member("tools_hash", &quoted(&server.tools_hash()));
    member("tools", &tools(&server.tools));
}

fn tools(tools: &[LockedTool]) -> String {
    if tools.is_empty() {
        return "[]".to_owned();
    }
    let lines: Vec<String> = tools.iter().map(tool).collect();
    format!("[\n{}\n      ]", lines.join(",\n"))
}

/// One line, whatever is in it.
fn tool(tool: &LockedTool) -> String {
    let definition: &RawValue = &tool.definition;
    let (name, hash) = (quoted(&tool.name), quoted(&tool.hash));
    format!("        {{\"name\":{name},\"hash\":{hash},\"definition\":{}}}", definition.get())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
