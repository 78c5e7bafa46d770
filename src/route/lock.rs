//! The lock: which image and which tool definitions of each server were approved. Knows nothing of catalogs, engines
//! or who approves.
//!
//! `bulkhead.lock` is JSON that people review and commit: servers in the order of their names, one definition a line,
//! kept byte for byte as the server sent it (key order, number spelling, escapes), each with its own hash. What was
//! edited by hand without its hash, and what this version does not know, is refused.
//!
//! [`read`] turns text into a [`Lock`], [`write`] does the reverse, [`file`] is the only part that touches a disk.

use std::collections::{BTreeMap, HashSet};

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

mod file;
mod read;
mod write;

#[cfg(test)]
mod tests;

/// Version of the format; another one is refused.
const VERSION: u64 = 1;

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
    /// [`crate::config::Server::digest`] at the time.
    pub config: String,
    /// The revision of the protocol that it answered with.
    pub revision: String,
    /// Its capabilities, as it sent them.
    pub capabilities: Box<RawValue>,
    /// Its tools, in its own order, no name twice.
    pub tools: Vec<LockedTool>,
}

/// One approved definition.
#[derive(Clone, Debug)]
pub struct LockedTool {
    /// The tool's own name.
    pub name: String,
    /// SHA-256 over the definition, lower-case hex.
    pub hash: String,
    /// The definition as the server sent it, on one line.
    pub definition: Box<RawValue>,
}

/// A definition that cannot be locked, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool definition has no single name: {0}")]
pub struct BadTool(String);

// === impl LockedServer ===

impl LockedServer {
    /// One hash over the tools, their number and their order, lower-case hex.
    pub fn tools_hash(&self) -> String {
        let mut hash = Sha256::new();
        self.tools.iter().for_each(|tool| hash.update(&tool.hash));
        crate::hex(&hash.finalize())
    }

    /// The approved definition of a tool.
    pub fn tool(&self, name: &str) -> Option<&LockedTool> {
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
        let mut seen = HashSet::new();
        match self.tools.iter().find(|tool| !seen.insert(&tool.name)) {
            Some(twice) => Err(format!("two of its tools are named {:?}", twice.name)),
            None => Ok(()),
        }
    }
}

/// By the bytes of what was sent, line breaks aside.
impl PartialEq for LockedServer {
    fn eq(&self, other: &Self) -> bool {
        let image = |s: &Self| [s.package.clone(), s.version.clone(), s.integrity.clone(), s.image.clone()];
        self.kind == other.kind
            && image(self) == image(other)
            && self.config == other.config
            && self.revision == other.revision
            && one_line(&self.capabilities).get() == one_line(&other.capabilities).get()
            && self.tools == other.tools
    }
}

impl Eq for LockedServer {}

// === impl LockedTool ===

impl LockedTool {
    /// Takes a definition as it came. The one change is that line breaks between its tokens become blanks.
    pub fn new(definition: &RawValue) -> Result<Self, BadTool> {
        #[derive(serde::Deserialize)]
        struct Named {
            name: String,
        }
        let definition = one_line(definition);
        let named: Named = serde_json::from_str(definition.get()).map_err(|e| BadTool(e.to_string()))?;
        let hash = crate::hex(&Sha256::digest(definition.get()));
        Ok(LockedTool { name: named.name, hash, definition })
    }
}

/// By the bytes of the definition: its hash and its name follow from them.
impl PartialEq for LockedTool {
    fn eq(&self, other: &Self) -> bool {
        self.definition.get() == other.definition.get()
    }
}

impl Eq for LockedTool {}

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
