//! Turns a package of npm or PyPI into an image that starts without a network. Knows nothing of configuration files,
//! instances or MCP.
//!
//! 1. *resolve*, only where nothing is locked: the version, and the whole tree of packages that comes with it, each with
//!    its hash;
//! 2. *install*: exactly that tree, as the unprivileged user, into `/opt/server`; both in one container with the engine's
//!    default network, which is told what to do, and who asks, over its input alone ([`worker`]);
//! 3. *seal*: a build of the runtime plus that folder, now root's and read-only for the server, with the program as entry
//!    point and what it was made of as labels. Nothing runs, and there is no network.
//!
//! What the second leaves is removed, and an image with the same inputs as an earlier one is not made again: the tree is
//! one of them, so that a bake which was done is found. One that was interrupted begins anew. Its downloads are in memory
//! and not in a volume, for npm keeps with them what a registry asks it to, a login too.
//!
//! **The same tree, the same bytes.** What is locked is installed without asking what else there is: by `npm ci`, and by
//! `uv pip sync` that takes no file without a listed hash. Bytecode is compiled in one order, npm's own notes are left
//! out, and modes are set, so that the hash over everything is the same wherever and whenever the tree is baked on the
//! same runtime for the same processor.
//!
//! **No package's own code runs here.** npm's lifecycle scripts are off; Python packages are taken as wheels only, and
//! compiled by a Python that does not read their start-up files. A bake has a network and reaches what the host serves on
//! it, so to run a stranger's install script would give a server with `network = "none"` more than was asked for. The
//! price: an npm package that fetches or compiles a native module while it is installed lacks it (the bake names every
//! package whose script did not run), and a Python package without a wheel is refused by name.
//!
//! Everything that came from a configuration or a lock is checked again, and travels as JSON, never in a command line.

use bollard::Docker;

use self::inputs::{Inputs, Pinned};
use self::job::Job;
use self::output::Installed;
use self::tree::{Tree, has_integrity};
use crate::config::{Package, Registry};
use crate::error::{Class, Fault};
use crate::name::ServerName;

pub(super) mod build;
pub(super) mod context;
mod executable;
mod hidden;
mod inputs;
mod job;
pub(super) mod output;
mod recipe;
mod settings;
mod tree;
mod words;
mod worker;

/// Label: runner and name of the package in an image, `npx:NAME`.
pub const LABEL_PACKAGE: &str = "org.bulkhead.package";
/// Label: its exact version.
pub const LABEL_VERSION: &str = "org.bulkhead.version";
/// Label: the registry's hash of it; empty where the registry left several to choose from.
pub const LABEL_INTEGRITY: &str = "org.bulkhead.integrity";
/// Label: the program that the image starts.
pub const LABEL_EXECUTABLE: &str = "org.bulkhead.executable";
/// Label: hash over all files of the package and of what comes with it.
pub const LABEL_CONTENT: &str = "org.bulkhead.content";
/// Label: hash over everything that decides what is in the image.
pub const LABEL_INPUTS: &str = "org.bulkhead.inputs";
/// Label on the containers and passing images of one bake: its identity. What carries it later is left from a crash.
pub const LABEL_BAKE: &str = "org.bulkhead.bake";

/// A package to be made an image.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The server that it is for, which the image is named after.
    pub server: &'a ServerName,
    /// The package, as it is configured.
    pub package: &'a Package,
    /// Where it comes from.
    pub registry: &'a Registry,
    /// What it must be; none is whatever the registry has now.
    pub locked: Option<Locked<'a>>,
}

/// What was approved of a package, as an earlier [`Baked`] had it.
#[derive(Clone, Copy, Debug)]
pub struct Locked<'a> {
    /// Its exact version.
    pub version: &'a str,
    /// The registry's hash of it, where there was one.
    pub integrity: Option<&'a str>,
    /// All packages, [`Baked::tree`].
    pub tree: &'a [String],
    /// Hash over all files, [`Baked::content`]; none where it is not to be compared, as for another processor.
    pub content: Option<&'a str>,
}

/// A package as an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baked {
    /// The image: `sha256:…`.
    pub image: String,
    /// The package's name.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// The registry's hash of it, in that registry's spelling: `sha512-…` or `sha256:…`.
    pub integrity: Option<String>,
    /// The program that the image starts.
    pub executable: String,
    /// All packages that it is made of, itself included: one JSON object each, in a stable order, without line breaks.
    pub tree: Vec<String>,
    /// SHA-256 over all files under `/opt/server`, their names, kinds and modes, lower-case hex.
    pub content: String,
    /// Whether the image was there already.
    pub reused: bool,
}

/// Receives one line at a time about what is going on.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Makes the image of a package on top of the image `runtime`, or finds the one made earlier from the same inputs.
///
/// Dropping the future ends the bake, and its container is removed.
pub async fn bake(docker: &Docker, order: &Order<'_>, runtime: &str, progress: Progress<'_>) -> Result<Baked, Fault> {
    let inputs = Inputs::check(order.package)?;
    let tree = order.locked.map(|locked| approved(&inputs, locked)).transpose()?;
    let job = Job::new(docker, inputs, order.registry, runtime, progress).await?;
    let outcome = work(&job, order, tree).await;
    job.clear().await;
    outcome
}

/// The tree of a lock, if it is whole and is the package's.
fn approved(inputs: &Inputs<'_>, locked: Locked<'_>) -> Result<Tree, Fault> {
    let refused = |why: String| {
        Fault::new(Class::Usage, format!("the lock of {} cannot be used: {why}; lock it anew", inputs.label()))
    };
    let tree = Tree::locked(inputs.package.runner, locked.tree).map_err(refused)?;
    let top = tree.top(inputs.package.runner, &inputs.package.name);
    let top = top.ok_or_else(|| refused("the package is not in its tree".to_owned()))?;
    if top["version"] != locked.version {
        return Err(refused(format!("its tree has version {}, not {}", top["version"], locked.version)));
    }
    match locked.integrity {
        Some(integrity) if !has_integrity(&top, integrity) => {
            Err(refused(format!("its tree has another hash for {} {}", inputs.package.name, locked.version)))
        }
        _ => Ok(tree),
    }
}

/// Resolve, look for an earlier image, install, seal.
async fn work(job: &Job<'_>, order: &Order<'_>, tree: Option<Tree>) -> Result<Baked, Fault> {
    let (version, tree) = match (order.locked, tree) {
        (Some(locked), Some(tree)) => (locked.version.to_owned(), tree),
        _ => job.resolve().await?,
    };
    let pinned = job.inputs.pin(&job.runtime, &version, tree)?;
    let tag = pinned.tag(order.server);
    let content = order.locked.and_then(|locked| locked.content);
    if let Some(found) = job.find(&pinned, content).await? {
        job.name(&found.image, &tag).await?;
        return Ok(found);
    }
    let installed = job.install(&pinned).await?;
    as_locked(&pinned, &installed, content).map_err(|fault| job.cannot(fault))?;
    let program = executable::pick(job.inputs.package, &installed.programs, &|line| job.say(line))?;
    job.keep().await?;
    job.seal(&pinned, &installed, program, &tag).await
}

/// Whether what was installed is what it was to be.
fn as_locked(pinned: &Pinned, installed: &Installed, content: Option<&str>) -> Result<(), Fault> {
    let (version, found) = (&installed.version, &installed.content);
    if *version != pinned.version {
        let text = format!("version {version:?} was installed, not {:?}", pinned.version);
        return Err(Fault::new(Class::Unavailable, text));
    }
    match content {
        Some(locked) if locked != found => {
            let text = format!(
                "the files that were installed have the hash {found}, not the locked {locked}: if the runtime image or the \
                 processor is another one than when it was locked, lock it anew with --update"
            );
            Err(Fault::new(Class::Unavailable, text))
        }
        _ => Ok(()),
    }
}
