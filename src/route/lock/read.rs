//! From the text of a lock file to a [`Lock`], or to the first thing that is wrong with it. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Definition, Kind, Lock, LockedServer, VERSION};
use crate::error::{Class, Fault};

/// As written.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[allow(dead_code, reason = "checked before the rest, but a member all the same")]
    version: u64,
    servers: Unique<WrittenServer>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenServer {
    kind: String,
    package: Option<String>,
    #[serde(rename = "version")]
    package_version: Option<String>,
    integrity: Option<String>,
    image: Option<String>,
    content: Option<String>,
    config: String,
    settings: Unique<String>,
    revision: String,
    capabilities: Box<RawValue>,
    instructions: Option<String>,
    offer_hash: String,
    tools: Vec<WrittenDefinition>,
    #[serde(default)]
    prompts: Vec<WrittenDefinition>,
    #[serde(default)]
    templates: Vec<WrittenDefinition>,
    tree_hash: Option<String>,
    #[serde(default)]
    tree: Vec<Box<RawValue>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDefinition {
    name: String,
    hash: String,
    definition: Box<RawValue>,
}

/// The version alone, so that a file of another version is refused for that and not for a member it has.
#[derive(serde::Deserialize)]
struct Versioned {
    version: u64,
}

impl Lock {
    /// Parses the text of a lock file; `origin` is what a fault calls it.
    pub fn parse(text: &str, origin: &str) -> Result<Lock, Fault> {
        parse(text).map_err(|wrong| {
            let advice = "lock the servers again instead of editing it";
            Fault::new(Class::Usage, format!("{origin}: {wrong}; {advice}"))
        })
    }
}

/// The same, in words without an origin.
pub(super) fn parse(text: &str) -> Result<Lock, String> {
    let json = |error: serde_json::Error| error.to_string();
    let found = serde_json::from_str::<Versioned>(text).map_err(json)?.version;
    if found != VERSION {
        return Err(format!("version {found} is not one that this program reads (it reads {VERSION})"));
    }
    let written: Written = serde_json::from_str(text).map_err(json)?;
    let servers = written.servers.0.into_iter().map(|(name, server)| {
        let server = check(server).map_err(|wrong| format!("servers.{name:?}{wrong}"))?;
        Ok((name, server))
    });
    Ok(Lock { servers: servers.collect::<Result<_, String>>()? })
}

fn check(written: WrittenServer) -> Result<LockedServer, String> {
    let server = LockedServer {
        kind: written.kind,
        package: written.package,
        version: written.package_version,
        integrity: written.integrity,
        image: written.image,
        content: written.content,
        config: written.config,
        settings: written.settings.0,
        revision: written.revision,
        capabilities: written.capabilities,
        instructions: written.instructions,
        tools: check_all(Kind::Tool, "tools", written.tools)?,
        prompts: check_all(Kind::Prompt, "prompts", written.prompts)?,
        templates: check_all(Kind::Template, "templates", written.templates)?,
        tree: written.tree,
    };
    server.check().map_err(|wrong| format!(": {wrong}"))?;
    if server.offer_hash() != written.offer_hash {
        return Err(
            ": offer_hash does not fit what it offers: something was added, taken out or moved by hand".to_owned()
        );
    }
    if written.tree_hash.as_ref().is_some_and(|hash| *hash != server.tree_hash())
        || written.tree_hash.is_none() != server.tree.is_empty()
    {
        return Err(": tree_hash does not fit the tree: it was changed by hand".to_owned());
    }
    Ok(server)
}

fn check_all(kind: Kind, key: &str, all: Vec<WrittenDefinition>) -> Result<Vec<Definition>, String> {
    let check = |one: WrittenDefinition| {
        let at = format!(".{key}.{:?}", one.name);
        check_one(kind, one).map_err(|wrong| format!("{at}: {wrong}"))
    };
    all.into_iter().map(check).collect()
}

fn check_one(kind: Kind, written: WrittenDefinition) -> Result<Definition, String> {
    let found = Definition::new(kind, &written.definition).map_err(|e| e.to_string())?;
    if found.name != written.name {
        return Err(format!("the definition is of a {} named {:?}", kind.word(), found.name));
    }
    if found.hash != written.hash {
        return Err("the hash does not fit the definition: it was changed by hand".to_owned());
    }
    Ok(found)
}

/// A map that refuses a key that comes twice; the usual one would keep the last.
struct Unique<T>(BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for UniqueVisitor<T> {
    type Value = Unique<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if entries.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate key {key:?}")));
            }
            let value = map.next_value()?;
            entries.insert(key, value);
        }
        Ok(Unique(entries))
    }
}
