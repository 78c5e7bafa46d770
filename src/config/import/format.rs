//! Which kind of file it is, by its shape, and the entries in it, brought into the one form that is translated. Knows
//! nothing of what an entry then means.

use crate::config::fault::{Place, quoted};
use crate::config::file::{Node, Table, Value};
use crate::config::reader::joined;

mod client;
mod registry;
mod variables;

use variables::Inputs;

/// Who wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `claude_desktop_config.json`.
    ClaudeDesktop,
    /// `.mcp.json`, `~/.claude.json`.
    ClaudeCode,
    /// `.cursor/mcp.json`.
    Cursor,
    /// `.vscode/mcp.json`, or `settings.json` with `mcp.servers`.
    VsCode,
    /// `mcp_config.json`.
    Windsurf,
    /// `settings.json` with `context_servers`.
    Zed,
    /// `cline_mcp_settings.json`.
    Cline,
    /// `server.json` of the registry.
    ServerJson,
}

impl Format {
    /// Every format under its word.
    pub const WORDS: [(&str, Format); 8] = [
        ("claude-desktop", Format::ClaudeDesktop),
        ("claude-code", Format::ClaudeCode),
        ("cursor", Format::Cursor),
        ("vscode", Format::VsCode),
        ("windsurf", Format::Windsurf),
        ("zed", Format::Zed),
        ("cline", Format::Cline),
        ("server-json", Format::ServerJson),
    ];

    /// The format of a word.
    pub fn parse(word: &str) -> Result<Self, String> {
        let found = Self::WORDS.iter().find(|(own, _)| *own == word).map(|(_, format)| *format);
        found.ok_or_else(|| format!("is none of {}", Self::WORDS.map(|(word, _)| word).join(", ")))
    }

    fn may_have(self, shape: Shape) -> bool {
        match self {
            Format::VsCode => matches!(shape, Shape::Servers | Shape::Settings),
            Format::Zed => shape == Shape::ContextServers,
            Format::ServerJson => shape == Shape::Registry,
            _ => shape == Shape::McpServers,
        }
    }
}

/// How a file holds its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// `mcpServers`, and `projects.*.mcpServers`.
    McpServers,
    /// `servers` and `inputs`.
    Servers,
    /// The same in `mcp`.
    Settings,
    /// `context_servers`.
    ContextServers,
    /// `packages` and `remotes` of one server.
    Registry,
}

const SHAPES: [Shape; 5] = [Shape::McpServers, Shape::Servers, Shape::Settings, Shape::ContextServers, Shape::Registry];

/// An entry as it was found.
pub(super) struct Candidate {
    /// Its name as written.
    pub(super) written: String,
    /// The dotted name of its place in the file.
    pub(super) place: String,
    /// In the form that is translated, or why it cannot be brought into it.
    pub(super) entry: Result<Table, String>,
    /// What was left out on the way.
    pub(super) notes: Vec<String>,
    /// As it stands in the file, for those who look for secrets in it.
    pub(super) original: Node,
}

/// The kind of file, and its entries.
pub(super) fn find(root: &Table, from: Option<Format>) -> Result<(&'static str, Vec<Candidate>), String> {
    let there: Vec<Shape> = SHAPES.into_iter().filter(|shape| shape.is_in(root)).collect();
    let fitting: Vec<Shape> =
        there.iter().copied().filter(|shape| from.is_none_or(|from| from.may_have(*shape))).collect();
    match *fitting.as_slice() {
        [shape] => Ok((shape.word(), shape.candidates(root)?)),
        [] => {
            let looked: Vec<&str> =
                SHAPES.iter().filter(|shape| from.is_none_or(|from| from.may_have(**shape))).map(Shape::word).collect();
            Err(format!("holds no servers in a form that is known; looked for: {}", looked.join("; ")))
        }
        _ => {
            let words: Vec<&str> = fitting.iter().map(Shape::word).collect();
            Err(format!("could be read in more than one way; say which with --from: {}", words.join("; ")))
        }
    }
}

// === impl Shape ===

impl Shape {
    /// What makes it out, in words.
    fn word(&self) -> &'static str {
        match self {
            Shape::McpServers => "\"mcpServers\" (Claude, Cursor, Windsurf, Cline)",
            Shape::Servers => "\"servers\" (VS Code)",
            Shape::Settings => "\"mcp\" with \"servers\" (VS Code's settings)",
            Shape::ContextServers => "\"context_servers\" (Zed)",
            Shape::Registry => "\"packages\" or \"remotes\" (server.json)",
        }
    }

    fn is_in(self, root: &Table) -> bool {
        match self {
            Shape::McpServers => root.get("mcpServers").is_some() || projects(root).next().is_some(),
            Shape::Servers => root.get("servers").is_some(),
            Shape::Settings => root.get("mcp.servers").is_some() || settings(root).is_some(),
            Shape::ContextServers => root.get("context_servers").is_some(),
            Shape::Registry => registry::server(root).is_some(),
        }
    }

    fn candidates(self, root: &Table) -> Result<Vec<Candidate>, String> {
        let none = Inputs::default();
        match self {
            Shape::McpServers => {
                let mut found = Vec::new();
                if let Some(entry) = root.get("mcpServers") {
                    found.extend(client::entries("mcpServers", &entry.node, &none, &[])?);
                }
                for (project, table) in projects(root) {
                    let off = client::texts(table, "disabledMcpServers")?;
                    if let Some(entry) = table.get("mcpServers") {
                        let place = format!("{}.mcpServers", joined("projects", project));
                        found.extend(client::entries(&place, &entry.node, &none, &off)?);
                    }
                }
                Ok(found)
            }
            Shape::Servers => {
                let inputs = Inputs::read(root.get("inputs").map(|entry| &entry.node))?;
                let servers = root.get("servers").map(|entry| &entry.node);
                servers.map_or(Ok(Vec::new()), |servers| client::entries("servers", servers, &inputs, &[]))
            }
            Shape::Settings => {
                let within = |key: &str| {
                    let flat = root.get(&format!("mcp.{key}"));
                    flat.or_else(|| settings(root)?.get(key)).map(|entry| &entry.node)
                };
                let inputs = Inputs::read(within("inputs"))?;
                within("servers").map_or(Ok(Vec::new()), |node| client::entries("mcp.servers", node, &inputs, &[]))
            }
            Shape::ContextServers => {
                let servers = root.get("context_servers").map(|entry| &entry.node);
                servers.map_or(Ok(Vec::new()), |servers| client::entries("context_servers", servers, &none, &[]))
            }
            Shape::Registry => Ok(registry::server(root).map(registry::candidate).into_iter().collect()),
        }
    }
}

/// The projects that have servers of their own.
fn projects(root: &Table) -> impl Iterator<Item = (&str, &Table)> {
    let all = root.get("projects").and_then(|entry| table(&entry.node));
    let entries = all.map(|all| all.entries.as_slice()).unwrap_or_default();
    let with_servers = |table: &&Table| table.get("mcpServers").is_some();
    entries.iter().filter_map(move |entry| Some((entry.key.as_str(), table(&entry.node).filter(with_servers)?)))
}

fn settings(root: &Table) -> Option<&Table> {
    table(&root.get("mcp")?.node).filter(|mcp| mcp.get("servers").is_some())
}

fn table(node: &Node) -> Option<&Table> {
    match &node.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

/// What is wrong with a value that should be something else.
fn wrong(place: &str, must: &str, node: &Node) -> String {
    let Place { line, column } = node.at;
    format!("{place} (line {line}, column {column}) must be {must}, not {}", node.value.kind())
}

/// The name of a variable from words that somebody chose, such as `github-token`.
fn variable(words: &str) -> Result<String, String> {
    let mut name = String::new();
    for c in words.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c.to_ascii_uppercase()),
            _ if name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    let name = name.trim_matches('_');
    let first = name.chars().next().ok_or_else(|| format!("{} gives no name for a variable", quoted(words)))?;
    Ok(if first.is_ascii_digit() { format!("_{name}") } else { name.to_owned() })
}
