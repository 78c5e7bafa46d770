//! Puts the server entries that other clients write into our own words. Knows nothing of what those words then mean.
//!
//! This is how entries of a JSON configuration of ours are read, and how [`take`] takes over the files of other clients,
//! which [`mod@format`] tells apart, without the secrets in them ([`withhold`]).
//!
//! The result is a table as somebody could have written it in `[servers]`, every part with the place it came from, and
//! goes the same way as one. What cannot be said in our words is refused by name; what is a client's own matter, or done
//! by every compartment anyway, is left out, with a note where somebody could miss it.

use super::fault::{Place, quoted};
use super::file::{Entry, Node, Table, Value};
use super::reader::{Field, Reader};
use super::resolve::KEYS;

mod docker;
mod format;
mod package;
mod secret;
mod take;
mod tree;
mod withhold;

pub use format::Format;
pub use take::{Found, Item, State, Taking};
pub use withhold::Needed;

#[cfg(test)]
mod tests;

/// Keys that only steer the client that wrote the entry.
const CLIENT_ONLY: [&str; 11] = [
    "timeout",
    "autoApprove",
    "alwaysAllow",
    "alwaysLoad",
    "trust",
    "description",
    "dev",
    "gallery",
    "version",
    "watchPaths",
    "instructions",
];

/// Why a command cannot be taken over, and where.
struct Refusal {
    at: Place,
    text: String,
}

/// One argument of a command line.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    node: &'a Node,
}

/// A command with its arguments.
#[derive(Clone, Copy)]
struct Line<'w> {
    command: Word<'w>,
    args: &'w [Word<'w>],
}

/// An entry in our words, in the making.
#[derive(Default)]
struct Draft {
    table: Table,
}

/// Whether an entry of `servers` is written as other clients do.
pub(super) fn is_foreign(entry: &Table) -> bool {
    let command = entry.get("command").map(|command| &command.node.value);
    entry.get("bulkhead").is_some() || matches!(command, Some(Value::String(_)))
}

/// The entry in our words; `None` where its command cannot be taken over.
pub(super) fn translate(r: Reader<'_>, notes: &mut Vec<String>) -> Option<Table> {
    let advice = "say how to run it: set bulkhead.image, or bulkhead.unisolated with the reason";
    translated(r, advice, notes)
}

/// The same with other advice on a command that nothing is known of.
fn translated(mut r: Reader<'_>, advice: &'static str, notes: &mut Vec<String>) -> Option<Table> {
    let inner = r.table("bulkhead").map(|table| table.written().clone()).unwrap_or_default();
    refuse_twice(&r, &inner);
    let mut draft = Draft::default();
    let entry = Outer {
        command: r.get("command"),
        args: r.get("args"),
        env: r.get("env"),
        kind: r.get("type"),
        path: r.path().to_owned(),
        advice,
    };
    let done = run(&entry, &inner, &mut draft, notes).map_err(|refusal| {
        r.fault_at(refusal.at, &format!("cannot be taken over: {}", refusal.text));
    });
    for key in ["url", "headers", "disabled"] {
        if let Some(field) = r.get(key) {
            draft.keep(key, &field);
        }
    }
    for key in CLIENT_ONLY {
        if r.get(key).is_some() {
            notes.push(format!("{} is the client's own matter, and is not taken over", r.path_of(key)));
        }
    }
    let path = r.path().to_owned();
    r.finish_with(|key| KEYS.contains(&key).then(|| format!("it belongs into {path}.bulkhead")));
    done.ok()?;
    Some(draft.table)
}

/// What of an entry says how it runs.
struct Outer<'a> {
    command: Option<Field<'a>>,
    args: Option<Field<'a>>,
    env: Option<Field<'a>>,
    kind: Option<Field<'a>>,
    path: String,
    /// What to do about a command that nothing is known of.
    advice: &'static str,
}

/// Takes the command over, in the way that the inner table or the command itself says.
fn run(entry: &Outer<'_>, inner: &Table, draft: &mut Draft, notes: &mut Vec<String>) -> Result<(), Refusal> {
    let command = entry.command.as_ref().and_then(|field| Some((field, field.string()?)));
    if let Some(kind) = &entry.kind {
        match command {
            Some(_) => kind.only("stdio", &[]),
            None => draft.keep("type", kind),
        }
    }
    let Some((field, command)) = command else {
        entry.args.iter().for_each(|args| draft.keep("args", args));
        entry.env.iter().for_each(|env| draft.keep("env", env));
        return draft.add_all(inner);
    };
    let args = entry.args.as_ref().map(words).unwrap_or_default();
    let line = Line { command: Word { text: command, node: field.node() }, args: &args };
    if inner.get("unisolated").is_some() {
        line.on_the_host(entry, draft)?;
    } else if inner.get("image").is_some() {
        line.in_an_image(entry, draft)?;
    } else {
        line.by_its_command(entry, inner, draft, notes)?;
    }
    draft.add_all(inner)
}

/// A key that stands in the entry and in its `bulkhead` table would have two meanings.
fn refuse_twice(r: &Reader<'_>, inner: &Table) {
    for entry in &r.written().entries {
        if let Some(twice) = inner.get(&entry.key) {
            r.fault_at(twice.at, &format!("holds {} twice, outside and inside of \"bulkhead\"", quoted(&entry.key)));
        }
    }
}

fn words<'a>(field: &Field<'a>) -> Vec<Word<'a>> {
    let items = field.list().unwrap_or_default();
    items.iter().filter_map(|item| Some(Word { text: item.string()?, node: item.node() })).collect()
}

fn own(word: &Word<'_>) -> Node {
    Node { value: Value::String(word.text.to_owned()), at: word.node.at }
}

// === impl Word ===

impl Word<'_> {
    fn refusal(&self, text: impl Into<String>) -> Refusal {
        Refusal { at: self.node.at, text: text.into() }
    }
}

// === impl Line ===

impl<'w> Line<'w> {
    /// A written reason says that it runs on the host: the line stays as it is.
    fn on_the_host(self, entry: &Outer<'_>, draft: &mut Draft) -> Result<(), Refusal> {
        entry.env.iter().for_each(|env| draft.keep("env", env));
        let words = std::iter::once(&self.command).chain(self.args);
        draft.put("command", self.command, Value::List(words.map(own).collect()))
    }

    /// An image is named in which the line runs.
    fn in_an_image(self, entry: &Outer<'_>, draft: &mut Draft) -> Result<(), Refusal> {
        if matches!(self.without_shell().program().as_str(), "docker" | "podman") {
            let text = "no container client runs in a container; leave out the command, or the image";
            return Err(self.command.refusal(text));
        }
        entry.env.iter().for_each(|env| draft.keep("env", env));
        draft.put("command", self.command, Value::List(vec![own(&self.command)]))?;
        draft.put("args", self.command, Value::List(self.args.iter().map(own).collect()))
    }

    /// Nothing is said but the line itself, so it must be one that we know.
    fn by_its_command(
        self,
        entry: &Outer<'_>,
        inner: &Table,
        draft: &mut Draft,
        notes: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        let line = self.without_shell();
        match line.program().as_str() {
            "docker" | "podman" => return docker::run(line, entry, inner, draft, notes),
            _ => package::run(line, draft).unwrap_or_else(|| {
                // Only the first word: some people put the whole line here, secrets and all.
                let first = self.command.text.split_whitespace().next().unwrap_or_default();
                let command = quoted(first);
                if first != self.command.text && ["npx", "uvx", "docker", "podman"].contains(&first) {
                    let text =
                        format!("the command {command} has its arguments in the same text; write them as \"args\"");
                    return Err(self.command.refusal(text));
                }
                let advice = entry.advice;
                Err(self.command.refusal(format!("the command {command} is none of npx, uvx, docker run; {advice}")))
            })?,
        }
        entry.env.iter().for_each(|env| draft.keep("env", env));
        Ok(())
    }

    /// `cmd /c npx …`, as it is written for Windows, is `npx …`.
    fn without_shell(self) -> Self {
        match self.args {
            [flag, command, args @ ..] if self.program() == "cmd" && flag.text.eq_ignore_ascii_case("/c") => {
                Line { command: *command, args }
            }
            _ => self,
        }
    }

    /// The name of the program without its directory and Windows' endings.
    fn program(self) -> String {
        let name = self.command.text.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
        let bare = name.strip_suffix(".exe").or_else(|| name.strip_suffix(".cmd")).map(str::to_owned);
        bare.unwrap_or(name)
    }
}

// === impl Draft ===

impl Draft {
    /// Keeps a value under its own name.
    fn keep(&mut self, key: &str, field: &Field<'_>) {
        self.table.entries.push(Entry { key: key.to_owned(), at: field.key_at, node: field.node().clone() });
    }

    /// Adds a value that a word of the command line stands for.
    fn put(&mut self, key: &str, word: Word<'_>, value: Value) -> Result<(), Refusal> {
        if self.table.get(key).is_some() {
            return Err(word.refusal(format!("it says {key:?} twice")));
        }
        let at = word.node.at;
        self.table.entries.push(Entry { key: key.to_owned(), at, node: Node { value, at } });
        Ok(())
    }

    /// Adds the `bulkhead` table. Variables from the command line and from there may stand beside each other.
    fn add_all(&mut self, inner: &Table) -> Result<(), Refusal> {
        for entry in &inner.entries {
            let ours = self.table.entries.iter_mut().find(|ours| ours.key == entry.key);
            match (ours.map(|ours| &mut ours.node.value), &entry.node.value) {
                (None, _) => self.table.entries.push(entry.clone()),
                (Some(Value::Table(ours)), Value::Table(more)) => {
                    for variable in &more.entries {
                        if ours.get(&variable.key).is_some() {
                            return Err(twice(variable));
                        }
                        ours.entries.push(variable.clone());
                    }
                }
                _ => return Err(twice(entry)),
            }
        }
        Ok(())
    }
}

fn twice(entry: &Entry) -> Refusal {
    Refusal { at: entry.at, text: format!("{} is given by the command and by \"bulkhead\"", quoted(&entry.key)) }
}
