//! Takes the servers of another client's file over into a configuration: finds, translates, withholds secrets, and tries
//! each. Knows nothing of how that is shown.

use std::path::Path;

use super::format::{self, Candidate, Format};
use super::withhold::{Needed, Variables, Withholding, capitals, left, referred, secrets};
use super::{secret, translated, tree};
use crate::config::Run;
use crate::config::edit::{Added, Edit, server_name};
use crate::config::fault::{Place, Sink, quoted};
use crate::config::file::{Node, Syntax, Table, Value, parse};
use crate::config::reader::{Reader, joined};
use crate::name::ServerName;

#[cfg(test)]
mod tests;

/// More servers than anybody has; a file with more was made by a machine, and each is tried.
const MOST: usize = 1000;

/// What to do about a command that nothing is known of.
const ADVICE: &str = "give it an image in which it runs (\"bulkhead add NAME --image IMAGE -- COMMAND\"), or write it into \
                      the configuration yourself, as unisolated with the reason";

/// What becomes of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it was written.
    Taken,
    /// A command became a package or an image.
    Translated,
    /// The same stands in the configuration already.
    Unchanged,
    /// Taken, but not served.
    Disabled,
    /// Not taken.
    Refused,
}

/// One server, and what becomes of it. Nothing of it holds a secret.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name in the file.
    pub written: String,
    /// Its name in the configuration; none where it has none.
    pub name: Option<String>,
    /// Where it stands in the file.
    pub place: String,
    /// What becomes of it.
    pub state: State,
    /// What it is now, or why it is refused.
    pub why: String,
    /// What was left out or changed on the way.
    pub notes: Vec<String>,
    /// What has to be set before it runs.
    pub needed: Vec<Needed>,
}

/// The servers that a file holds.
pub struct Found {
    /// How it was read, in words.
    pub form: &'static str,
    candidates: Vec<Candidate>,
}

impl Found {
    /// Looks through a text. An error is what is wrong with the file as a whole, in whole lines.
    pub fn read(path: &Path, bytes: Vec<u8>, from: Option<Format>) -> Result<Self, String> {
        let sink = Sink::default();
        let tree = match String::from_utf8(bytes) {
            Ok(text) => parse(&text, Syntax::Json, &sink),
            Err(_) => {
                sink.whole("is not UTF-8");
                None
            }
        };
        let tree = sink.finish(path, tree).map_err(|faults| faults.to_string())?;
        let shown = path.display();
        let (form, candidates) = format::find(&tree, from).map_err(|why| format!("{shown}: {why}"))?;
        if candidates.len() > MOST {
            return Err(format!("{shown}: holds {} servers, more than {MOST}", candidates.len()));
        }
        Ok(Found { form, candidates })
    }

    /// Keeps the servers of these names. The error is the one that is not there.
    pub fn only(&mut self, names: &[String]) -> Result<(), String> {
        if let Some(unknown) = names.iter().find(|name| !self.candidates.iter().any(|c| c.written == **name)) {
            return Err(unknown.clone());
        }
        self.candidates.retain(|candidate| names.is_empty() || names.contains(&candidate.written));
        Ok(())
    }
}

/// Takes servers into a configuration.
pub struct Taking<'t, 'e> {
    edit: &'t mut Edit<'e>,
}

impl<'t, 'e> Taking<'t, 'e> {
    /// Nothing is taken yet.
    pub fn into(edit: &'t mut Edit<'e>) -> Self {
        Taking { edit }
    }

    /// Takes every server of a file that can be.
    pub fn all(&mut self, found: Found) -> Vec<Item> {
        let mut variables = Variables::default();
        for candidate in &found.candidates {
            if let Ok(table) = &candidate.entry {
                variables.refers(&Node { value: Value::Table(table.clone()), at: Place { line: 1, column: 1 } });
            }
        }
        // What this run would write again is no other server.
        let again: Vec<String> =
            found.candidates.iter().filter_map(|c| Some(server_name(&c.written).ok()?.0.to_string())).collect();
        self.edit
            .present()
            .filter(|(name, _)| !again.iter().any(|a| a == name))
            .for_each(|(_, node)| variables.refers(node));
        found.candidates.into_iter().map(|candidate| self.one(candidate, &mut variables)).collect()
    }

    /// Takes one server that was given on the command line, in the form that other clients write.
    pub fn given(&mut self, name: &str, entry: Table) -> Item {
        let at = Place { line: 1, column: 1 };
        let original = Node { value: Value::Table(entry.clone()), at };
        let mut variables = Variables::default();
        variables.refers(&original);
        self.edit.present().filter(|(present, _)| *present != name).for_each(|(_, node)| variables.refers(node));
        let place = "the command line".to_owned();
        let candidate = Candidate { written: name.to_owned(), place, entry: Ok(entry), notes: Vec::new(), original };
        self.one(candidate, &mut variables)
    }

    fn one(&mut self, candidate: Candidate, variables: &mut Variables) -> Item {
        let hidden = secrets(&candidate.original);
        let mut item = Item {
            written: candidate.written,
            name: None,
            place: candidate.place,
            state: State::Refused,
            why: String::new(),
            notes: candidate.notes,
            needed: Vec::new(),
        };
        if let Err(why) = self.take(&mut item, candidate.entry, &hidden, variables) {
            item.state = State::Refused;
            item.needed.clear();
            item.notes.clear();
            item.why = why;
        }
        let shown = item.name.clone().unwrap_or_default();
        for text in item.notes.iter_mut().chain([&mut item.why]) {
            *text = hide(&bare(text, &shown), &hidden);
        }
        for text in [&mut item.written, &mut item.place] {
            *text = hide(text, &hidden);
        }
        item.needed.iter_mut().for_each(|needed| needed.of = hide(&needed.of, &hidden));
        item
    }

    fn take(
        &mut self,
        item: &mut Item,
        entry: Result<Table, String>,
        hidden: &[String],
        variables: &mut Variables,
    ) -> Result<(), String> {
        if secret::marked(&item.written) {
            item.written = "(hidden)".to_owned();
            item.place = "(hidden)".to_owned();
            return Err("its name looks like a secret".to_owned());
        }
        let (name, mapped) = server_name(&item.written)?;
        item.name = Some(name.to_string());
        if mapped {
            item.notes.push(format!(
                "{} is no name for a server, so it is called {:?}",
                quoted(&item.written),
                name.as_str()
            ));
        }
        let entry = entry?;
        refuse_unisolated(&entry)?;
        let commanded = matches!(entry.get("command").map(|command| &command.node.value), Some(Value::String(_)));
        let mut table = translate(&name, &entry, &mut item.notes)?;
        let slug = capitals(name.slug());
        let mut withholding = Withholding { server: &slug, variables, needed: Vec::new() };
        withholding.entry(&mut table)?;
        item.needed = withholding.needed;
        tidy(&mut table);
        referred(&table, &mut item.needed);
        if let Some(key) = left(&table, hidden) {
            return Err(format!("what looks like a secret stands in {key:?}, where no reference can"));
        }
        host_paths(&table, &mut item.notes);
        let what = what(&table);
        match self.edit.add(&name, table).map_err(|faults| faults.join("; "))? {
            Added::Same => {
                item.state = State::Unchanged;
                item.needed.clear();
                item.why = "the same stands there already".to_owned();
            }
            Added::New(server) => {
                let off = server.disabled.as_deref() == Some("disabled in the configuration");
                (item.state, item.why) = match server.run {
                    _ if off => (State::Disabled, format!("{what}, disabled as it was")),
                    Run::Remote { .. } => (State::Disabled, format!("{what}, not yet supported")),
                    _ if commanded => (State::Translated, what),
                    _ => (State::Taken, what),
                };
            }
        }
        Ok(())
    }
}

/// A file of another client is no place from which something is let out of its compartment.
fn refuse_unisolated(entry: &Table) -> Result<(), String> {
    match entry.get("bulkhead").map(|inner| &inner.node.value) {
        Some(Value::Table(inner)) if inner.get("unisolated").is_some() => {
            Err("it asks to run on the host; write that into the configuration yourself, with the reason".to_owned())
        }
        _ => Ok(()),
    }
}

/// The entry in our words, by the one translation that there is.
fn translate(name: &ServerName, entry: &Table, notes: &mut Vec<String>) -> Result<Table, String> {
    let sink = Sink::default();
    let at = Place { line: 1, column: 1 };
    let table = translated(Reader::new(entry, joined("servers", name.as_str()), at, &sink), ADVICE, notes);
    sink.finish(Path::new(""), table).map_err(|faults| faults.texts().collect::<Vec<_>>().join("; "))
}

/// Leaves out what says nothing.
fn tidy(table: &mut Table) {
    let empty = |value: &Value| match value {
        Value::List(items) => items.is_empty(),
        Value::Table(table) => table.entries.is_empty(),
        Value::Boolean(value) => !value,
        _ => false,
    };
    let idle = ["args", "env", "secrets", "headers", "secret_headers", "disabled"];
    table.entries.retain(|entry| !(idle.contains(&entry.key.as_str()) && empty(&entry.node.value)));
    // What an address is says itself, and "stdio" is nothing else than a command.
    if table.get("url").is_none() {
        tree::remove(table, "type");
    }
}

/// Arguments that name places of the host lead nowhere in a container.
fn host_paths(table: &Table, notes: &mut Vec<String>) {
    let Some(Value::List(words)) = table.get("args").filter(|_| table.get("package").is_some()).map(|e| &e.node.value)
    else {
        return;
    };
    for word in words {
        let Value::String(text) = &word.value else { continue };
        let path = text.split_once('=').map_or(text.as_str(), |(_, value)| value);
        if path.len() > 1 && ["/", "~/", "./", "../", "${HOME}"].iter().any(|begin| path.starts_with(begin)) {
            notes.push(format!("{} is a path of the host, which is not seen without \"mounts\"", quoted(path)));
        }
    }
}

/// What a server is, in a few words.
fn what(table: &Table) -> String {
    let text = |key: &str| match table.get(key).map(|entry| &entry.node.value) {
        Some(Value::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match (text("package"), text("image")) {
        (Some(package), _) => package.to_owned(),
        (_, Some(image)) => format!("image {image}"),
        _ => "a remote server".to_owned(),
    }
}

/// A text without the name of the server before it: that stands beside it.
fn bare(text: &str, name: &str) -> String {
    let path = joined("servers", name);
    let parts = text.split("; ").map(|part| match part.strip_prefix(path.as_str()) {
        Some(rest) => rest.trim_start_matches([':', '.', ' ']),
        None => part,
    });
    let within = format!(" in {path}");
    let parts = parts.map(|part| part.strip_suffix(&within).unwrap_or(part));
    let parts = parts.map(|part| part.strip_prefix("cannot be taken over: ").unwrap_or(part));
    parts.collect::<Vec<_>>().join("; ")
}

/// A text without the secrets of the entry it speaks of, whole, escaped, or cut short.
fn hide(text: &str, secrets: &[String]) -> String {
    const LEAST: usize = 8;
    const CUT: usize = 12;
    let mut out = text.to_owned();
    for form in secrets.iter().flat_map(|secret| [secret.clone(), secret.escape_debug().to_string()]) {
        let begin: String = form.chars().take(CUT).collect();
        while let Some(at) = out.find(&begin).filter(|_| begin.len() >= LEAST) {
            let alike = out[at..].char_indices().zip(form.chars()).take_while(|((_, a), b)| a == b);
            let end = alike.last().map_or(at, |((from, c), _)| at + from + c.len_utf8());
            out.replace_range(at..end, "(hidden)");
        }
    }
    out
}
