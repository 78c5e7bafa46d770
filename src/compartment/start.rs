//! Starts a container from a compartment and proves it before anybody can speak to it. Knows no MCP.

use std::collections::VecDeque;
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use bollard::query_parameters::AttachContainerOptions;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};

use crate::downstream::link::{Link, Output};
use crate::downstream::tail::Tail;
use crate::error::{Class, Fault};

use super::Engine;
use super::create::Made;
use super::engine::{CALL, Refused};
use super::report::Report;
use super::spec::Compartment;
use super::verify::{Evidence, Readings};

/// Longest report of the probe.
const REPORT: usize = 1 << 20;
/// Most that is kept of standard error before the report.
const EARLY: usize = 64 << 10;

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
}

/// Starts the container and proves it within the time given. On any failure, and wherever this is dropped before its end,
/// nothing of it is left.
pub async fn start(engine: &Engine, compartment: Compartment, within: Duration) -> Result<Confined, Fault> {
    let mut made = None;
    let proven = tokio::time::timeout(within, prove(engine, &compartment, &mut made)).await.unwrap_or_else(|_| {
        let text = format!("server {}: it was not started within {within:?}", compartment.server.name);
        Err(Fault::new(Class::Timeout, text))
    });
    let (streams, evidence) = match proven {
        Ok(proven) => proven,
        Err(fault) => return Err(undone(fault, made).await),
    };
    let process = made.and_then(Made::keep).ok_or_else(|| Fault::new(Class::Bug, "a proven container is missing"))?;
    let container = process.id().to_owned();
    let link = Link { input: streams.input, output: streams.output, process: Box::new(process) };
    Ok(Confined { link, container, image: compartment.image, evidence })
}

/// Removes what there is of the container, and adds to the fault how it ended where it ended by itself.
async fn undone(fault: Fault, made: Option<Made>) -> Fault {
    let Some(made) = made else { return fault };
    let ending = made.undo().await;
    if fault.class != Class::Crashed {
        return fault;
    }
    Fault::new(fault.class, format!("{}: {ending}", fault.outward)).with_inward(format!("{}: {ending}", fault.inward))
}

/// Both streams, with what was read too far put back.
struct Streams {
    input: std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>,
    output: std::pin::Pin<Box<dyn futures_util::Stream<Item = std::io::Result<Output>> + Send>>,
}

async fn prove(
    engine: &Engine,
    compartment: &Compartment,
    made: &mut Option<Made>,
) -> Result<(Streams, Evidence), Fault> {
    let server = &compartment.server.name;
    let docker = engine.docker().await?;
    let (defaults, probe, ()) = tokio::try_join!(
        engine.defaults(),
        engine.probe_volume(&compartment.owner),
        engine.prepare_volumes(compartment)
    )?;
    let refused = |what: &str, why: Refused| {
        Fault::new(Class::Isolation, format!("server {server}: the engine refuses to {what} as it is asked for"))
            .with_inward(format!("server {server}: the engine refuses to {what}: {} ({})", why.message, why.status))
    };
    let made = made.insert(Made::ask(&docker, compartment.name(), compartment.body(&probe)));
    let created = engine.wait("create a container", &docker, made.answer()).await?;
    let created = created.map_err(|why| refused("create its container", why))?;
    if !created.warnings.is_empty() {
        // A limit that the kernel lacks is told here and nowhere else.
        let text = format!("server {server}: the engine warns: {}", created.warnings.join("; "));
        return Err(Fault::new(Class::Isolation, text));
    }
    let id = created.id.as_str();
    // Attached first: what a container writes before that is lost, and one that has ended never answers an attach.
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
    let attached = engine.call("attach to a container", CALL, docker.attach_container(id, Some(options))).await?;
    let AttachContainerResults { output, input } = attached;
    let mut output = output.map(|piece| piece.map(output_of).map_err(std::io::Error::other)).boxed();
    let started = engine.wait("start a container", &docker, docker.start_container(id, None)).await?;
    started.map_err(|why| refused("start its container", why))?;
    let inspect = engine.call("inspect a container", CALL, docker.inspect_container(id, None));
    let (report, inspected) = tokio::try_join!(first_line(&mut output, compartment), inspect)?;
    let readings = Readings { probe: &probe, defaults: &defaults, engine: &inspected, inside: &report.report };
    let evidence = Evidence::gather(compartment, &readings).proven(server.as_str())?;
    let early = stream::iter(report.early.into_iter().map(Ok));
    Ok((Streams { input, output: early.chain(output).boxed() }, evidence))
}

fn output_of(piece: LogOutput) -> Output {
    match piece {
        LogOutput::StdErr { message } => Output::Stderr(message),
        LogOutput::StdOut { message } | LogOutput::StdIn { message } | LogOutput::Console { message } => {
            Output::Stdout(message)
        }
    }
}

/// The probe's report, and what the server wrote before we had read that far.
struct First {
    report: Report,
    early: VecDeque<Output>,
}

/// What is on standard error before the report, up to a limit: the oldest goes first.
#[derive(Default)]
struct Early {
    pieces: VecDeque<Bytes>,
    size: usize,
}

impl Early {
    fn push(&mut self, bytes: Bytes) {
        self.size += bytes.len();
        self.pieces.push_back(bytes);
        while self.size > EARLY && self.pieces.len() > 1 {
            self.size -= self.pieces.pop_front().map_or(0, |oldest| oldest.len());
        }
    }
}

async fn first_line(
    output: &mut (impl futures_util::Stream<Item = std::io::Result<Output>> + Unpin),
    compartment: &Compartment,
) -> Result<First, Fault> {
    let server = &compartment.server.name;
    let (mut line, mut errors, mut tail) = (BytesMut::new(), Early::default(), Tail::default());
    let ended = loop {
        match output.next().await {
            Some(Ok(Output::Stderr(bytes))) => {
                tail.push(&bytes);
                errors.push(bytes);
            }
            Some(Ok(Output::Stdout(bytes))) => {
                line.extend_from_slice(&bytes);
                if line.contains(&b'\n') || line.len() > REPORT {
                    break None;
                }
            }
            Some(Err(error)) => break Some(format!("its output broke off: {error}")),
            None => break Some("it ended before anything could be proven".to_owned()),
        }
    };
    if let Some(why) = ended {
        let words = tail.text().map(|t| format!("; last lines of its stderr: {t}")).unwrap_or_default();
        return Err(Fault::new(Class::Crashed, format!("server {server}: {why}{words}")));
    }
    let end = line.iter().position(|b| *b == b'\n').unwrap_or(line.len());
    let report = line.split_to(end);
    let rest: Bytes = line.split_off(line.len().min(1)).freeze();
    let report = serde_json::from_slice::<Report>(&report)
        .ok()
        .filter(|r| r.bulkhead_probe == 1 && r.nonce == compartment.nonce)
        .ok_or_else(|| Fault::new(Class::Isolation, format!("server {server}: its first words are not the probe's")))?;
    let mut early: VecDeque<Output> = errors.pieces.into_iter().map(Output::Stderr).collect();
    if !rest.is_empty() {
        early.push_back(Output::Stdout(rest));
    }
    Ok(First { report, early })
}
