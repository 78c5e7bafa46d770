//! `server.json`, as the registry describes a server, in the form that is translated. Knows nothing of registries.
//!
//! A description has holes: what whoever runs the server has to say. A required one becomes a variable, an optional one
//! is left out.

use super::variables::Inputs;
use super::{Candidate, table, variable, wrong};
use crate::config::fault::quoted;
use crate::config::file::{Entry, Node, Table, Value};
use crate::config::import::tree;

/// What a package may say; the older words are of before the names were settled.
const PACKAGE: [&str; 18] = [
    "registryType",
    "registry_type",
    "registryBaseUrl",
    "registry_base_url",
    "identifier",
    "version",
    "fileSha256",
    "file_sha256",
    "runtimeHint",
    "runtime_hint",
    "transport",
    "runtimeArguments",
    "runtime_arguments",
    "packageArguments",
    "package_arguments",
    "environmentVariables",
    "environment_variables",
    "_meta",
];

/// The registries that our runners ask.
const USUAL: [&str; 7] = [
    "https://registry.npmjs.org",
    "https://registry.npmjs.com",
    "https://pypi.org",
    "https://pypi.org/simple",
    "https://docker.io",
    "https://index.docker.io",
    "https://ghcr.io",
];

/// The description in a file, with or without what a registry wraps around it.
pub(super) fn server(root: &Table) -> Option<&Table> {
    let described = |table: &&Table| {
        let list = |key| matches!(table.get(key).map(|e| &e.node.value), Some(Value::List(_)));
        list("packages") || list("remotes")
    };
    let wrapped = root.get("server").and_then(|entry| table(&entry.node));
    Some(root).filter(described).or(wrapped.filter(described))
}

/// The one server of a description.
pub(super) fn candidate(server: &Table) -> Candidate {
    let full = string(server, "name").unwrap_or_default();
    let written = full.rsplit('/').next().unwrap_or_default().to_owned();
    let at = server.entries.first().map_or(crate::config::fault::Place { line: 1, column: 1 }, |entry| entry.at);
    let mut notes = Vec::new();
    let (place, entry) = match chosen(server, &mut notes) {
        Ok((place, Way::Package(package))) => {
            let mut making = Making { name: &written, notes: &mut notes };
            (place, making.package(package))
        }
        Ok((place, Way::Remote(remote))) => {
            let mut making = Making { name: &written, notes: &mut notes };
            (place, making.remote(remote))
        }
        Err(why) => ("packages".to_owned(), Err(why)),
    };
    let original = Node { value: Value::Table(server.clone()), at };
    Candidate { written, place, entry, notes, original }
}

/// One of the ways in which a server is offered.
enum Way<'t> {
    Package(&'t Table),
    Remote(&'t Table),
}

/// The first way that can be gone, with its place.
fn chosen<'t>(server: &'t Table, notes: &mut Vec<String>) -> Result<(String, Way<'t>), String> {
    let packages = list(server, &["packages"])?;
    let remotes = list(server, &["remotes"])?;
    let fits = |package: &&(String, &Table)| {
        let kind = string(package.1, "registryType").or_else(|| string(package.1, "registry_type"));
        kind.is_some_and(|kind| ["npm", "pypi", "oci"].contains(&kind)) && transport(package.1) == "stdio"
    };
    let others = packages.len() + remotes.len();
    let way = match (packages.iter().find(fits), remotes.first()) {
        (Some((place, package)), _) => (place.clone(), Way::Package(package)),
        (None, Some((place, remote))) => (place.clone(), Way::Remote(remote)),
        (None, None) => {
            let why = "none of its packages is of npm, pypi or oci and speaks over stdio";
            return Err(why.to_owned());
        }
    };
    if others > 1 {
        notes.push(format!("it is offered in {others} ways, of which {} is taken", way.0));
    }
    Ok(way)
}

fn transport(package: &Table) -> &str {
    let kind = package.get("transport").and_then(|entry| table(&entry.node)).map(|t| string(t, "type"));
    kind.map_or("stdio", Option::unwrap_or_default)
}

/// An entry in the making.
struct Making<'a> {
    name: &'a str,
    notes: &'a mut Vec<String>,
}

impl Making<'_> {
    fn package(&mut self, package: &Table) -> Result<Table, String> {
        if let Some(odd) = package.entries.iter().find(|entry| !PACKAGE.contains(&entry.key.as_str())) {
            return Err(format!("unknown key {} in the package", quoted(&odd.key)));
        }
        if package.get("fileSha256").or_else(|| package.get("file_sha256")).is_some() {
            return Err("\"fileSha256\" cannot be kept: packages are held by the registry's own hash".to_owned());
        }
        let either = |new, old| string(package, new).or_else(|| string(package, old));
        let base = either("registryBaseUrl", "registry_base_url").map(|base| base.trim_end_matches('/'));
        if base.is_some_and(|base| !USUAL.contains(&base)) {
            return Err("\"registryBaseUrl\" is not the registry that packages come from".to_owned());
        }
        let identifier = string(package, "identifier").ok_or("the package has no identifier")?;
        let version = string(package, "version").filter(|version| !version.is_empty());
        let before = self.arguments(&list(package, &["runtimeArguments", "runtime_arguments"])?)?;
        let after = self.arguments(&list(package, &["packageArguments", "package_arguments"])?)?;
        let variables = list(package, &["environmentVariables", "environment_variables"])?;
        let (env, secrets) = self.environment(&variables)?;
        let pinned = |sign: &str| version.map_or_else(|| identifier.to_owned(), |v| format!("{identifier}{sign}{v}"));
        let (command, hint, first, named) = match either("registryType", "registry_type") {
            Some("npm") => ("npx", "npx", vec![], pinned("@")),
            Some("pypi") => ("uvx", "uvx", vec![], pinned("==")),
            _ => {
                let passed = env.entries.iter().chain(&secrets.entries);
                let flags = passed.flat_map(|variable| ["-e".to_owned(), variable.key.clone()]);
                let words = ["run", "-i", "--rm"].map(str::to_owned).into_iter().chain(flags).collect();
                let tagged = identifier.rsplit('/').next().is_some_and(|last| last.contains([':', '@']));
                ("docker", "docker", words, if tagged { identifier.to_owned() } else { pinned(":") })
            }
        };
        if either("runtimeHint", "runtime_hint").is_some_and(|given| given != hint) {
            return Err(format!("\"runtimeHint\" must be {hint:?}"));
        }
        let at = package.entries.first().map_or(crate::config::fault::Place { line: 1, column: 1 }, |entry| entry.at);
        let mut entry = Table::default();
        tree::set(&mut entry, "command", tree::text(command, at));
        let words = first.into_iter().chain(before).chain([named]).chain(after);
        tree::set(&mut entry, "args", tree::texts(words, at));
        tree::set(&mut entry, "env", Node { value: Value::Table(env), at });
        if !secrets.entries.is_empty()
            && let Some(inner) = tree::inner(&mut entry, "bulkhead", at)
        {
            tree::set(inner, "secrets", Node { value: Value::Table(secrets), at });
        }
        Ok(entry)
    }

    fn remote(&mut self, remote: &Table) -> Result<Table, String> {
        let mut entry = Table::default();
        for item in &remote.entries {
            match item.key.as_str() {
                "type" => tree::set(&mut entry, "type", item.node.clone()),
                "url" => {
                    let url = string(remote, "url").ok_or_else(|| wrong("url", "a string", &item.node))?;
                    let url = self.filled(url, remote)?;
                    tree::set(&mut entry, "url", tree::text(url, item.at));
                }
                "headers" | "variables" => {}
                other => return Err(format!("unknown key {} in the remote", quoted(other))),
            }
        }
        let at = remote.entries.first().map_or(crate::config::fault::Place { line: 1, column: 1 }, |entry| entry.at);
        let mut headers = Table::default();
        for (_, header) in list(remote, &["headers"])? {
            let name = string(header, "name").ok_or("a header has no name")?;
            let hole = format!("{}_{name}", self.name);
            if let Some(value) = self.value(header, &hole)? {
                tree::set(&mut headers, name, tree::text(value, at));
            }
        }
        if !headers.entries.is_empty() {
            tree::set(&mut entry, "headers", Node { value: Value::Table(headers), at });
        }
        Ok(entry)
    }

    /// The words of a command line.
    fn arguments(&mut self, arguments: &[(String, &Table)]) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        for (place, argument) in arguments {
            let name = string(argument, "name");
            let hint = name.or_else(|| string(argument, "valueHint")).or_else(|| string(argument, "value_hint"));
            let value = self.value(argument, &format!("{}_{}", self.name, hint.unwrap_or("argument")))?;
            match (string(argument, "type"), name, value) {
                (Some("positional"), _, value) => words.extend(value),
                (Some("named"), Some(name), Some(value)) => words.extend([name.to_owned(), value]),
                (Some("named"), Some(name), None) if !has_value(argument) => words.push(name.to_owned()),
                (Some("named"), Some(_), None) => {}
                _ => return Err(format!("{place} is neither a positional nor a named argument")),
            }
        }
        Ok(words)
    }

    /// Variables, and those that are secrets.
    fn environment(&mut self, variables: &[(String, &Table)]) -> Result<(Table, Table), String> {
        let (mut env, mut secrets) = (Table::default(), Table::default());
        let mut left = Vec::new();
        for (place, variable) in variables {
            let name = string(variable, "name").ok_or_else(|| format!("{place} has no name"))?;
            let at = variable.entries[0].at;
            let required = flag(variable, "isRequired", "is_required");
            if flag(variable, "isSecret", "is_secret") && string(variable, "value").is_none() {
                match required {
                    true => tree::set(&mut secrets, name, tree::text(format!("env:{name}"), at)),
                    false => left.push(quoted(name)),
                }
            } else if let Some(value) = self.value(variable, name)? {
                tree::set(&mut env, name, tree::text(value, at));
            } else {
                left.push(quoted(name));
            }
        }
        if !left.is_empty() {
            self.notes.push(format!("left out, since it is optional: {}", left.join(", ")));
        }
        Ok((env, secrets))
    }

    /// What is said for a value, or the variable of that name for one that has to be said; none where it need not be.
    fn value(&mut self, input: &Table, hole: &str) -> Result<Option<String>, String> {
        let said = string(input, "value").or_else(|| string(input, "default"));
        match said {
            Some(_) if flag(input, "isSecret", "is_secret") && !said.is_some_and(|text| text.contains('{')) => {
                Ok(Some(format!("${{{}}}", variable(hole)?)))
            }
            Some(text) => self.filled(text, input).map(Some),
            None if flag(input, "isRequired", "is_required") => Ok(Some(format!("${{{}}}", variable(hole)?))),
            None => Ok(None),
        }
    }

    /// A text with each `{name}` in it replaced by what its variable says.
    fn filled(&mut self, text: &str, input: &Table) -> Result<String, String> {
        let mut out = Inputs::default().apply(text, self.notes)?;
        let Some(variables) = input.get("variables").and_then(|entry| table(&entry.node)) else { return Ok(out) };
        for Entry { key, node, .. } in &variables.entries {
            let about = table(node).ok_or_else(|| wrong("variables", "a table of tables", node))?;
            let hole = format!("{}_{key}", self.name);
            let value = self.value(about, &hole)?;
            let value = value.map_or_else(|| variable(&hole).map(|name| format!("${{{name}}}")), Ok)?;
            out = out.replace(&format!("{{{key}}}"), &value);
        }
        Ok(out)
    }
}

/// Whether an argument is more than its name.
fn has_value(argument: &Table) -> bool {
    ["value", "valueHint", "value_hint", "default", "format", "choices", "isRequired"]
        .iter()
        .any(|key| argument.get(key).is_some())
}

fn string<'t>(from: &'t Table, key: &str) -> Option<&'t str> {
    match from.get(key).map(|entry| &entry.node.value) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn flag(from: &Table, new: &str, old: &str) -> bool {
    let entry = from.get(new).or_else(|| from.get(old));
    entry.is_some_and(|entry| entry.node.value == Value::Boolean(true))
}

/// The tables of a list under either name, each with its place.
fn list<'t>(from: &'t Table, keys: &[&str]) -> Result<Vec<(String, &'t Table)>, String> {
    let Some(entry) = keys.iter().find_map(|key| from.get(key)) else { return Ok(Vec::new()) };
    let Value::List(items) = &entry.node.value else { return Err(wrong(&entry.key, "a list", &entry.node)) };
    let item = |(index, node): (usize, &'t Node)| {
        let place = format!("{}[{index}]", entry.key);
        let found = table(node).filter(|table| !table.entries.is_empty());
        found.map(|table| (place, table)).ok_or_else(|| wrong(&entry.key, "a list of tables", node))
    };
    items.iter().enumerate().map(item).collect()
}
