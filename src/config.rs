//! What the operator asked for, after every check: the only form of configuration that the rest of the program sees.
//! Knows nothing of JSON-RPC, containers or clients.
//!
//! [`mod@file`] reads what was written (TOML, JSON, JSONC) with the place of every key; [`mod@import`] puts the entries that other
//! clients write into our own words; [`mod@resolve`] turns the whole into [`Config`] or into the list of all [`mod@fault`]s, with
//! [`mod@mounts`] as the judge of host paths. [`mod@env`] is the only reader of the process environment. [`mod@change`] holds a new
//! configuration against the one in force; [`mod@edit`] adds servers to the file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use self::fault::Place;
use crate::egress::{self, rule::Rules};
use crate::name::{Role, ServerName};

pub mod change;
pub mod edit;
pub mod env;
mod expand;
pub mod fault;
pub mod file;
pub mod import;
pub mod mounts;
mod quantity;
mod reader;
pub mod registry;
pub mod resolve;
#[cfg(test)]
mod testing;

pub use registry::Registry;

/// The whole configuration, resolved.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it came from.
    pub path: PathBuf,
    /// SHA-256 over the file's bytes, lower-case hex.
    pub digest: String,
    /// `[gateway]`.
    pub gateway: Gateway,
    /// `[front.stdio]`.
    pub stdio: StdioFront,
    /// `[limits]`: what one principal may do, by role.
    pub limits: Limits,
    /// `[limits.total]`: caps over all instances.
    pub total: Total,
    /// `[audit]`.
    pub audit: Audit,
    /// `[registry]`: where packages are baked from.
    pub registry: Registry,
    /// `[servers.*]`, in the order of the file.
    pub servers: Vec<Server>,
    /// What of the file was not taken over as written although nothing is wrong with it; to be logged.
    pub notes: Vec<String>,
}

impl Config {
    /// The server of that configured name.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|s| s.name.as_str() == name)
    }
}

/// `[gateway]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// `serverInfo.name`.
    pub name: String,
    /// How tools are named.
    pub names: Names,
    /// When instances start.
    pub start: Start,
    /// What has to be approved by somebody.
    pub approval: Approval,
}

/// What has to be approved by somebody before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Changes: what a server offers at first is pinned.
    FirstUse,
    /// Everything.
    Explicit,
}

/// How exposed names are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// `server__tool`.
    Prefixed,
    /// The tool's own name; every claimant of a collision is withheld.
    Bare,
}

/// When instances start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first call.
    OnDemand,
    /// With the gateway.
    Eager,
}

/// `[front.stdio]`: the principal behind the pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioFront {
    /// Its identity in audit and limits.
    pub id: String,
    /// Its role.
    pub role: Role,
}

/// A rate with a burst, and a cap on calls at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Calls per minute once the burst is used up; at least 1. `"2/s"` is 120.
    pub per_minute: u32,
    /// Calls that may come at once; at least 1.
    pub burst: u32,
    /// Calls in flight at the same time; at least 1.
    pub concurrent: u32,
}

/// `[limits]` and `[limits.role.*]`, every role resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For guests.
    pub guest: RateLimits,
    /// For users.
    pub user: RateLimits,
    /// For admins.
    pub admin: RateLimits,
}

impl Limits {
    /// The limits of a role.
    pub fn of(&self, role: Role) -> RateLimits {
        match role {
            Role::Guest => self.guest,
            Role::User => self.user,
            Role::Admin => self.admin,
        }
    }
}

/// `[limits.total]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// Bytes of memory over all instances.
    pub memory: u64,
    /// Processors over all instances.
    pub cpus: f64,
    /// Number of instances.
    pub instances: usize,
}

/// `[audit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The file, relative to the state directory unless absolute.
    pub path: PathBuf,
    /// What is kept of arguments.
    pub arguments: Arguments,
    /// When records are on disk.
    pub sync: Sync,
}

/// What the audit keeps of a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// Size and keyed hash.
    Hash,
}

/// When an intent record is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// On disk before the call leaves.
    Always,
    /// Written before the call leaves; on disk soon after.
    Batch,
}

/// One downstream server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name.
    pub name: ServerName,
    /// How it runs.
    pub run: Run,
    /// Why it is not served at all although it stands in the file (a variable it needs is not set); shown everywhere.
    pub disabled: Option<String>,
    /// What it is disabled for lack of, where that is the reason, and where the file asks for it.
    pub lacks: Vec<(Place, String)>,
    /// The least role that sees it.
    pub min_role: Role,
    /// Which of its tools are shown and to whom.
    pub tools: ToolRules,
    /// Limits on its instances.
    pub resources: Resources,
    /// What it may reach.
    pub network: Network,
    /// How much of that, and for how long; counts where the gateway connects on its behalf.
    pub egress_limits: egress::passage::Limits,
    /// Declared environment: literal values and resolved secrets alike; nothing of it is ever printed.
    pub env: BTreeMap<String, Sensitive>,
    /// Who shares an instance.
    pub share: Share,
    /// Where a named volume keeps its state, if it has any.
    pub state: Option<String>,
    /// Whether it has a cache volume at the user's cache directory.
    pub cache: bool,
    /// Host paths it may see.
    pub mounts: Vec<Mount>,
    /// Whether its root file system is writable (shown as such).
    pub writable_root: bool,
    /// Its numeric user and group inside; never 0.
    pub uid: u32,
    /// Limits per principal for this server, on top of the general ones.
    pub limits: Option<RateLimits>,
    /// Deadline of a call without progress.
    pub timeout: Duration,
    /// Deadline of a call, progress or not.
    pub max_time: Duration,
    /// From start to a proven, initialized instance.
    pub start_timeout: Duration,
    /// An instance without calls for that long is stopped.
    pub idle_stop: Duration,
    /// Largest single message from the server, bytes.
    pub max_result: usize,
    /// SHA-256 over what runs and how it is confined, without secret values, lower-case hex. Roles, limits and deadlines
    /// are no part of it.
    pub digest: String,
    /// What that digest is over, in words; of what may hold a secret only a hash.
    pub settings: BTreeMap<String, String>,
}

impl Server {
    /// What one instance takes of the totals, with its guard or fence where it has one.
    pub fn takes(&self) -> Resources {
        let own = self.resources;
        match self.network {
            Network::None => own,
            Network::Guarded { .. } => own.with(GUARD),
            Network::Bridge => own.with(FENCE),
        }
    }
}

/// What the guard of a server's network may use, each. What it carries goes through it twice, so it has a processor.
pub const GUARD: Resources = Resources { memory: 64 << 20, cpus: 1.0, pids: 16 };

/// What the fence of a server's network may use, each. It only holds what it has made: nothing goes through it.
pub const FENCE: Resources = Resources { memory: 16 << 20, cpus: 0.2, pids: 8 };

/// What a server in a container may reach beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// What a guard carries to the gateway, and the gateway lets through. At least one of the two is not empty.
    Guarded {
        /// Hosts and ports, by name.
        rules: Rules,
        /// Ports of the host's loopback that are the container's own, too; none of them twice.
        host_ports: Vec<u16>,
    },
    /// Public addresses, by a bridge of the engine's within a fence.
    Bridge,
}

/// How a server runs. Arguments and addresses may hold secrets, so `Debug` shows only how many there are.
#[derive(Clone, PartialEq, Eq)]
pub enum Run {
    /// A package baked into an image by `bulkhead lock`.
    Package(Package),
    /// An image that the engine has.
    Image {
        /// Its reference.
        reference: String,
        /// Replaces entrypoint and command.
        command: Option<Vec<String>>,
        /// Appended to the command (or to the image's own).
        args: Vec<String>,
    },
    /// A process of the host, by a written reason.
    Unisolated {
        /// Why.
        reason: Reason,
        /// Program and arguments.
        command: Vec<String>,
    },
    /// A remote server. Parsed, and disabled: not yet supported.
    Remote {
        /// Its address.
        url: String,
    },
}

impl Run {
    /// The word for it in status: `package`, `image`, `unisolated`, `remote`.
    pub fn kind(&self) -> &'static str {
        match self {
            Run::Package(_) => "package",
            Run::Image { .. } => "image",
            Run::Unisolated { .. } => "unisolated",
            Run::Remote { .. } => "remote",
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Run::Package(package) => package.fmt(f),
            Run::Image { reference, command, args } => f
                .debug_struct("Image")
                .field("reference", reference)
                .field("command", &command.as_deref().map(hidden))
                .field("args", &hidden(args))
                .finish(),
            Run::Unisolated { reason, command } => {
                f.debug_struct("Unisolated").field("reason", reason).field("command", &hidden(command)).finish()
            }
            Run::Remote { .. } => f.write_str("Remote(hidden)"),
        }
    }
}

/// Stands in `Debug` for texts that may hold secrets.
fn hidden(texts: &[String]) -> String {
    format!("({} hidden)", texts.len())
}

/// A package of a registry. Its arguments may hold secrets, so `Debug` shows only how many there are.
#[derive(Clone, PartialEq, Eq)]
pub struct Package {
    /// Which registry and runner.
    pub runner: Runner,
    /// Its name there, with scope or extras.
    pub name: String,
    /// The version asked for; `None` takes the newest when it is locked.
    pub version: Option<String>,
    /// Extra requirements beside the package.
    pub with: Vec<String>,
    /// Arguments of the server.
    pub args: Vec<String>,
    /// The executable, where it is not the one the package names by itself.
    pub executable: Option<String>,
}

impl fmt::Debug for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Package")
            .field("runner", &self.runner)
            .field("name", &self.name)
            .field("version", &self.version)
            .field("with", &self.with)
            .field("args", &hidden(&self.args))
            .field("executable", &self.executable)
            .finish()
    }
}

/// Which registry a package comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// npm.
    Npx,
    /// PyPI.
    Uvx,
}

/// Why a server runs unconfined: non-blank text that the operator wrote. Exists only with such a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// `None` where the text is blank.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Reason(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `tools = { allow, deny, min_role }`, matched against the server's own tool names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Patterns with `*`; empty allows all.
    pub allow: Vec<String>,
    /// Patterns with `*`; wins over `allow`.
    pub deny: Vec<String>,
    /// The least role for tools by pattern; the strictest match counts, on top of the server's own.
    pub min_role: Vec<(String, Role)>,
}

/// Limits on one instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resources {
    /// Bytes; swap is equal to it.
    pub memory: u64,
    /// Processors.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
}

impl Resources {
    /// Both together.
    pub fn with(self, other: Resources) -> Self {
        Resources { memory: self.memory + other.memory, cpus: self.cpus + other.cpus, pids: self.pids + other.pids }
    }
}

/// Who shares an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// One instance a principal.
    Principal,
    /// One instance a session.
    Session,
    /// One instance for all.
    All,
}

/// Where a server's cache is inside.
pub const CACHE: &str = "/home/mcp/.cache";

/// A host path that a server may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// On the host, absolute, links resolved, not one of the sensitive places.
    pub host: PathBuf,
    /// The same within its file system, where this machine tells: as a container's own list of mounts names it.
    pub within: Option<PathBuf>,
    /// In the container, absolute.
    pub at: String,
    /// Whether it may be written to.
    pub write: bool,
}

/// A value that is never shown: `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive(String);

impl Sensitive {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Sensitive(value.into())
    }

    /// The value, for the one place that hands it to a server.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
