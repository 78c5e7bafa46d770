//! What of a server's entry was approved, in words that a review can hold against each other. Decides nothing: whether an
//! entry is the same is a matter of its digest.
//!
//! Arguments and values can hold secrets although they should not, and these words are committed: of such there is a
//! hash and no more.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::config::{Mount, Network, Server, Share};

/// Digits of a hash that stands for a text.
const DIGITS: usize = 12;

/// Key and value of all that [`super::digest`] is over.
pub(super) fn settings(
    server: &Server,
    run: &[(&'static str, Vec<String>)],
    env: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut put = |key: &str, value: String| drop(found.insert(key.to_owned(), value));
    for (key, texts) in run.iter().filter(|(_, texts)| !texts.is_empty()) {
        let plain = ["package", "with", "executable", "image", "unisolated"].contains(key);
        // What it came to has these names in a lock.
        let key = match *key {
            "image" => "reference",
            "package" => "request",
            key => key,
        };
        put(key, if plain { texts.join(", ") } else { counted(texts) });
    }
    if !env.is_empty() {
        let names: Vec<&str> = env.keys().map(String::as_str).collect();
        let written: Vec<String> = env.iter().map(|(name, written)| format!("{name}={written}")).collect();
        put("env", format!("{}; {}", names.join(", "), hash(&written)));
    }
    if !matches!(server.run.kind(), "package" | "image") {
        return found;
    }
    put("memory", size(server.resources.memory));
    put("cpus", server.resources.cpus.to_string());
    put("pids", server.resources.pids.to_string());
    put("user", server.uid.to_string());
    let share = match server.share {
        Share::Principal => "principal",
        Share::Session => "session",
        Share::All => "all",
    };
    put("share", share.to_owned());
    put("network", network(&server.network));
    if let Some(state) = &server.state {
        put("state", state.clone());
    }
    for (key, set) in [("cache", server.cache), ("writable_root", server.writable_root)] {
        if set {
            put(key, "true".to_owned());
        }
    }
    if !server.mounts.is_empty() {
        put("mounts", server.mounts.iter().map(mount).collect::<Vec<_>>().join(", "));
    }
    found
}

fn network(network: &Network) -> String {
    match network {
        Network::None => "none".to_owned(),
        Network::Bridge => "bridge".to_owned(),
        Network::Guarded { rules, host_ports } => {
            let ports = host_ports.iter().map(|port| format!("host port {port}"));
            let all = rules.iter().map(ToString::to_string).chain(ports);
            all.collect::<Vec<_>>().join(", ")
        }
    }
}

fn mount(mount: &Mount) -> String {
    let mode = if mount.write { "written to" } else { "read" };
    format!("{} at {} ({mode})", mount.host.display(), mount.at)
}

/// In the largest unit that says it exactly.
fn size(bytes: u64) -> String {
    let unit = [(30, "g"), (20, "m"), (10, "k")].into_iter().find(|(shift, _)| bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

fn counted(texts: &[String]) -> String {
    format!("{}; {}", texts.len(), hash(texts))
}

fn hash(texts: &[String]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    format!("sha256:{}", &crate::hex(&hash.finalize())[..DIGITS])
}
