//! From the text of a lock file to a [`Lock`], or to the first thing that is wrong with it. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Lock, LockedServer, LockedTool, VERSION};
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
    config: String,
    revision: String,
    capabilities: Box<RawValue>,
    tools_hash: String,
    tools: Vec<WrittenTool>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTool {
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
    let mut tools = Vec::with_capacity(written.tools.len());
    for tool in written.tools {
        let at = format!(".tools.{:?}", tool.name);
        tools.push(check_tool(tool).map_err(|wrong| format!("{at}: {wrong}"))?);
    }
    let server = LockedServer {
        kind: written.kind,
        package: written.package,
        version: written.package_version,
        integrity: written.integrity,
        image: written.image,
        config: written.config,
        revision: written.revision,
        capabilities: written.capabilities,
        tools,
    };
    server.check().map_err(|wrong| format!(": {wrong}"))?;
    if server.tools_hash() != written.tools_hash {
        return Err(": tools_hash does not fit the tools: one was added, taken out or moved by hand".to_owned());
    }
    Ok(server)
}

fn check_tool(written: WrittenTool) -> Result<LockedTool, String> {
    let tool = LockedTool::new(&written.definition).map_err(|e| e.to_string())?;
    if tool.name != written.name {
        return Err(format!("the definition is of a tool named {:?}", tool.name));
    }
    if tool.hash != written.hash {
        return Err("the hash does not fit the definition: it was changed by hand".to_owned());
    }
    Ok(tool)
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
                return Err(A::Error::custom(format_args!("duplicate server {key:?}")));
            }
            let value = map.next_value()?;
            entries.insert(key, value);
        }
        Ok(Unique(entries))
    }
}
