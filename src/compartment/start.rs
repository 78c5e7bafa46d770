//! Starts a container from a compartment and proves it before anybody can speak to it. Knows no MCP.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::models::{ContainerInspectResponse, NetworkInspect};
use bollard::query_parameters::AttachContainerOptions;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::io::AsyncWrite;

use crate::downstream::link::{Link, Output};
use crate::error::{Class, Fault};

use super::Engine;
use super::create::Made;
use super::engine::{CALL, Refused};
use super::opening::{self, Opening};
use super::report::Report;
use super::seat::Seat;
use super::spec::Compartment;
use super::straight::straight;
use super::verify::{Evidence, Readings};

/// How long the report of a container is waited for that is refused already.
const SOON: Duration = Duration::from_secs(2);

/// A container that runs and is proven.
pub struct Confined {
    /// Its streams and its end.
    pub link: Link,
    /// Its id.
    pub container: String,
    /// The image's id.
    pub image: String,
    /// The proof.
    pub evidence: Evidence,
    /// Its processors, for as long as it runs.
    pub seat: Option<Arc<Seat>>,
    /// Its network as the kernel names it.
    pub namespace: String,
}

/// Starts the container and proves it within the time given. On any failure, and wherever this is dropped before its end,
/// nothing of it is left.
pub async fn start(engine: &Engine, mut compartment: Compartment, within: Duration) -> Result<Confined, Fault> {
    let mut made = None;
    let proven = tokio::time::timeout(within, seat_and_prove(engine, &mut compartment, &mut made));
    let proven = proven.await.unwrap_or_else(|_| {
        let text = format!("server {}: it was not started within {within:?}", compartment.server.name);
        Err(Fault::new(Class::Timeout, text))
    });
    let (streams, evidence, namespace) = match proven {
        Ok(proven) => proven,
        Err(fault) => return Err(undone(fault, made).await),
    };
    let process = made.and_then(Made::keep).ok_or_else(|| Fault::new(Class::Bug, "a proven container is missing"))?;
    let seat = compartment.seat;
    let process = process.seated(seat.clone());
    let container = process.id().to_owned();
    let link = Link { input: streams.input, output: streams.output, process: Box::new(process) };
    Ok(Confined { link, container, image: compartment.image, evidence, namespace, seat })
}

/// Removes what there is of the container, and adds to the fault how it ended where it ended by itself.
async fn undone(fault: Fault, made: Option<Made>) -> Fault {
    let Some(made) = made else { return fault };
    if fault.class != Class::Crashed {
        made.undo().await;
        return fault;
    }
    let ending = made.ending().await;
    let class = if ending.lost { Class::Engine } else { fault.class };
    Fault::new(class, format!("{}: {ending}", fault.outward)).with_inward(format!("{}: {ending}", fault.inward))
}

struct Streams {
    input: Pin<Box<dyn AsyncWrite + Send>>,
    output: BoxStream<'static, io::Result<Output>>,
}

/// Which processors an engine has is known from their number, but where it has others it names them in its refusal.
async fn seat_and_prove(
    engine: &Engine,
    compartment: &mut Compartment,
    made: &mut Option<Made>,
) -> Result<(Streams, Evidence, String), Fault> {
    for first in [true, false] {
        take_seat(engine, compartment).await?;
        match Box::pin(prove(engine, compartment, made)).await {
            Err(fault) if first && fault.class == Class::Isolation && engine.seats.learn(&fault.inward) => {}
            proven => return proven,
        }
    }
    Err(Fault::new(Class::Bug, "a start was neither proven nor refused"))
}

async fn take_seat(engine: &Engine, compartment: &mut Compartment) -> Result<(), Fault> {
    let Some(count) = engine.defaults().await?.processors else { return Ok(()) };
    let near = compartment.near();
    let seat = engine.seats.take(count, compartment.server.resources.cpus, near.as_deref());
    compartment.seat = Some(Arc::new(seat));
    Ok(())
}

async fn prove(
    engine: &Engine,
    compartment: &Compartment,
    made: &mut Option<Made>,
) -> Result<(Streams, Evidence, String), Fault> {
    unmoved(compartment).await?;
    let docker = engine.docker().await?;
    let (defaults, probe, ()) = tokio::try_join!(
        engine.defaults(),
        engine.probe_volume(&compartment.owner),
        engine.prepare_volumes(compartment)
    )?;
    let made = made.insert(Made::ask(&docker, compartment.name(), compartment.body(&probe)));
    let id = &created(engine, compartment, made).await?;
    straight(engine, &docker, compartment, id).await?;
    let Streams { input, mut output } = attached_and_started(engine, &docker, compartment, id).await?;
    let (opening, inspected) = {
        let mut opening = pin!(opening::read(&mut output, compartment));
        let mut inspect = pin!(async {
            let container = inspected(engine, &docker, compartment, id).await?;
            let network = network(engine, &docker, compartment).await?;
            Ok::<_, Fault>(container.map(|container| (container, network)))
        });
        let (opened, inspected) = tokio::select! {
            opened = &mut opening => (Some(opened?), inspect.await?),
            inspected = &mut inspect => (None, inspected?),
        };
        let refusal = inspected.as_ref().and_then(|(engine, network)| {
            let (nothing, network) = (Report::default(), network.as_ref());
            let readings = Readings { probe: &probe, defaults: &defaults, engine, network, inside: &nothing };
            Evidence::told(compartment, &readings).err()
        });
        let opened = match (opened, refusal) {
            (Some(opened), _) => opened,
            (None, None) => opening.await?,
            // It is refused; what else is wrong with it is told as well, if that is known soon.
            (None, Some(refusal)) => match tokio::time::timeout(SOON, opening).await {
                Ok(Ok(opened)) => opened,
                _ => return Err(refusal),
            },
        };
        (opened, inspected)
    };
    let Some((inspected, network)) = inspected else { return Err(opening::gone(opening, output, compartment).await) };
    let (inside, network) = (&opening.report, network.as_ref());
    let readings = Readings { probe: &probe, defaults: &defaults, engine: &inspected, network, inside };
    let evidence = Evidence::gather(compartment, &readings).proven(compartment.server.name.as_str())?;
    let namespace = inside.namespaces.get("net").cloned().flatten().unwrap_or_default();
    Ok((Streams { input, output: with_early(opening, output) }, evidence, namespace))
}

/// A host path that leads elsewhere by now than when it was looked at is refused in words. Whoever is quicker than this is
/// found out by what is seen from inside.
async fn unmoved(compartment: &Compartment) -> Result<(), Fault> {
    for mount in &compartment.server.mounts {
        let now = tokio::fs::canonicalize(&mount.host).await;
        if let Some(now) = now.ok().filter(|now| *now != mount.host) {
            let text = format!("server {}: {:?} leads elsewhere by now", compartment.server.name, mount.host);
            return Err(Fault::new(Class::Isolation, text.clone()).with_inward(format!("{text}: to {now:?}")));
        }
    }
    Ok(())
}

fn with_early(
    opening: Opening,
    output: BoxStream<'static, io::Result<Output>>,
) -> BoxStream<'static, io::Result<Output>> {
    opening.early().chain(output).boxed()
}

/// What the engine does not carry out.
fn refused(compartment: &Compartment, class: Class, what: &str, why: Refused) -> Fault {
    let text = format!("server {}: the engine refuses to {what}", compartment.server.name);
    let inward = format!("{text}: {} ({})", why.message, why.status);
    Fault::new(class, format!("{text} as it is asked for")).with_inward(inward)
}

async fn created(engine: &Engine, compartment: &Compartment, made: &mut Made) -> Result<String, Fault> {
    let created = engine.wait("create a container", made.answer()).await?;
    let created = created.map_err(|why| refused(compartment, Class::Isolation, "create its container", why))?;
    if !created.warnings.is_empty() {
        // A limit that the kernel lacks is told here and nowhere else.
        let warnings = created.warnings.join("; ");
        let text = format!("server {}: the engine warns: {warnings}", compartment.server.name);
        return Err(Fault::new(Class::Isolation, text));
    }
    Ok(created.id)
}

/// Attached first: what a container writes before that is lost, and one that has ended never answers an attach.
async fn attached_and_started(
    engine: &Engine,
    docker: &Docker,
    compartment: &Compartment,
    id: &str,
) -> Result<Streams, Fault> {
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
    let attached = engine.call("attach to a container", CALL, docker.attach_container(id, Some(options))).await?;
    let AttachContainerResults { output, input } = attached;
    let started = engine.wait("start a container", docker.start_container(id, None)).await?;
    started.map_err(|why| refused(compartment, Class::Isolation, "start its container", why))?;
    let output = output.map(|piece| output_of(piece.map_err(io::Error::other)?)).boxed();
    Ok(Streams { input, output })
}

/// Only what is known to be a server's own output is taken for it.
fn output_of(piece: LogOutput) -> io::Result<Output> {
    match piece {
        LogOutput::StdErr { message } => Ok(Output::Stderr(message)),
        LogOutput::StdOut { message } => Ok(Output::Stdout(message)),
        LogOutput::StdIn { .. } | LogOutput::Console { .. } => {
            Err(io::Error::other("the engine does not tell standard output from other streams"))
        }
    }
}

/// What the engine reports of a container; none where it is gone, since the engine removes what has ended.
async fn inspected(
    engine: &Engine,
    docker: &Docker,
    compartment: &Compartment,
    id: &str,
) -> Result<Option<ContainerInspectResponse>, Fault> {
    match engine.ask("inspect a container", CALL, docker.inspect_container(id, None)).await? {
        Ok(inspected) => Ok(Some(inspected)),
        Err(Refused { status: 404, .. }) => Ok(None),
        Err(why) => Err(refused(compartment, Class::Engine, "tell of its container", why)),
    }
}

/// What the engine reports of the network that leads out, where there is one; none where it is gone.
async fn network(engine: &Engine, docker: &Docker, compartment: &Compartment) -> Result<Option<NetworkInspect>, Fault> {
    let Some(bounds) = compartment.bounds() else { return Ok(None) };
    match engine.ask("look at a network", CALL, docker.inspect_network(&bounds.place.id, None)).await? {
        Ok(network) => Ok(Some(network)),
        Err(Refused { status: 404, .. }) => Ok(None),
        Err(why) => Err(refused(compartment, Class::Engine, "tell of its network", why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_output_is_taken_for_output() {
        let message = bytes::Bytes::from_static(b"x");
        let out = output_of(LogOutput::StdOut { message: message.clone() });
        assert_eq!(out.unwrap(), Output::Stdout(message.clone()));
        let err = output_of(LogOutput::StdErr { message: message.clone() });
        assert_eq!(err.unwrap(), Output::Stderr(message.clone()));
        assert!(output_of(LogOutput::StdIn { message: message.clone() }).is_err(), "what was written to it comes back");
        assert!(output_of(LogOutput::Console { message }).is_err(), "a terminal has one stream for both");
    }
}
