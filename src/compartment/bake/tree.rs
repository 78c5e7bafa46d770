//! All packages that an image is made of, one line of JSON each: checked, put in order, and cut down to what it takes to
//! install the very same ones again. Pure.
//!
//! No line has an address of a registry in it: the same lock is good for a mirror, and a registry's addresses may hold
//! more than is for everybody's eyes. What is fetched is held to its hash, so that it does not matter where it comes from.

use serde_json::{Map, Value};

use super::words;
use crate::config::Runner;

/// Members of a package in npm's lock that decide what is installed where, and what is told of it.
const NPM: [&str; 18] = [
    "bin",
    "bundleDependencies",
    "cpu",
    "dependencies",
    "devOptional",
    "hasInstallScript",
    "hasShrinkwrap",
    "inBundle",
    "integrity",
    "libc",
    "name",
    "optional",
    "optionalDependencies",
    "os",
    "path",
    "peer",
    "peerDependencies",
    "version",
];
const NPM_META: &str = "peerDependenciesMeta";
const PYPI: [&str; 4] = ["name", "sha256", "url", "version"];

/// A tree that holds everything it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree(Vec<String>);

impl Tree {
    /// What a script has found, without what nobody needs.
    pub fn found(runner: Runner, packages: Vec<Map<String, Value>>) -> Result<Self, String> {
        let entries = packages.into_iter().map(|mut entry| {
            // Links lead out of the tree; they must not be cut down to packages.
            if entry.contains_key("link") {
                return Err(format!("{} is a link, which is not installed", shown(&entry)));
            }
            entry.retain(|member, value| is_known(runner, member) && !value.is_null());
            check(runner, &entry).map(|key| (key, Value::Object(entry).to_string()))
        });
        Self::ordered(entries.collect::<Result<_, _>>()?)
    }

    /// What a lock holds. Nothing in it is unknown, and nothing is missing.
    pub fn locked(runner: Runner, lines: &[String]) -> Result<Self, String> {
        let entries = lines.iter().map(|line| {
            let entry: Map<String, Value> =
                serde_json::from_str(line).map_err(|error| format!("a line of it is no package: {error}"))?;
            if let Some(member) = entry.keys().find(|member| !is_known(runner, member)) {
                return Err(format!("{} has an unknown member {member:?}", shown(&entry)));
            }
            check(runner, &entry).map(|key| (key, Value::Object(entry).to_string()))
        });
        Self::ordered(entries.collect::<Result<_, _>>()?)
    }

    fn ordered(mut entries: Vec<(String, String)>) -> Result<Self, String> {
        entries.sort();
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("{} is in it twice", twice[0].0));
        }
        Ok(Tree(entries.into_iter().map(|(_, line)| line).collect()))
    }

    /// One package a line, in an order of its own.
    pub fn lines(&self) -> &[String] {
        &self.0
    }

    /// The packages.
    pub fn packages(&self) -> Vec<Value> {
        self.0.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The package of that name that everything else is there for.
    pub fn top(&self, runner: Runner, name: &str) -> Option<Value> {
        let is_top = |package: &Value| match runner {
            Runner::Npx => package["path"].as_str().and_then(|p| p.strip_prefix("node_modules/")) == Some(name),
            Runner::Uvx => normal(package["name"].as_str().unwrap_or_default()) == normal(name),
        };
        self.packages().into_iter().find(is_top)
    }
}

/// Whether the package has that hash, in the registry's own spelling.
pub(super) fn has_integrity(package: &Value, integrity: &str) -> bool {
    let listed = || package["sha256"].as_array().into_iter().flatten().filter_map(Value::as_str);
    package["integrity"].as_str() == Some(integrity)
        || integrity.strip_prefix("sha256:").is_some_and(|hash| listed().any(|listed| listed == hash))
}

fn is_known(runner: Runner, member: &str) -> bool {
    match runner {
        Runner::Npx => NPM.contains(&member) || member == NPM_META,
        Runner::Uvx => PYPI.contains(&member),
    }
}

/// What a package is ordered by, if it is one that is fetched by name and held to a hash.
fn check(runner: Runner, entry: &Map<String, Value>) -> Result<String, String> {
    let text = |member: &str| entry.get(member).and_then(Value::as_str).unwrap_or_default();
    if !words::word(text("version"), "._+!-") {
        return Err(format!("{} has no version", shown(entry)));
    }
    match runner {
        Runner::Npx => {
            let names = text("path").strip_prefix("node_modules/").map(|rest| rest.split("/node_modules/"));
            let nested = names.is_some_and(|mut names| names.all(words::npm_name));
            if !nested || entry.contains_key("name") && !words::npm_name(text("name")) {
                return Err(format!("{} is no package of a registry", shown(entry)));
            }
            // What came within another one was held to that one's hash.
            let within = entry.get("inBundle") == Some(&Value::Bool(true));
            if !within && !text("integrity").split_ascii_whitespace().any(is_strong) {
                return Err(format!("{} has no hash (sha256 or better) that its bytes could be held to", shown(entry)));
            }
            Ok(text("path").to_owned())
        }
        Runner::Uvx => {
            let url = entry.get("url").is_none_or(|url| url.as_str().is_some_and(is_file));
            if !words::pypi_name(text("name")) || !url {
                return Err(format!("{} is no package of an index", shown(entry)));
            }
            let hashes = entry.get("sha256").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            if hashes.is_empty() || !hashes.iter().all(|hash| hash.as_str().is_some_and(is_sha256)) {
                return Err(format!("{} has no sha256 that its bytes could be held to", shown(entry)));
            }
            Ok(normal(text("name")))
        }
    }
}

/// One of the hashes that npm checks and nobody can make another package for.
fn is_strong(hash: &str) -> bool {
    let base64 = |text: &str| text.len() >= 44 && text.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c));
    ["sha256-", "sha384-", "sha512-"].iter().any(|kind| hash.strip_prefix(kind).is_some_and(base64))
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A wheel by its address, on one line of a list of requirements.
fn is_file(url: &str) -> bool {
    let place = url.starts_with("https://") || url.starts_with("file:///");
    place && url.bytes().all(|b| b.is_ascii_graphic())
}

fn shown(entry: &Map<String, Value>) -> String {
    let text = |member: &str| entry.get(member).and_then(Value::as_str);
    let path = text("path").and_then(|path| path.rsplit("node_modules/").next());
    let name = text("name").or(path).unwrap_or("a package without a name");
    format!("{name} {}", text("version").unwrap_or_default()).trim_end().to_owned()
}

/// As an index compares names.
fn normal(name: &str) -> String {
    let name = name.split('[').next().unwrap_or_default().to_ascii_lowercase();
    let parts: Vec<&str> = name.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect();
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SHA512: &str =
        "sha512-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==";

    fn objects(values: &[Value]) -> Vec<Map<String, Value>> {
        values.iter().map(|value| value.as_object().unwrap().clone()).collect()
    }

    fn npm(change: Value) -> Value {
        let mut entry = json!({"path": "node_modules/a", "version": "1.0.0", "integrity": SHA512});
        entry.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        entry
    }

    fn pypi(change: Value) -> Value {
        let mut entry = json!({"name": "a", "version": "1.0", "sha256": ["0".repeat(64)]});
        entry.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        entry
    }

    #[test]
    fn a_tree_is_read_as_it_is_written_in_one_order_and_without_what_nobody_needs() {
        let second =
            npm(json!({"path": "node_modules/@b/c/node_modules/d", "resolved": "https://r/?t=1", "license": "MIT",
            "bin": {"d": "d.js"}, "optional": null}));
        let (one, other) = (vec![npm(json!({})), second.clone()], vec![second, npm(json!({}))]);
        let tree = Tree::found(Runner::Npx, objects(&one)).unwrap();
        assert_eq!(tree, Tree::found(Runner::Npx, objects(&other)).unwrap());
        let expected = format!(
            r#"{{"bin":{{"d":"d.js"}},"integrity":"{SHA512}","path":"node_modules/@b/c/node_modules/d","version":"1.0.0"}}"#
        );
        assert_eq!(tree.lines()[0], expected);
        assert_eq!(Tree::locked(Runner::Npx, tree.lines()), Ok(tree.clone()));
        assert!(tree.top(Runner::Npx, "a").is_some() && tree.top(Runner::Npx, "d").is_none());
        let tree = Tree::found(Runner::Uvx, objects(&[pypi(json!({"name": "B_c"})), pypi(json!({}))])).unwrap();
        let top = tree.top(Runner::Uvx, "b.C[x]").unwrap();
        assert!(has_integrity(&top, &format!("sha256:{}", "0".repeat(64))) && !has_integrity(&top, "sha256:0"));
        assert!(has_integrity(&npm(json!({})), SHA512) && !has_integrity(&npm(json!({})), "sha512-B"));
    }

    #[test]
    fn what_could_not_be_held_to_a_hash_or_comes_from_elsewhere_is_refused_by_name() {
        for (change, says) in [
            (json!({"integrity": null}), "a 1.0.0 has no hash"),
            (json!({"integrity": "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="}), "a 1.0.0 has no hash"),
            (json!({"integrity": "sha512-"}), "a 1.0.0 has no hash"),
            (json!({"version": null}), "a has no version"),
            (json!({"version": "file:.."}), "a file:.. has no version"),
            (json!({"path": "a"}), "a 1.0.0 is no package"),
            (json!({"path": "node_modules/../a"}), "../a 1.0.0 is no package"),
            (json!({"path": "node_modules/a/b"}), "a/b 1.0.0 is no package"),
            (json!({"name": "file:.."}), "file:.. 1.0.0 is no package"),
            (json!({"link": true}), "a 1.0.0 is a link"),
        ] {
            let said = Tree::found(Runner::Npx, objects(&[npm(change.clone())])).unwrap_err();
            assert!(said.starts_with(says), "{change}: {said}");
            assert!(Tree::locked(Runner::Npx, &[npm(change.clone()).to_string()]).is_err(), "{change}");
        }
        for (change, says) in [
            (json!({"sha256": []}), "a 1.0 has no sha256"),
            (json!({"sha256": ["0".repeat(63)]}), "a 1.0 has no sha256"),
            (json!({"sha256": ["0".repeat(64), "x"]}), "a 1.0 has no sha256"),
            (json!({"url": "https://h/a.whl --index-url=x"}), "a 1.0 is no package"),
            (json!({"url": "git+https://h/a"}), "a 1.0 is no package"),
            (json!({"name": "-r x"}), "-r x 1.0 is no package"),
            (json!({"version": "1 --pre"}), "a 1 --pre has no version"),
        ] {
            let said = Tree::found(Runner::Uvx, objects(&[pypi(change.clone())])).unwrap_err();
            assert!(said.starts_with(says), "{change}: {said}");
            assert!(Tree::locked(Runner::Uvx, &[pypi(change.clone()).to_string()]).is_err(), "{change}");
        }
        let twice = Tree::found(Runner::Npx, objects(&[npm(json!({})), npm(json!({"version": "2.0.0"}))]));
        assert_eq!(twice.unwrap_err(), "node_modules/a is in it twice");
        let said = Tree::locked(Runner::Npx, &[npm(json!({"resolved": "https://evil/a.tgz"})).to_string()]);
        assert_eq!(said.unwrap_err(), "a 1.0.0 has an unknown member \"resolved\"");
        assert!(Tree::locked(Runner::Uvx, &["{".to_owned()]).unwrap_err().starts_with("a line of it is no package"));
        assert!(Tree::found(Runner::Npx, objects(&[npm(json!({"integrity": null, "inBundle": true}))])).is_ok());
    }
}
