//! The container that packages are installed in: hardened as any server's, with a network, and told what to do over its
//! input alone. Knows no package.
//!
//! The engine's builder could not do it: of what a build step is told, all stays in a layer, in the history of the image
//! or in the cache, and engines of 20.10 have no secrets for a build. Here nothing that the script is told is part of a
//! container's configuration, nothing that is written beside `/opt/server` gets to a disk, and no log of the engine's has
//! its output.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::errors::Error;
use bollard::models::{
    ContainerConfig, ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, ResourcesUlimits,
};
use bollard::query_parameters::{
    AttachContainerOptions, CommitContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::build::engine;
use super::output::Output;
use super::recipe::{self, Labels, USER};
use crate::compartment::create::Made;
use crate::compartment::spec::piped;
use crate::config::Runner;
use crate::downstream::attached::Attached;
use crate::downstream::link::Process as _;
use crate::error::{Class, Fault};

/// Longest that the engine may take to start it.
const START: Duration = Duration::from_secs(60);
/// Longest that one order may take.
const LIMIT: Duration = Duration::from_secs(600);
/// How long the engine may take to see an end.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of memory, with what is kept there in place of a disk.
const MEMORY: i64 = 3 << 30;
/// Processes and threads; npm and uv have several for each processor.
const PIDS: i64 = 1024;
/// Most of one line that is kept while it is not whole.
const LINE: usize = 16 << 20;

/// Where the image lets its user write, each in memory instead, with its size.
const MEMORIES: [(&str, &str); 7] = [
    ("/bake", "2g"),
    ("/tmp", "256m"),
    ("/var/tmp", "64m"),
    ("/home/mcp", "64m"),
    ("/cache", "64m"),
    ("/work", "64m"),
    ("/data", "64m"),
];

/// A container that carries out orders. Dropped, it is removed; and it ends by itself where nobody is left to do that.
pub(super) struct Worker {
    docker: Docker,
    container: Attached,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    output: BoxStream<'static, Result<LogOutput, Error>>,
    /// What is not a whole line yet, of standard output and of standard error.
    pending: [Vec<u8>; 2],
}

impl Worker {
    /// Starts one from the runtime image.
    pub async fn start(
        docker: &Docker,
        name: &str,
        runtime: &str,
        runner: Runner,
        labels: Labels,
    ) -> Result<Self, Fault> {
        let body = body(runtime, runner, labels);
        let made = Made::ask(docker, name.to_owned(), body);
        within(START, "was not started", Self::begin(docker, made)).await
    }

    async fn begin(docker: &Docker, mut made: Made) -> Result<Self, Fault> {
        let answer = made.answer().await.map_err(|error| engine("cannot create the container of a bake", &error))?;
        let container = made.keep().ok_or_else(|| Fault::new(Class::Bug, "a container that was made is missing"))?;
        if !answer.warnings.is_empty() {
            let text = format!("the container of a bake is not as it was asked for: {}", answer.warnings.join("; "));
            return Err(Fault::new(Class::Isolation, text));
        }
        let id = container.id();
        let home =
            recipe::home().map_err(|error| Fault::new(Class::Bug, format!("cannot make an archive: {error}")))?;
        let to_root = UploadToContainerOptionsBuilder::new().path("/").build();
        let uploaded = docker.upload_to_container(id, Some(to_root), bollard::body_full(Bytes::from(home))).await;
        uploaded.map_err(|error| engine("cannot prepare the container of a bake", &error))?;
        let streams =
            AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
        let attached = docker.attach_container(id, Some(streams)).await;
        let AttachContainerResults { output, input } =
            attached.map_err(|error| engine("cannot attach to the container of a bake", &error))?;
        let started = docker.start_container(id, None).await;
        started.map_err(|error| engine("cannot start the container of a bake", &error))?;
        Ok(Worker { docker: docker.clone(), container, input, output, pending: Default::default() })
    }

    /// Hands over one order and reads on until it is answered; every line goes through `output` to `show`.
    pub async fn ask(&mut self, order: &str, output: &mut Output, show: &(dyn Fn(&str) + Sync)) -> Result<(), Fault> {
        within(LIMIT, "did not end", self.exchange(order, output, show)).await
    }

    async fn exchange(&mut self, order: &str, output: &mut Output, show: &(dyn Fn(&str) + Sync)) -> Result<(), Fault> {
        // One that has ended does not read; how it ended says more.
        let _ = self.input.write_all(format!("{order}\n").as_bytes()).await;
        let _ = self.input.flush().await;
        while !output.is_answered() {
            match self.output.next().await {
                Some(Ok(LogOutput::StdOut { message })) => self.feed(0, &message, output, show),
                Some(Ok(LogOutput::StdErr { message })) => self.feed(1, &message, output, show),
                Some(Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. })) => {}
                Some(Err(_)) | None => return Err(self.ended(output).await),
            }
        }
        Ok(())
    }

    fn feed(&mut self, stream: usize, piece: &[u8], output: &mut Output, show: &(dyn Fn(&str) + Sync)) {
        let pending = &mut self.pending[stream];
        pending.extend_from_slice(piece);
        let whole = match pending.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if pending.len() > LINE => pending.len(),
            None => return,
        };
        let whole: Vec<u8> = pending.drain(..whole).collect();
        output.feed(&String::from_utf8_lossy(&whole), show);
    }

    /// Why there is no answer.
    async fn ended(&self, output: &Output) -> Fault {
        let ending = self.container.end(GRACE).await;
        let class = if ending.lost { Class::Engine } else { Class::Unavailable };
        let text = match ending.oom {
            true => format!("it needs more than the {} GiB of memory that a bake may use", MEMORY >> 30),
            false => format!("its container ended without an answer: {ending}"),
        };
        let tail = output.tail().join("\n  ");
        Fault::new(class, text.clone()).with_inward(format!("{text}; it said at last\n  {tail}"))
    }

    /// Makes an image of what was installed, under that name and with the labels of the container.
    pub async fn commit(&self, repo: &str, tag: &str) -> Result<(), Fault> {
        let options = CommitContainerOptionsBuilder::new().container(self.container.id()).repo(repo).tag(tag).build();
        let committed = async {
            let made = self.docker.commit_container(options, ContainerConfig::default()).await;
            made.map(drop).map_err(|error| engine("cannot keep what was installed", &error))
        };
        within(LIMIT, "was not kept", committed).await
    }

    /// Removes it.
    pub async fn end(self) {
        self.container.discard().await;
    }
}

async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let late = || Fault::new(Class::Timeout, format!("it {what} within {} s", limit.as_secs()));
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}

/// All that the engine is told, none of which is secret.
fn body(runtime: &str, runner: Runner, labels: Labels) -> ContainerCreateBody {
    let memories = MEMORIES.map(|(at, size)| {
        let user = USER.split(':').next().unwrap_or_default();
        (at.to_owned(), format!("rw,nosuid,nodev,noexec,mode=0700,uid={user},gid={user},size={size}"))
    });
    let none = ResourcesUlimits { name: Some("core".to_owned()), soft: Some(0), hard: Some(0) };
    ContainerCreateBody {
        image: Some(runtime.to_owned()),
        user: Some(USER.to_owned()),
        entrypoint: Some(recipe::command(runner)),
        cmd: Some(Vec::new()),
        working_dir: Some("/bake".to_owned()),
        labels: Some(labels.into_iter().collect::<HashMap<_, _>>()),
        host_config: Some(HostConfig {
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            privileged: Some(false),
            memory: Some(MEMORY),
            memory_swap: Some(MEMORY),
            pids_limit: Some(PIDS),
            ulimits: Some(vec![none]),
            // From which registries can be reached.
            network_mode: Some("default".to_owned()),
            ipc_mode: Some("private".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            init: Some(true),
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            tmpfs: Some(memories.into_iter().collect()),
            ..HostConfig::default()
        }),
        // So the end of our connection is its own, too.
        ..piped()
    }
}
