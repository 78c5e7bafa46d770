//! The lock: which image and which tool definitions of each server were approved. Knows nothing of catalogs, engines
//! or who approves.
//!
//! `bulkhead.lock` is JSON that people review and commit: servers in the order of their names, one definition a line,
//! kept byte for byte as the server sent it (key order, number spelling, escapes), each with its own hash. What was
//! edited by hand without its hash, and what this version does not know, is refused.
//!
//! [`read`] turns text into a [`Lock`], [`write`] does the reverse, [`file`] is the only part that touches a disk.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::wire::Object;
use crate::wire::text::visible;

mod file;
mod merge;
pub mod pins;
mod read;
mod write;

#[cfg(test)]
mod tests;

/// Version of the format; another one is refused.
const VERSION: u64 = 2;

/// Everything that was approved, by the name of the server in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// The servers.
    pub servers: BTreeMap<String, LockedServer>,
}

/// What was approved of one server.
#[derive(Clone, Debug)]
pub struct LockedServer {
    /// How it runs, in the word of [`crate::config::Run::kind`].
    pub kind: String,
    /// Runner and name of the package, `npx:NAME`, where it is one.
    pub package: Option<String>,
    /// The package's exact version.
    pub version: Option<String>,
    /// The registry's hash of it.
    pub integrity: Option<String>,
    /// Identity of the image, `sha256:…`; `None` only for a server that runs without one.
    pub image: Option<String>,
    /// SHA-256 over all that was baked into the image, lower-case hex; only of a package.
    pub content: Option<String>,
    /// [`crate::config::Server::digest`] at the time.
    pub config: String,
    /// [`crate::config::Server::settings`] at the time: what the digest is over, for people.
    pub settings: BTreeMap<String, String>,
    /// The revision of the protocol that it answered with.
    pub revision: String,
    /// Its capabilities, as it sent them.
    pub capabilities: Box<RawValue>,
    /// What it says of its use, if anything.
    pub instructions: Option<String>,
    /// Its tools, in its own order, no name twice.
    pub tools: Vec<Definition>,
    /// Its prompts, likewise.
    pub prompts: Vec<Definition>,
    /// Its resource templates, likewise.
    pub templates: Vec<Definition>,
    /// The whole tree of what was baked, one object a package, each on one line.
    pub tree: Vec<Box<RawValue>>,
}

/// What a definition is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A resource template.
    Template,
}

/// One approved definition.
#[derive(Clone, Debug)]
pub struct Definition {
    /// What the server itself calls it: its name, or the URI template of a resource template.
    pub name: String,
    /// SHA-256 over the definition, lower-case hex.
    pub hash: String,
    /// The definition as the server sent it, on one line.
    pub definition: Box<RawValue>,
}

/// A definition that cannot be locked, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a definition has no single name: {0}")]
pub struct BadDefinition(String);

// === impl LockedServer ===

impl LockedServer {
    /// One hash over what it offers and says, the numbers and the order, lower-case hex.
    pub fn offer_hash(&self) -> String {
        let mut hash = Sha256::new();
        for kind in Kind::ALL {
            let all = self.definitions(kind);
            hash.update((all.len() as u64).to_be_bytes());
            all.iter().for_each(|definition| hash.update(&definition.hash));
        }
        hash.update(one_line(&self.capabilities).get());
        hash.update(self.instructions.as_deref().unwrap_or_default());
        crate::hex(&hash.finalize())
    }

    /// One hash over the tree, lower-case hex.
    pub fn tree_hash(&self) -> String {
        let mut hash = Sha256::new();
        self.tree.iter().for_each(|package| hash.update(format!("{}\n", one_line(package).get())));
        crate::hex(&hash.finalize())
    }

    /// The approved definitions of one kind.
    pub fn definitions(&self, kind: Kind) -> &[Definition] {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Template => &self.templates,
        }
    }

    /// The approved definition of a tool.
    pub fn tool(&self, name: &str) -> Option<&Definition> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Whether it says everything that a server of its kind must, and nothing twice.
    fn check(&self) -> Result<(), String> {
        let contained = match self.kind.as_str() {
            "package" | "image" => true,
            "unisolated" | "remote" => false,
            other => return Err(format!("kind {other:?} is none of package, image, unisolated, remote")),
        };
        match &self.image {
            None if contained => return Err("it has no image".to_owned()),
            Some(image) if !is_identity(image) => return Err(format!("image {image:?} is no identity of an image")),
            _ => (),
        }
        if self.kind == "package" && (self.package.is_none() || self.version.is_none()) {
            return Err("it names no package and version".to_owned());
        }
        for kind in Kind::ALL {
            let mut seen = HashSet::new();
            if let Some(twice) = self.definitions(kind).iter().find(|one| !seen.insert(&one.name)) {
                return Err(format!("two of its {}s are named {:?}", kind.word(), twice.name));
            }
        }
        Ok(())
    }
}

// === impl Kind ===

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Tool, Kind::Prompt, Kind::Template];

    /// The word for one.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Tool => "tool",
            Kind::Prompt => "prompt",
            Kind::Template => "resource template",
        }
    }

    /// The member of a definition that says which one it is.
    pub fn key(self) -> &'static str {
        match self {
            Kind::Tool | Kind::Prompt => "name",
            Kind::Template => "uriTemplate",
        }
    }
}

/// By the bytes of what was sent, line breaks aside.
impl PartialEq for LockedServer {
    fn eq(&self, other: &Self) -> bool {
        let texts = |s: &Self| {
            let image = [s.package.clone(), s.version.clone(), s.integrity.clone(), s.image.clone(), s.content.clone()];
            (s.kind.clone(), image, s.config.clone(), s.settings.clone(), s.revision.clone(), s.instructions.clone())
        };
        texts(self) == texts(other)
            && one_line(&self.capabilities).get() == one_line(&other.capabilities).get()
            && Kind::ALL.into_iter().all(|kind| self.definitions(kind) == other.definitions(kind))
            && self.tree_hash() == other.tree_hash()
    }
}

impl Eq for LockedServer {}

/// A server of which nothing is known.
impl Default for LockedServer {
    fn default() -> Self {
        LockedServer {
            kind: String::new(),
            package: None,
            version: None,
            integrity: None,
            image: None,
            content: None,
            config: String::new(),
            settings: BTreeMap::new(),
            revision: String::new(),
            capabilities: RawValue::NULL.to_owned(),
            instructions: None,
            tools: Vec::new(),
            prompts: Vec::new(),
            templates: Vec::new(),
            tree: Vec::new(),
        }
    }
}

// === impl Definition ===

impl Definition {
    /// Takes a definition as it came. The one change is that line breaks between its tokens become blanks.
    pub fn new(kind: Kind, definition: &RawValue) -> Result<Self, BadDefinition> {
        let definition = one_line(definition);
        let bad = |why: &str| BadDefinition(why.to_owned());
        let object = Object::parse(definition.get()).map_err(|_| bad("it is no object"))?;
        let name = object.string(kind.key()).ok_or_else(|| bad("there is none"))?;
        if object.repeats(kind.key()) {
            return Err(bad("there are two"));
        }
        let hash = crate::hex(&Sha256::digest(definition.get()));
        Ok(Definition { name, hash, definition })
    }
}

/// By the bytes of the definition: its hash and its name follow from them.
impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.definition.get() == other.definition.get()
    }
}

impl Eq for Definition {}

/// What differs between the settings of two entries, in words.
pub fn differences(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> String {
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let words = keys.into_iter().filter(|key| before.get(*key) != now.get(*key)).map(|key| {
        let of = |all: &BTreeMap<String, String>| all.get(key).map_or("nothing".to_owned(), |text| visible(text, 120));
        format!("{key}: {} -> {}", of(before), of(now))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "its entry in the configuration".to_owned() } else { words.join("; ") }
}

fn is_identity(image: &str) -> bool {
    let hex = |text: &str| text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    image.strip_prefix("sha256:").is_some_and(hex)
}

/// The same JSON without a line break: valid JSON has them only between tokens, where a blank means the same.
fn one_line(value: &RawValue) -> Box<RawValue> {
    if !value.get().contains(['\n', '\r']) {
        return value.to_owned();
    }
    let line = value.get().replace(['\n', '\r'], " ");
    RawValue::from_string(line).unwrap_or_else(|_| value.to_owned())
}
