//! Everything that decides what is in a baked image: checked, pinned, hashed and named. Pure.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::settings::Settings;
use super::tree::Tree;
use super::{recipe, words};
use crate::config::{Package, Runner};
use crate::error::{Class, Fault};
use crate::name::ServerName;

/// Hex digits of the inputs' hash in an image's tag.
const TAG_DIGITS: usize = 12;

/// A package whose every part is known to be what it should be, and nothing that a runner takes for an option, a file
/// or an address.
pub(super) struct Inputs<'a> {
    pub package: &'a Package,
    /// The version asked for; `None` is the newest.
    version: Option<&'a str>,
}

/// The same with an exact version, and all that comes with it.
pub(super) struct Pinned {
    pub version: String,
    pub tree: Tree,
    /// Lower-case hex of SHA-256 over all of it.
    pub hash: String,
}

/// What the script is to do.
#[derive(Clone, Copy)]
pub(super) enum Task<'a> {
    /// Find everything that comes with the package.
    Resolve,
    /// Install that.
    Install(&'a Pinned),
}

// === impl Inputs ===

impl<'a> Inputs<'a> {
    /// Refuses what the configuration should have refused before.
    pub fn check(package: &'a Package) -> Result<Self, Fault> {
        let executable = package.executable.as_deref();
        let version = package.version.as_deref().filter(|v| *v != "latest");
        let npx = package.runner == Runner::Npx;
        let name_fits = if npx { words::npm_name(&package.name) } else { words::pypi_name(&package.name) };
        require(name_fits, "package name", &package.name)?;
        version.map_or(Ok(()), check_version)?;
        require(executable.is_none_or(|e| words::word(e, "._+-")), "executable", executable.unwrap_or_default())?;
        for with in &package.with {
            require(
                if npx { words::npm_extra(with).is_some() } else { words::pypi_extra(with) },
                "extra requirement",
                with,
            )?;
        }
        Ok(Inputs { package, version })
    }

    /// `npx:NAME`, the word for it in labels and messages.
    pub fn label(&self) -> String {
        format!("{}:{}", self.runner(), self.package.name)
    }

    /// The version as the registry is asked for it.
    pub fn asked(&self) -> &'a str {
        self.version.unwrap_or("latest")
    }

    /// With the version and the tree that were found or locked, on that runtime image.
    pub fn pin(&self, runtime: &str, version: &str, tree: Tree) -> Result<Pinned, Fault> {
        check_version(version)?;
        let mut with = self.package.with.clone();
        with.sort();
        let everything = json!([
            runtime,
            self.label(),
            version,
            with,
            self.package.executable,
            tree.lines(),
            recipe::script(self.package.runner),
            recipe::DIGEST,
            recipe::seal_file("", "", &[]),
        ]);
        let hash = crate::hex(&Sha256::digest(everything.to_string()));
        Ok(Pinned { version: version.to_owned(), tree, hash })
    }

    /// The line that tells the script what to do, to be answered on one that begins with `marker`.
    pub fn order(&self, task: Task<'_>, settings: &Settings, marker: &str) -> Value {
        let npx = self.package.runner == Runner::Npx;
        let (mode, version, tree) = match task {
            Task::Resolve => ("resolve", self.asked(), Vec::new()),
            Task::Install(pinned) => ("install", &*pinned.version, pinned.tree.packages()),
        };
        let newest = version == "latest" && !npx;
        let mut order = settings.members();
        let own = json!({
            "mode": mode,
            "marker": marker,
            "name": self.package.name,
            "version": if newest { "" } else { version },
            "with": if npx { npm_extras(&self.package.with) } else { json!(self.package.with) },
            "executable": self.package.executable,
            "tree": tree,
            "digest": recipe::DIGEST,
        });
        if let (Some(order), Value::Object(own)) = (order.as_object_mut(), own) {
            order.extend(own);
        }
        order
    }

    fn runner(&self) -> &'static str {
        match self.package.runner {
            Runner::Npx => "npx",
            Runner::Uvx => "uvx",
        }
    }
}

// === impl Pinned ===

impl Pinned {
    /// `bulkhead/server-NAME:VERSION-INPUTS`: for people; the image is used by its identity.
    pub fn tag(&self, server: &ServerName) -> String {
        let slug = server.collision_key();
        let slug = slug.split(['-', '_']).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        let version = self.version.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
        let version: String = version.take(80).collect();
        format!("bulkhead/server-{slug}:{version}-{}", &self.hash[..TAG_DIGITS])
    }
}

fn npm_extras(with: &[String]) -> Value {
    let pairs = with.iter().filter_map(|text| words::npm_extra(text));
    Value::Object(pairs.map(|(name, range)| (name.to_owned(), json!(range))).collect::<Map<_, _>>())
}

fn check_version(text: &str) -> Result<(), Fault> {
    require(words::word(text, "._+!-"), "version", text)
}

fn require(holds: bool, what: &str, text: &str) -> Result<(), Fault> {
    let refusal = || Fault::new(Class::Usage, format!("{what} {text:?} is not one that a package can be baked from"));
    if holds { Ok(()) } else { Err(refusal()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(runner: Runner, name: &str, version: Option<&str>) -> Package {
        let version = version.map(str::to_owned);
        Package { runner, name: name.to_owned(), version, with: vec![], args: vec![], executable: None }
    }

    fn tree(name: &str) -> Tree {
        let line = json!({"name": name, "version": "1", "sha256": ["0".repeat(64)]}).to_string();
        Tree::locked(Runner::Uvx, &[line]).unwrap()
    }

    fn with(runner: Runner, with: &str) -> Package {
        Package { with: vec![with.to_owned()], ..package(runner, "x", None) }
    }

    #[test]
    fn every_part_is_checked() {
        let fine = with(Runner::Uvx, "mcp<2");
        assert!(Inputs::check(&fine).is_ok());
        let hostile = "x; $(id)".to_owned();
        for package in [
            Package { name: hostile.clone(), ..fine.clone() },
            Package { version: Some(hostile.clone()), ..fine.clone() },
            Package { executable: Some(hostile.clone()), ..fine.clone() },
            with(Runner::Uvx, "--index-url=http://h"),
            with(Runner::Npx, "x@file:.."),
        ] {
            let fault = Inputs::check(&package).err().unwrap();
            assert_eq!(fault.class, Class::Usage);
        }
        assert!(Inputs::check(&fine).unwrap().pin("sha256:1", &hostile, tree("a")).is_err());
    }

    #[test]
    fn what_registries_have_is_accepted() {
        for (runner, name, version) in [
            (Runner::Npx, "@modelcontextprotocol/server-memory", "2026.8.31"),
            (Runner::Npx, "JSONStream", "1.3.5-beta.1+build"),
            (Runner::Npx, "x", "next"),
            (Runner::Uvx, "mcp_server.time", "1!2.0.post1+cpu"),
            (Runner::Uvx, "mcp[cli,ws]", "1.0"),
        ] {
            assert!(Inputs::check(&package(runner, name, Some(version))).is_ok(), "{name} {version}");
        }
        for (runner, extra) in
            [(Runner::Npx, "@a/b@^1.2 || >=3"), (Runner::Npx, "zod"), (Runner::Uvx, "mcp[cli]<2; python_version>'3'")]
        {
            assert!(Inputs::check(&with(runner, extra)).is_ok(), "{extra}");
        }
        assert_eq!(npm_extras(&["@a/b@^1".into(), "zod".into()]), json!({"@a/b": "^1", "zod": "latest"}));
    }

    #[test]
    fn every_input_changes_the_hash_and_their_order_does_not() {
        let base = Package { with: vec!["a".into(), "b".into()], ..package(Runner::Uvx, "x", None) };
        let hash = |package: &Package, runtime: &str, version: &str| {
            Inputs::check(package).unwrap().pin(runtime, version, tree("a")).unwrap().hash
        };
        let first = hash(&base, "sha256:1", "1.0");
        assert_eq!(first, hash(&Package { with: vec!["b".into(), "a".into()], ..base.clone() }, "sha256:1", "1.0"));
        assert_eq!(first, hash(&Package { args: vec!["--x".into()], ..base.clone() }, "sha256:1", "1.0"));
        for other in [
            hash(&base, "sha256:2", "1.0"),
            hash(&base, "sha256:1", "1.1"),
            Inputs::check(&base).unwrap().pin("sha256:1", "1.0", tree("b")).unwrap().hash,
            hash(&Package { with: vec![], ..base.clone() }, "sha256:1", "1.0"),
            hash(&Package { name: "y".into(), ..base.clone() }, "sha256:1", "1.0"),
            hash(&Package { runner: Runner::Npx, ..base.clone() }, "sha256:1", "1.0"),
            hash(&Package { executable: Some("e".into()), ..base.clone() }, "sha256:1", "1.0"),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_tag_is_one_that_every_engine_takes() {
        let tag = |server: &str, version: &str| {
            let hash = "0123456789abcdef".to_owned();
            let pinned = Pinned { version: version.to_owned(), tree: tree("a"), hash };
            pinned.tag(&ServerName::parse(server).unwrap())
        };
        assert_eq!(tag("My.Srv (dev)", "1.0+cpu"), "bulkhead/server-my-srv-dev:1.0-cpu-0123456789ab");
        assert_eq!(tag("a__-_b_", "1!2"), "bulkhead/server-a-b:1-2-0123456789ab");
        assert!(tag("a", &"1".repeat(200)).len() < 120);
    }
}
