//! A guard in its container, programs in others that join its network, and the gateway's side in this process.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::models::{ContainerCreateBody, HostConfig, ResourcesUlimits};
use bollard::query_parameters::{AttachContainerOptions, CreateContainerOptions, RemoveContainerOptionsBuilder};
use bulkhead::egress::passage::{Limits, Passage, Witness};
use bulkhead::egress::resolve::Resolve;
use bulkhead::egress::rule::{Rule, Rules};
use bulkhead::egress::tunnel::{Tunnel, over};
use bulkhead::egress::{Egress, Policy};
use bulkhead::error::Fault;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::support::{LONG, docker};

/// What every program begins with.
const PRELUDE: &str = r#"
import errno, json, socket, sys
def say(value):
    print(json.dumps(value), flush=True)
def reach(host, port):
    try:
        socket.create_connection((host, port), 3).close()
        return "open"
    except TimeoutError:
        return "timeout"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def all_of(s):
    pieces = []
    while piece := s.recv(1 << 18):
        pieces.append(piece)
    return b"".join(pieces)
def has_six():
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
        return True
    except OSError:
        return False
"#;

/// Every name is this host.
struct Here;

impl Resolve for Here {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        async { Ok(vec![Ipv4Addr::LOCALHOST.into()]) }.boxed()
    }
}

/// What has passed.
#[derive(Default)]
pub struct Seen(Mutex<Vec<Passage>>);

impl Witness for Seen {
    fn opens<'a>(&'a self, _: &'a Passage) -> BoxFuture<'a, Result<(), Fault>> {
        async { Ok(()) }.boxed()
    }

    fn ended(&self, passage: Passage) {
        self.0.lock().unwrap().push(passage);
    }
}

impl Seen {
    /// All passages, once there are that many.
    pub async fn passages(&self, count: usize) -> Vec<Passage> {
        let began = Instant::now();
        loop {
            let passages = self.0.lock().unwrap().clone();
            if passages.len() >= count {
                return passages;
            }
            assert!(began.elapsed() < LONG, "only {passages:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A container whose streams we have; removed at its end.
pub struct Container {
    id: String,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    output: BoxStream<'static, io::Result<LogOutput>>,
    partial: Vec<u8>,
}

impl Container {
    async fn start(image: &str, command: Vec<String>, network: &str, env: Vec<String>) -> Self {
        let docker = docker().await;
        let host = HostConfig {
            network_mode: Some(network.to_owned()),
            cap_drop: Some(vec!["ALL".into()]),
            security_opt: Some(vec!["no-new-privileges".into()]),
            readonly_rootfs: Some(true),
            memory: Some(128 << 20),
            pids_limit: Some(64),
            ulimits: Some(vec![ResourcesUlimits { name: Some("nofile".into()), soft: Some(1024), hard: Some(1024) }]),
            auto_remove: Some(true),
            ..HostConfig::default()
        };
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            cmd: Some(command),
            env: Some(env),
            labels: Some(HashMap::from([("org.bulkhead.test".to_owned(), "guard".to_owned())])),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            open_stdin: Some(true),
            stdin_once: Some(true),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        };
        let id = docker.create_container(None::<CreateContainerOptions>, body).await.expect("a container").id;
        let options =
            AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
        let attached = docker.attach_container(&id, Some(options)).await.unwrap();
        docker.start_container(&id, None).await.unwrap();
        let output = attached.output.map(|piece| piece.map_err(io::Error::other)).boxed();
        Container { id, input: attached.input, output, partial: Vec::new() }
    }

    /// The next line of JSON that it says.
    pub async fn line(&mut self) -> Value {
        let mut errors = String::new();
        loop {
            if let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.partial.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            match tokio::time::timeout(LONG, self.output.next()).await.expect("words in time") {
                Some(Ok(LogOutput::StdErr { message })) => errors.push_str(&String::from_utf8_lossy(&message)),
                Some(Ok(piece)) => self.partial.extend_from_slice(&piece.into_bytes()),
                ended => panic!("{ended:?}: {errors}"),
            }
        }
    }

    /// Gives it a line.
    pub async fn go_on(&mut self) {
        self.input.write_all(b"\n").await.unwrap();
        self.input.flush().await.unwrap();
    }

    pub async fn end(self) {
        let force = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let _ = docker().await.remove_container(&self.id, Some(force)).await;
    }
}

/// A guard that is served.
pub struct Guarded {
    pub id: String,
    pub egress: Arc<Egress>,
    pub seen: Arc<Seen>,
    task: tokio::task::JoinHandle<Result<(), Fault>>,
}

impl Guarded {
    pub async fn start(rules: &[&str], host_ports: &[u16]) -> Self {
        Guarded::attempt(rules, host_ports).await.unwrap_or_else(|fault| panic!("{}", fault.inward))
    }

    pub async fn attempt(rules: &[&str], host_ports: &[u16]) -> Result<Self, Fault> {
        let policy = Policy {
            server: "notes".into(),
            instance: "c0ffee".into(),
            rules: Rules::new(rules.iter().map(|rule| Rule::parse(rule).unwrap())),
            host_ports: host_ports.to_vec(),
            limits: Limits::default(),
        };
        let ports = policy.listeners().iter().map(|(port, _)| port.to_string()).collect();
        let Container { id, input, output, .. } = Container::start("bulkhead/guard", ports, "none", Vec::new()).await;
        let bytes = output.filter_map(|piece| async move {
            match piece {
                Ok(LogOutput::StdErr { .. }) => None,
                piece => Some(piece.map(LogOutput::into_bytes)),
            }
        });
        let seen = Arc::new(Seen::default());
        let egress = Arc::new(Egress::new(policy, Arc::default(), Arc::new(Here), seen.clone()));
        let tunnel = Tunnel::meet(over(bytes.boxed(), input), egress.policy().limits, LONG).await?;
        let task = tokio::spawn(tunnel.serve(egress.clone()));
        Ok(Guarded { id, egress, seen, task })
    }

    /// A Python program in a container that joins the guard's network.
    pub async fn join(&self, script: &str, env: &[(&str, String)]) -> Container {
        let env = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        python(&format!("container:{}", self.id), script, env).await
    }

    /// What such a program says.
    pub async fn run(&self, script: &str, env: &[(&str, String)]) -> Value {
        let mut program = self.join(script, env).await;
        let said = program.line().await;
        program.end().await;
        said
    }

    /// Ends our side, and so the guard.
    pub async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
        is_gone(&self.id).await;
    }
}

async fn python(network: &str, script: &str, env: Vec<String>) -> Container {
    let command = ["python3", "-c", &format!("{PRELUDE}{script}")].map(str::to_owned).to_vec();
    Container::start("bulkhead/fixture", command, network, env).await
}

/// What a program says in a network of the engine's.
pub async fn alone(network: &str, script: &str) -> Value {
    let mut program = python(network, script, Vec::new()).await;
    let said = program.line().await;
    program.end().await;
    said
}

/// Waits until the engine has nothing left of it.
pub async fn is_gone(id: &str) {
    let began = Instant::now();
    while docker().await.inspect_container(id, None).await.is_ok() {
        assert!(began.elapsed() < LONG, "{id} is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
