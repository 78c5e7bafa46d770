//! Everything that decides what is in a baked image: checked, pinned, hashed and named. Pure.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::recipe;
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

/// The same with an exact version.
pub(super) struct Pinned {
    pub version: String,
    /// Lower-case hex of SHA-256 over all of it.
    pub hash: String,
}

/// What the script inside the build is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Resolve,
    Install,
}

// === impl Inputs ===

impl<'a> Inputs<'a> {
    /// Refuses what the configuration should have refused before.
    pub fn check(package: &'a Package) -> Result<Self, Fault> {
        let executable = package.executable.as_deref();
        let version = package.version.as_deref().filter(|v| *v != "latest");
        let npx = package.runner == Runner::Npx;
        let name_fits = if npx { npm_name(&package.name) } else { pypi_name(&package.name) };
        require(name_fits, "package name", &package.name)?;
        require(version.is_none_or(|v| word(v, "._+!-")), "version", version.unwrap_or_default())?;
        require(executable.is_none_or(|e| word(e, "._+-")), "executable", executable.unwrap_or_default())?;
        for with in &package.with {
            require(if npx { npm_extra(with).is_some() } else { one_line(with) }, "extra requirement", with)?;
        }
        Ok(Inputs { package, version })
    }

    /// `npx:NAME`, the word for it in labels and messages.
    pub fn label(&self) -> String {
        format!("{}:{}", self.runner(), self.package.name)
    }

    /// The version asked for, where it names one release and no other.
    pub fn exact_version(&self) -> Option<&'a str> {
        self.version.filter(|v| self.package.runner == Runner::Uvx || is_full_semver(v))
    }

    /// The version as the registry is asked for it.
    pub fn asked(&self) -> &'a str {
        self.version.unwrap_or("latest")
    }

    /// With the version that was found for it, on that runtime image.
    pub fn pin(&self, runtime: &str, version: &str) -> Pinned {
        let mut with = self.package.with.clone();
        with.sort();
        let everything = json!([
            runtime,
            self.label(),
            version,
            with,
            self.package.executable,
            recipe::script(self.package.runner),
            recipe::work_file("", "", self.package.runner),
            recipe::seal_file("", "", &[]),
        ]);
        let hash = crate::hex(&Sha256::digest(everything.to_string()));
        Pinned { version: version.to_owned(), hash }
    }

    /// The file that tells the script what to do, to be answered on a line that begins with `marker`.
    pub fn instructions(&self, mode: Mode, version: &str, marker: &str) -> Value {
        let npx = self.package.runner == Runner::Npx;
        let newest = version == "latest" && !npx;
        json!({
            "mode": if mode == Mode::Resolve { "resolve" } else { "install" },
            "marker": marker,
            "name": self.package.name,
            "version": if newest { "" } else { version },
            "with": if npx { npm_extras(&self.package.with) } else { json!(self.package.with) },
            "executable": self.package.executable,
        })
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

// === what a word may be ===

/// Letters and digits, and after the first one also `others`.
fn word(text: &str, others: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= 214
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// `name` or `@scope/name`: never `user/repository`, a path or an address.
fn npm_name(name: &str) -> bool {
    let part = |text| word(text, "._~-") && text != "node_modules";
    match name.strip_prefix('@').map(|rest| rest.split_once('/')) {
        None => part(name),
        Some(scoped) => scoped.is_some_and(|(scope, name)| part(scope) && part(name)),
    }
}

/// `name` or `name[extra,extra]`.
fn pypi_name(name: &str) -> bool {
    let part = |text| word(text, "._-");
    match name.strip_suffix(']').map(|rest| rest.split_once('[')) {
        None => part(name),
        Some(split) => split.is_some_and(|(name, extras)| part(name) && extras.split(',').all(part)),
    }
}

/// `name` or `name@range`, split. A range that holds `/` or `:` would be a file, a repository or an address.
fn npm_extra(text: &str) -> Option<(&str, &str)> {
    let split = text.char_indices().skip(1).find(|(_, c)| *c == '@');
    let (name, range) = split.map_or((text, "latest"), |(at, _)| (&text[..at], &text[at + 1..]));
    let fits = |c: char| c.is_ascii_alphanumeric() || ".+-^~<>=|* ".contains(c);
    (npm_name(name) && !range.trim().is_empty() && range.chars().all(fits)).then_some((name, range))
}

fn npm_extras(with: &[String]) -> Value {
    let pairs = with.iter().filter_map(|text| npm_extra(text));
    Value::Object(pairs.map(|(name, range)| (name.to_owned(), json!(range))).collect::<Map<_, _>>())
}

/// A requirement of Python's; it is an element of a list when it gets to uv, which reads it strictly.
fn one_line(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && !text.contains(char::is_control)
}

fn is_full_semver(text: &str) -> bool {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3 && numbers.iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn require(holds: bool, what: &str, text: &str) -> Result<(), Fault> {
    let refusal = || Fault::new(Class::Usage, format!("{what} {text:?} is not one that a package can be baked from"));
    if holds { Ok(()) } else { Err(refusal()) }
}
