//! Starts a container from a compartment and proves it before anybody can speak to it. Knows no MCP.

use std::time::Duration;

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::query_parameters::AttachContainerOptions;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};

use crate::downstream::attached::Attached;
use crate::downstream::link::{Link, Output, Process as _};
use crate::downstream::tail::Tail;
use crate::error::{Class, Fault};

use super::Engine;
use super::engine::CALL;
use super::report::Report;
use super::spec::Compartment;
use super::verify::Evidence;

/// Longest report of the probe.
const REPORT: usize = 1 << 20;

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

/// Starts the container and proves it within the time given. On any failure nothing of it is left.
pub async fn start(engine: &Engine, compartment: Compartment, within: Duration) -> Result<Confined, Fault> {
    let docker = engine.docker().await?;
    let probe = engine.probe_volume().await?;
    engine.prepare_volumes(&compartment).await?;
    let created =
        engine.call("create a container", CALL, docker.create_container(None, compartment.body(&probe))).await?;
    let process = Attached::new(docker.clone(), created.id.clone());
    let proven = async {
        if !created.warnings.is_empty() {
            // A limit that the kernel lacks is told here and nowhere else.
            return Err(Fault::new(
                Class::Isolation,
                format!("server {}: the engine warns: {}", compartment.server.name, created.warnings.join("; ")),
            ));
        }
        prove(engine, &docker, &compartment, &probe, &created.id).await
    };
    let proven = tokio::time::timeout(within, proven).await.unwrap_or_else(|_| {
        Err(Fault::new(
            Class::Timeout,
            format!("server {}: it was not started within {within:?}", compartment.server.name),
        ))
    });
    match proven {
        Ok((streams, evidence)) => {
            let link = Link { input: streams.input, output: streams.output, process: Box::new(process) };
            Ok(Confined { link, container: created.id, image: compartment.image, evidence })
        }
        Err(fault) => {
            let ending = process.end(Duration::ZERO).await;
            let text = |text: String| if fault.class == Class::Crashed { format!("{text}: {ending}") } else { text };
            Err(Fault { class: fault.class, outward: text(fault.outward.clone()), inward: text(fault.inward.clone()) })
        }
    }
}

/// Both streams, with what was read too far put back.
struct Streams {
    input: std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>,
    output: std::pin::Pin<Box<dyn futures_util::Stream<Item = std::io::Result<Output>> + Send>>,
}

async fn prove(
    engine: &Engine,
    docker: &Docker,
    compartment: &Compartment,
    probe: &str,
    id: &str,
) -> Result<(Streams, Evidence), Fault> {
    // Attached first: what a container writes before that is lost, and one that has ended never answers an attach.
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
    let attached = engine.call("attach to a container", CALL, docker.attach_container(id, Some(options))).await?;
    let AttachContainerResults { output, input } = attached;
    let mut output = output.map(|piece| piece.map(output_of).map_err(std::io::Error::other)).boxed();
    engine.call("start a container", CALL, docker.start_container(id, None)).await.map_err(|fault| {
        let text = format!("server {} cannot be started", compartment.server.name);
        if fault.inward.contains("did not") {
            fault
        } else {
            Fault::new(Class::Isolation, text).with_inward(fault.inward)
        }
    })?;
    let inspect = engine.call("inspect a container", CALL, docker.inspect_container(id, None));
    let (first, inspected) = tokio::join!(first_line(&mut output, compartment), inspect);
    let (report, rest) = (first?, inspected?);
    let evidence =
        Evidence::gather(compartment, probe, &rest, &report.report).proven(compartment.server.name.as_str())?;
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
    early: Vec<Output>,
}

async fn first_line(
    output: &mut (impl futures_util::Stream<Item = std::io::Result<Output>> + Unpin),
    compartment: &Compartment,
) -> Result<First, Fault> {
    let server = &compartment.server.name;
    let (mut line, mut errors, mut tail) = (BytesMut::new(), Vec::new(), Tail::default());
    let ended = loop {
        match output.next().await {
            Some(Ok(Output::Stderr(bytes))) => {
                tail.push(&bytes);
                errors.push(Output::Stderr(bytes));
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
    let mut early = errors;
    if !rest.is_empty() {
        early.push(Output::Stdout(rest));
    }
    Ok(First { report, early })
}
