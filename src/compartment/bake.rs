//! Turns a package of npm or PyPI into an image that starts without a network. Knows nothing of configuration files,
//! instances or MCP.
//!
//! At most three builds by the engine, each from a context made here, none of which needs BuildKit:
//!
//! 1. *resolve*, only where no exact version was asked for: finds the version, and leaves nothing;
//! 2. *install*: as the unprivileged user, with the engine's default network, into `/opt/server`;
//! 3. *seal*: the runtime plus that folder, now root's and read-only for the server, with the program as entry point
//!    and what it was made of as labels. Nothing runs, and there is no network.
//!
//! What the second leaves is removed, and an image with the same inputs as an earlier one is not built again.
//!
//! **No package's own code runs here.** npm's lifecycle scripts are off; Python packages are taken as wheels only, and
//! compiled by a Python that does not read their start-up files. A build has a network and reaches what the host serves on it, so to run a stranger's install script would give a
//! server with `network = "none"` more than was asked for. The price: an npm package that fetches or compiles a native
//! module while it is installed lacks it (the bake names every package whose script did not run), and a Python package
//! without a wheel is refused by name.
//!
//! Everything that came from a configuration is checked again, and travels as a JSON file, never in a command line.

use bollard::Docker;

use self::inputs::Inputs;
use self::job::Job;
use crate::config::Package;
use crate::error::Fault;
use crate::name::ServerName;

pub(super) mod build;
pub(super) mod context;
mod executable;
mod inputs;
mod job;
pub(super) mod output;
mod recipe;
mod words;

/// Label: runner and name of the package in an image, `npx:NAME`.
pub const LABEL_PACKAGE: &str = "org.bulkhead.package";
/// Label: its exact version.
pub const LABEL_VERSION: &str = "org.bulkhead.version";
/// Label: the registry's hash of it; empty where the registry left several to choose from.
pub const LABEL_INTEGRITY: &str = "org.bulkhead.integrity";
/// Label: the program that the image starts.
pub const LABEL_EXECUTABLE: &str = "org.bulkhead.executable";
/// Label: hash over everything that decides what is in the image.
pub const LABEL_INPUTS: &str = "org.bulkhead.inputs";
/// Label on the containers and passing images of one bake: its identity. What carries it later is left from a crash.
pub const LABEL_BAKE: &str = "org.bulkhead.bake";

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
    /// Whether the image was there already.
    pub reused: bool,
}

/// Receives one line at a time about what is going on.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Makes the image of a package on top of the image `runtime`, or finds the one made earlier from the same inputs.
///
/// Dropping the future ends the build, and the engine removes the build's container.
pub async fn bake(
    docker: &Docker,
    server: &ServerName,
    package: &Package,
    runtime: &str,
    progress: Progress<'_>,
) -> Result<Baked, Fault> {
    let inputs = Inputs::check(package)?;
    let job = Job::new(docker, inputs, runtime, progress).await?;
    let outcome = work(&job, server).await;
    job.clear().await;
    outcome
}

/// Resolve, look for an earlier image, install, seal.
async fn work(job: &Job<'_>, server: &ServerName) -> Result<Baked, Fault> {
    let version = match job.inputs.exact_version() {
        Some(exact) => exact.to_owned(),
        None => job.resolve().await?,
    };
    let pinned = job.inputs.pin(&job.runtime, &version)?;
    let tag = pinned.tag(server);
    if let Some(found) = job.find(&pinned).await? {
        job.name(&found.image, &tag).await?;
        return Ok(found);
    }
    let installed = job.install(&pinned).await?;
    let program = executable::pick(job.inputs.package, &installed.programs, &|line| job.say(line))?;
    job.seal(&pinned, &installed, program, &tag).await
}
