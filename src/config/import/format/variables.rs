//! `${…}` as other clients write it, in our words. Knows nothing of what a text is for.

use super::{table, variable, wrong};
use crate::config::env::is_name;
use crate::config::fault::quoted;
use crate::config::file::{Node, Table, Value};

/// What a client puts in place of these has no meaning where it does not run. Some could be variables by their letters.
const CLIENTS_OWN: [&str; 11] = [
    "workspaceFolder",
    "workspaceFolderBasename",
    "workspaceRoot",
    "rootPath",
    "cwd",
    "file",
    "relativeFile",
    "extensionPath",
    "CLAUDE_PLUGIN_ROOT",
    "CLAUDE_PLUGIN_DATA",
    "CLAUDE_PROJECT_DIR",
];

/// What the client asks its user for, by id.
#[derive(Default)]
pub(super) struct Inputs(Vec<(String, Input)>);

enum Input {
    /// A text; with what stands in for it, where that is no secret.
    Asked(Option<String>),
    /// What a command of the client gives.
    Command,
}

// === impl Inputs ===

impl Inputs {
    /// Reads `inputs`.
    pub(super) fn read(node: Option<&Node>) -> Result<Self, String> {
        let Some(node) = node else { return Ok(Inputs::default()) };
        let Value::List(items) = &node.value else { return Err(wrong("inputs", "a list", node)) };
        items.iter().map(input).collect::<Result<_, _>>().map(Inputs)
    }

    /// The text in our words. What it says of inputs goes to the notes.
    pub(super) fn apply(&self, text: &str, notes: &mut Vec<String>) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, inside)) = rest.split_once("${") {
            out.push_str(before);
            let Some((inside, after)) = inside.split_once('}') else {
                return Err("a \"${\" is not closed".to_owned());
            };
            out.push_str(&self.one(inside, notes)?);
            rest = after;
        }
        Ok(out + rest)
    }

    /// What stands between the braces.
    fn one(&self, inside: &str, notes: &mut Vec<String>) -> Result<String, String> {
        if let Some(id) = inside.strip_prefix("input:") {
            return self.input(id, notes);
        }
        let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
        let name = name.strip_prefix("env:").unwrap_or(name);
        match inside {
            "userHome" => Ok("${HOME}".to_owned()),
            "/" | "pathSeparator" => Ok("/".to_owned()),
            file if file.starts_with("file:/") => Ok(format!("${{{inside}}}")),
            _ if is_name(name) && !CLIENTS_OWN.contains(&name) => Ok(format!("${{{inside}}}")),
            // Not what stands behind it: that may be anything.
            _ => {
                let word = inside.split(':').next().unwrap_or_default();
                Err(format!("a \"${{…}}\" that begins with {} has no meaning outside of that client", quoted(word)))
            }
        }
    }

    fn input(&self, id: &str, notes: &mut Vec<String>) -> Result<String, String> {
        let shown = quoted(id);
        let known = self.0.iter().find(|(own, _)| own == id).map(|(_, input)| input);
        let name = variable(id)?;
        let default = match known.ok_or_else(|| format!("the input {shown} is not declared"))? {
            Input::Command => return Err(format!("the input {shown} is what a command of the client gives")),
            Input::Asked(default) => default.as_deref().filter(|text| !text.contains(['}', '$'])),
        };
        let note = format!("what the client asked for as {shown} is the variable {name}");
        if !notes.contains(&note) {
            notes.push(note);
        }
        Ok(default.map_or_else(|| format!("${{{name}}}"), |default| format!("${{{name}:-{default}}}")))
    }
}

fn input(node: &Node) -> Result<(String, Input), String> {
    let entry = table(node).ok_or_else(|| wrong("inputs", "a list of tables", node))?;
    let text = |key: &str| match entry.get(key).map(|entry| &entry.node.value) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    let id = text("id").ok_or_else(|| wrong("inputs", "a list of tables with an id", node))?;
    let input = match text("type").as_deref() {
        Some("promptString") if is_true(entry, "password") => Input::Asked(None),
        Some("promptString" | "pickString") => Input::Asked(text("default")),
        Some("command") => Input::Command,
        _ => return Err(format!("the input {} is none of promptString, pickString, command", quoted(&id))),
    };
    Ok((id, input))
}

fn is_true(table: &Table, key: &str) -> bool {
    matches!(table.get(key).map(|entry| &entry.node.value), Some(Value::Boolean(true)))
}
