//! One build by the engine: with a limit on time and memory, no container left behind. Knows nothing of packages.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::BuildImageOptionsBuilder;
use futures_util::StreamExt as _;

use super::output::Output;
use crate::error::{Class, Fault};

/// Longest that one build may take.
const LIMIT: Duration = Duration::from_secs(600);
/// Memory of a build's container, bytes; the API takes 32 bits.
const MEMORY: i32 = 1536 << 20;

/// What to build.
pub(in crate::compartment) struct Build<'a> {
    pub context: Vec<u8>,
    pub tag: &'a str,
    pub labels: HashMap<&'a str, String>,
    /// A mode of the engine's; `None` is its default, from which registries can be reached.
    pub network: Option<&'a str>,
    /// Whether a step that was done before may be taken from the engine's cache. It does not say again what it said.
    pub cache: bool,
}

/// Builds; every line goes through `output` to `show`. Dropped, the engine ends the build.
pub(in crate::compartment) async fn run(
    docker: &Docker,
    build: Build<'_>,
    output: &mut Output,
    show: &(dyn Fn(&str) + Sync),
) -> Result<(), Fault> {
    let drained = drain(docker, build, output, show);
    match tokio::time::timeout(LIMIT, drained).await {
        Ok(result) => result,
        Err(_) => Err(Fault::new(Class::Timeout, format!("took longer than {} s", LIMIT.as_secs()))),
    }
}

async fn drain(
    docker: &Docker,
    build: Build<'_>,
    output: &mut Output,
    show: &(dyn Fn(&str) + Sync),
) -> Result<(), Fault> {
    let options = BuildImageOptionsBuilder::new()
        .t(build.tag)
        .labels(&build.labels)
        .nocache(!build.cache)
        .rm(true)
        .forcerm(true)
        .memory(MEMORY)
        .memswap(MEMORY);
    let options = match build.network {
        Some(mode) => options.networkmode(mode),
        None => options,
    };
    let body = bollard::body_full(build.context.into());
    let mut events = pin!(docker.build_image(options.build(), None, Some(body)));
    while let Some(event) = events.next().await {
        match event {
            Ok(info) => output.feed(info.stream.as_deref().unwrap_or_default(), show),
            Err(Error::DockerStreamError { error }) => return Err(failed(output, &error)),
            // A Dockerfile that cannot be read as one.
            Err(Error::DockerResponseServerError { status_code: 400, message }) => {
                return Err(failed(output, &message));
            }
            Err(error) => return Err(engine("cannot build an image", &error)),
        }
    }
    Ok(())
}

/// The builder's own message is a last resort: it repeats the step and the exit code.
fn failed(output: &Output, error: &str) -> Fault {
    let reason = output.reason().unwrap_or_else(|| error.trim().to_owned());
    let tail = output.tail().join("\n  ");
    Fault::new(Class::Unavailable, reason.clone()).with_inward(format!("{reason}; the build ended with\n  {tail}"))
}

/// A failure of the engine itself.
pub(in crate::compartment) fn engine(what: &str, error: &Error) -> Fault {
    Fault::new(Class::Engine, what).with_inward(format!("{what}: {error}"))
}
