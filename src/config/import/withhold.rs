//! Takes secrets out of an entry in our words: in the place of each comes a reference to a variable, which the operator
//! sets. Knows nothing of files.

use std::collections::HashMap;

use super::secret::{held, literal, named, telling, without_scheme};
use super::tree;
use crate::config::env::is_name;
use crate::config::fault::quoted;
use crate::config::file::{Entry, Node, Table, Value};

/// A variable that has to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Its name.
    pub variable: String,
    /// What of the server it is: `env.NAME`, an argument, a header.
    pub of: String,
    /// Whether its value lies where the entry was found.
    pub lies: bool,
}

/// Which variable stands for what. Two secrets must not share one: a server would be handed another one's.
#[derive(Default)]
pub struct Variables(HashMap<String, Meant>);

#[derive(Clone, PartialEq, Eq)]
enum Meant {
    /// Whatever the operator means by it.
    Itself,
    /// A secret that lies elsewhere.
    Secret(String),
}

// === impl Variables ===

impl Variables {
    /// Learns of the variables that a tree refers to, by `${NAME}` and by `env:NAME`.
    pub fn refers(&mut self, node: &Node) {
        tree::each(node, &mut |text| {
            let sources = text.strip_prefix("env:").filter(|name| is_name(name));
            for name in sources.into_iter().chain(references(text)) {
                self.0.entry(name.to_owned()).or_insert(Meant::Itself);
            }
        });
    }

    /// The variable for a secret: the one that is wanted, else one with the server's name before it.
    fn claim(&mut self, wanted: &str, server: &str, secret: &str) -> String {
        let meant = Meant::Secret(secret.to_owned());
        let prefixed = wanted.starts_with(&format!("{server}_"));
        let own = if prefixed { wanted.to_owned() } else { format!("{server}_{wanted}") };
        let numbered = (2..).map(|n| format!("{own}_{n}"));
        let mut names = [wanted.to_owned(), own.clone()].into_iter().chain(numbered);
        let free = names.find(|name| self.0.get(name).is_none_or(|before| *before == meant));
        let name = free.unwrap_or(own);
        self.0.insert(name.clone(), meant);
        name
    }
}

/// The names in `${NAME}`, `${NAME:-…}` and `${env:NAME}`.
fn references(text: &str) -> impl Iterator<Item = &str> {
    text.split("${").skip(1).filter_map(|inside| {
        let inside = inside.split('}').next()?;
        let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
        Some(name.strip_prefix("env:").unwrap_or(name)).filter(|name| is_name(name))
    })
}

/// The name of a text that is a reference and nothing else: `${NAME}`, `${env:NAME}`, `${NAME:-…}`, `$NAME`.
fn reference(text: &str) -> Option<&str> {
    if let Some(name) = text.strip_prefix('$').filter(|name| is_name(name)) {
        return Some(name);
    }
    let whole = text.strip_prefix("${")?.strip_suffix('}')?;
    (!whole.contains(['{', '}'])).then(|| references(text).next()).flatten()
}

/// One entry being gone through.
pub(super) struct Withholding<'v> {
    /// The server's name as part of a variable's.
    pub(super) server: &'v str,
    pub(super) variables: &'v mut Variables,
    pub(super) needed: Vec<Needed>,
}

impl Withholding<'_> {
    /// Goes through all that may hold a secret. An error says what cannot be taken over.
    pub(super) fn entry(&mut self, table: &mut Table) -> Result<(), String> {
        self.names(table, "env", "secrets")?;
        self.names(table, "headers", "secret_headers")?;
        for key in ["args", "command"] {
            if let Some(Value::List(words)) = table.entries.iter_mut().find(|e| e.key == key).map(|e| &mut e.node.value)
            {
                self.words(words);
            }
        }
        if let Some(Value::String(url)) = table.entries.iter_mut().find(|e| e.key == "url").map(|e| &mut e.node.value) {
            self.url(url)?;
        }
        Ok(())
    }

    /// Names with values, such as variables and headers: secrets go to a table of their own.
    fn names(&mut self, table: &mut Table, plain: &str, secret: &str) -> Result<(), String> {
        let at = table.get(plain).map(|entry| entry.at);
        let Some(Value::Table(values)) = table.entries.iter_mut().find(|e| e.key == plain).map(|e| &mut e.node.value)
        else {
            return Ok(());
        };
        let mut kept = Vec::new();
        let mut moved = Vec::new();
        for entry in std::mem::take(&mut values.entries) {
            let source = match &entry.node.value {
                Value::String(text) => self.source(plain, &entry.key, text),
                _ => None,
            };
            match source {
                Some(source) => moved.push(Entry { node: tree::text(source, entry.node.at), ..entry }),
                None => kept.push(entry),
            }
        }
        values.entries = kept;
        if values.entries.is_empty() {
            tree::remove(table, plain);
        }
        let Some(at) = at.filter(|_| !moved.is_empty()) else { return Ok(()) };
        let secrets = tree::inner(table, secret, at).ok_or_else(|| format!("{secret:?} is no table"))?;
        for entry in moved {
            if secrets.get(&entry.key).is_some() {
                return Err(format!("{} is given twice", quoted(&entry.key)));
            }
            secrets.entries.push(entry);
        }
        Ok(())
    }

    /// Where a value is to come from, if it may not stand there.
    fn source(&mut self, plain: &str, name: &str, text: &str) -> Option<String> {
        let of = format!("{plain}.{name}");
        if let Some(path) = text.strip_prefix("${file:").and_then(|rest| rest.strip_suffix('}')) {
            return Some(format!("file:{path}"));
        }
        let secret = named(name) && !without_scheme(&literal(text)).is_empty() || held(text);
        if let Some(reference) = reference(text).filter(|_| secret || named(name)) {
            self.needed.push(Needed { variable: reference.to_owned(), of, lies: secret && text.contains(":-") });
            return Some(format!("env:{reference}"));
        }
        if !(secret || named(name) && text.is_empty()) {
            return None;
        }
        let header = plain == "headers";
        let wanted = if header { format!("{}_{}", self.server, capitals(name)) } else { name.to_owned() };
        let variable = self.variables.claim(&wanted, self.server, text);
        self.needed.push(Needed { variable: variable.clone(), of, lies: !text.is_empty() });
        Some(format!("env:{variable}"))
    }

    /// The words of a command line.
    fn words(&mut self, words: &mut [Node]) {
        let mut option: Option<String> = None;
        for word in words {
            let Value::String(text) = &mut word.value else { continue };
            let before = option.take();
            let is_option = text.starts_with('-') && text.len() > 1;
            if let Some(name) = before.filter(|_| !is_option) {
                if let Some(own) = reference(text) {
                    *text = format!("${{{own}}}");
                    continue;
                }
                if !literal(text).is_empty() {
                    *text = self.reference(&name, text);
                    continue;
                }
            } else if let Some((name, value)) =
                text.split_once('=').filter(|(name, value)| plain(name) && named(name) && !literal(value).is_empty())
            {
                *text = format!("{name}={}", self.reference(name, value));
                continue;
            } else if let Some((name, value)) = header(text) {
                let scheme = &value[..value.len() - without_scheme(value).len()];
                let reference = self.reference(name, without_scheme(value));
                *text = format!("{}{scheme}{reference}", &text[..text.len() - value.len()]);
                continue;
            }
            if held(text) {
                let what = if text.contains("://") { "URL" } else { "SECRET" };
                *text = self.reference(what, text);
            } else if is_option && named(text) && !text.contains('=') {
                option = Some(text.clone());
            }
        }
    }

    /// A reference in the place of a secret argument.
    fn reference(&mut self, name: &str, secret: &str) -> String {
        let wanted = format!("{}_{}", self.server, capitals(name));
        let variable = self.variables.claim(&wanted, self.server, secret);
        let of = if ["URL", "SECRET"].contains(&name) { "args".to_owned() } else { format!("args, {}", quoted(name)) };
        self.needed.push(Needed { variable: variable.clone(), of, lies: true });
        format!("${{{variable}}}")
    }

    /// An address: who it is stays, what follows and holds a secret does not.
    fn url(&mut self, url: &mut String) -> Result<(), String> {
        if !held(url) {
            return Ok(());
        }
        let begin = url.find("://").map_or(0, |at| at + 3);
        let end = url[begin..].find('/').map_or(url.len(), |at| begin + at + 1);
        if held(&url[..end]) || end == url.len() {
            return Err("its address holds a secret before the path; write it as a header".to_owned());
        }
        let wanted = format!("{}_URL_PATH", self.server);
        let variable = self.variables.claim(&wanted, self.server, &url[end..]);
        url.truncate(end);
        url.push_str(&format!("${{{variable}}}"));
        self.needed.push(Needed { variable, of: "what follows the host in url".to_owned(), lies: true });
        Ok(())
    }
}

/// Whether a text can be a name before a value, rather than a sentence.
fn plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// `Name: value`, where the name says that the value is a secret.
fn header(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':')?;
    let value = value.trim_start();
    let secret = plain(name) && named(name) && !value.starts_with("//") && !without_scheme(&literal(value)).is_empty();
    secret.then_some((name, value))
}

/// A name as part of a variable's.
pub(super) fn capitals(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let text: String = name.chars().map(letter).collect();
    let text = text.trim_matches('_');
    if text.is_empty() { "SECRET".to_owned() } else { text.to_owned() }
}

/// The variables that an entry in our words refers to beside those.
pub(super) fn referred(table: &Table, needed: &mut Vec<Needed>) {
    for entry in &table.entries {
        let mut see = |of: String, text: &str| {
            let source =
                text.strip_prefix("env:").filter(|_| ["secrets", "secret_headers"].contains(&entry.key.as_str()));
            let mut unset = references(text).filter(|name| !text.contains(&format!("{name}:-")));
            for name in source.into_iter().chain(&mut unset) {
                // Everybody has a home.
                if name != "HOME" && !needed.iter().any(|known| known.variable == name) {
                    needed.push(Needed { variable: name.to_owned(), of: of.clone(), lies: false });
                }
            }
        };
        match &entry.node.value {
            Value::Table(inner) => inner
                .entries
                .iter()
                .for_each(|part| tree::each(&part.node, &mut |text| see(format!("{}.{}", entry.key, part.key), text))),
            _ => tree::each(&entry.node, &mut |text| see(entry.key.clone(), text)),
        }
    }
}

/// Every secret that stands in an entry as it was written, whatever becomes of it: what must be neither copied nor shown.
pub(super) fn secrets(node: &Node) -> Vec<String> {
    let mut found = Vec::new();
    collect(None, node, &mut found);
    found.sort_by_key(|text| std::cmp::Reverse(text.len()));
    found.dedup();
    found
}

fn collect(name: Option<&str>, node: &Node, found: &mut Vec<String>) {
    match &node.value {
        Value::String(text) => {
            let source = text.strip_prefix("env:").is_some_and(is_name) || text.starts_with("file:/");
            let text = literal(text);
            let assigned = text.split_once(['=', ':']).filter(|(name, _)| plain(name) && named(name));
            let secret = match assigned {
                // Its name is none.
                Some((_, value)) => Some(value),
                None => (name.is_some_and(named) || held(&text)).then_some(text.as_str()),
            };
            let secret = secret.map(without_scheme).filter(|secret| !source && reference(secret).is_none());
            found.extend(secret.filter(|secret| telling(secret)).map(str::to_owned));
        }
        Value::List(items) => {
            let mut before = None;
            for item in items {
                let option = match &item.value {
                    Value::String(text) if text.starts_with('-') => Some(text.as_str()),
                    _ => None,
                };
                collect(before.filter(|_| option.is_none()), item, found);
                before = option.filter(|option| !option.contains('='));
            }
        }
        Value::Table(table) => table.entries.iter().for_each(|entry| collect(Some(&entry.key), &entry.node, found)),
        _ => {}
    }
}

/// Where one of the secrets, or what is marked as one, stands after all.
pub(super) fn left(table: &Table, secrets: &[String]) -> Option<String> {
    table.entries.iter().find_map(|entry| {
        let of =
            |text: &str| secrets.iter().any(|secret| text.contains(secret.as_str())) || super::secret::marked(text);
        let mut inside = of(&entry.key);
        tree::each(&entry.node, &mut |text| inside |= of(&literal(text)) || secrets.iter().any(|s| text.contains(s)));
        if let Value::Table(inner) = &entry.node.value {
            inside |= left(inner, secrets).is_some();
        }
        inside.then(|| if of(&entry.key) { "(hidden)".to_owned() } else { entry.key.clone() })
    })
}
