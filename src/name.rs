//! Names that are parsed once and trusted afterwards. Knows nothing of configuration files, JSON-RPC or engines.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// Longest exposed tool name: 64 is the limit of the model interfaces, less room for a client's own prefix.
pub const EXPOSED_MAX: usize = 48;

/// Hex digits of the hash that keeps a shortened name unique and stable.
const SUFFIX_DIGITS: usize = 8;

/// A name that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name:?} {why}")]
pub struct BadName {
    what: &'static str,
    name: String,
    why: &'static str,
}

/// The configured name of a server: what a person wrote, plus the form that is legal in tool names, container names and
/// volume names.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName {
    written: Arc<str>,
    slug: Arc<str>,
}

impl ServerName {
    /// Accepts 1 to 64 characters: letters, digits, space and `. _ - ( )`, beginning with a letter or digit, without `..`.
    pub fn parse(written: &str) -> Result<Self, BadName> {
        let bad = |why| Err(BadName { what: "server name", name: written.chars().take(80).collect(), why });
        if written.is_empty() {
            return bad("is empty");
        }
        if written.len() > 64 {
            return bad("is longer than 64 characters");
        }
        if !written.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return bad("must begin with a letter or a digit");
        }
        if written.contains("..") {
            return bad("must not hold \"..\"");
        }
        if !written.chars().all(|c| c.is_ascii_alphanumeric() || " ._-()".contains(c)) {
            return bad("may hold only letters, digits, spaces and . _ - ( )");
        }
        let slug = legal(written).trim_end_matches('-').to_owned();
        Ok(ServerName { written: written.into(), slug: slug.into() })
    }

    /// The name as written in the configuration.
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// The form used in tool, container and volume names: only `[A-Za-z0-9_-]`.
    pub fn slug(&self) -> &str {
        &self.slug
    }

    /// Two servers whose keys are equal would share a prefix, a container name or a volume, and cannot coexist.
    pub fn collision_key(&self) -> String {
        self.slug.to_ascii_lowercase()
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.written)
    }
}

/// Replaces every run of characters outside `[A-Za-z0-9_-]` by one hyphen.
fn legal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            out.push(c);
        } else if !out.ends_with('-') {
            out.push('-');
        }
    }
    out
}

/// The name under which a client sees a server's tool.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExposedName(Arc<str>);

impl ExposedName {
    /// `server__tool`, a function of the two names alone, so that no other server can change it.
    ///
    /// The plain form is used only where it can be read in one way (no `__` in the server's part, nothing replaced,
    /// nothing cut); otherwise a hash over both original names is appended.
    pub fn prefixed(server: &ServerName, tool: &str) -> Self {
        let prefix = server.slug();
        let clean = legal(tool);
        let plain = !prefix.contains("__") && !prefix.ends_with('_') && clean == tool && !tool.is_empty();
        let full = format!("{prefix}__{clean}");
        if plain && full.len() <= EXPOSED_MAX {
            return ExposedName(full.into());
        }
        let mut hash = Sha256::new();
        hash.update(server.as_str().as_bytes());
        hash.update([0]);
        hash.update(tool.as_bytes());
        let hash = crate::hex(&hash.finalize());
        let suffix = &hash[..SUFFIX_DIGITS];
        let room = EXPOSED_MAX - SUFFIX_DIGITS - 1;
        let kept = &full[..full.len().min(room)];
        ExposedName(format!("{}_{suffix}", kept.trim_end_matches('_')).into())
    }

    /// Whether an exposed name can be one of that server's tools.
    pub fn may_be_of(exposed: &str, server: &ServerName) -> bool {
        let prefix = format!("{}__", server.slug());
        // What is kept of a name that is cut.
        let kept = prefix.len().min(EXPOSED_MAX - SUFFIX_DIGITS - 1);
        exposed.starts_with(prefix[..kept].trim_end_matches('_'))
            && (kept < prefix.len() || exposed.starts_with(&prefix))
    }

    /// The tool's own name, for a gateway with `names = "bare"`.
    pub fn bare(tool: &str) -> Self {
        ExposedName(tool.into())
    }

    /// The text that travels.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExposedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a principal is allowed to be, from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Role {
    /// Someone without credentials, where guests are let in.
    Guest,
    /// The default.
    User,
    /// Sees everything the configuration offers.
    Admin,
}

impl Role {
    /// Parses a role; an unknown one is refused, never mapped.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        match text {
            "guest" => Ok(Role::Guest),
            "user" => Ok(Role::User),
            "admin" => Ok(Role::Admin),
            other => Err(BadName { what: "role", name: other.to_owned(), why: "is none of guest, user, admin" }),
        }
    }

    /// The word in configuration, audit and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Guest => "guest",
            Role::User => "user",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who a request comes from.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Principal {
    /// The identity; `None` for a guest.
    pub id: Option<Arc<str>>,
    /// The role, from the credential or the operator, never from what the caller writes.
    pub role: Role,
}

impl Principal {
    /// A word for keys, labels and messages: the id, or `guest`.
    pub fn key(&self) -> &str {
        self.id.as_deref().unwrap_or("guest")
    }
}

/// The identity of one call through the whole path: time-ordered, unique, in every record of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallId(uuid::Uuid);

impl CallId {
    /// A new identity.
    #[allow(clippy::new_without_default, reason = "an identity has no default")]
    pub fn new() -> Self {
        CallId(uuid::Uuid::now_v7())
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> ServerName {
        ServerName::parse(name).unwrap()
    }

    #[test]
    fn server_names_that_could_leave_their_place_are_refused() {
        for bad in ["", "../../etc", "a/b", "a..b", "-x", ".x", "a\u{200b}", "é", &"x".repeat(65)] {
            assert!(ServerName::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(server("My.Srv (dev)").slug(), "My-Srv-dev");
        assert_eq!(server("My.Srv (dev)").collision_key(), server("my-srv-dev").collision_key());
    }

    #[test]
    fn an_exposed_name_is_legal_short_stable_and_unambiguous() {
        let exposed = |s: &str, t: &str| ExposedName::prefixed(&server(s), t).to_string();
        assert_eq!(exposed("s1", "echo"), "s1__echo");
        assert_ne!(exposed("a", "b__c"), exposed("a__b", "c"));
        assert_ne!(exposed("a_", "b"), exposed("a", "_b"));
        assert_ne!(exposed("s", "a.b"), exposed("s", "a-b"));
        let long = "x".repeat(100);
        for (s, t) in [("vendor.long-named-management-server", long.as_str()), ("s", "naïve tool"), ("s", "")] {
            let name = exposed(s, t);
            assert!(name.len() <= EXPOSED_MAX, "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            assert_eq!(name, exposed(s, t));
        }
        assert_ne!(exposed("s", &format!("{long}1")), exposed("s", &format!("{long}2")));
    }

    #[test]
    fn roles_are_ordered_and_unknown_ones_refused() {
        assert!(Role::Guest < Role::User && Role::User < Role::Admin);
        for bad in ["", "root", "Admin", "user "] {
            assert!(Role::parse(bad).is_err(), "{bad:?}");
        }
    }
}
