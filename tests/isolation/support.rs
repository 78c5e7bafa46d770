//! What the tests of isolation share: the engine, a gateway of each test's own, and a conversation with a server.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::query_parameters::{ListContainersOptionsBuilder, RemoveVolumeOptionsBuilder};
use bulkhead::compartment::guard::policy;
use bulkhead::compartment::lease::Terms;
use bulkhead::compartment::{self, Compartment, Confined, Engine, Fence, Guard, ImageFacts, Lease, Owner};
use bulkhead::config::Server;
use bulkhead::config::env::{Fixed, ProcessEnvironment, engine_candidates};
use bulkhead::config::resolve::load;
use bulkhead::downstream::link::{Ending, Link, Output, Process};
use bulkhead::error::Fault;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// The image of the fixture server.
pub const FIXTURE: &str = "bulkhead/fixture-server";
/// Longest that anything here may take on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Where the engine is, as the gateway would find it.
pub fn addresses() -> Vec<String> {
    engine_candidates(&ProcessEnvironment).expect("an address of an engine")
}

/// The engine's socket on this machine.
pub fn socket() -> PathBuf {
    let here = addresses().into_iter().filter_map(|a| a.strip_prefix("unix://").map(PathBuf::from));
    here.into_iter().find(|path| path.exists()).expect("an engine's socket")
}

/// One test's gateway: an engine, and a name that nothing else of this machine has.
pub struct Gateway {
    pub engine: Engine,
    pub owner: Owner,
}

impl Gateway {
    pub fn new() -> Self {
        Gateway::at(addresses())
    }

    /// A gateway that reaches its engine by these addresses.
    pub fn at(addresses: Vec<String>) -> Self {
        let name = format!("test-{}", uuid::Uuid::new_v4().simple());
        let owner = Owner::this_process(&name).for_principal(&name);
        Gateway { engine: Engine::new(Ok::<_, String>(addresses)), owner }
    }

    pub async fn start(&self, server: &Server) -> Result<Confined, Fault> {
        self.start_within(server, LONG).await
    }

    pub async fn start_within(&self, server: &Server, within: Duration) -> Result<Confined, Fault> {
        let compartment = self.plan(server).await?;
        compartment::start(&self.engine, compartment, within).await
    }

    pub async fn plan(&self, server: &Server) -> Result<Compartment, Fault> {
        Compartment::plan(server, &self.image(server).await?, &self.owner, Lease::from_now(Terms::default().instance))
    }

    /// The compartment of a server that may reach something, behind a guard that was started for it.
    pub async fn guard(&self, server: &Server) -> Result<(Guard, Link), Fault> {
        let policy = policy(server).expect("something to reach");
        let lease = Lease::from_now(Terms::default().instance);
        Guard::start(&self.engine, server, &policy, &self.owner, lease, LONG).await
    }

    /// Starts a server in the network of a guard.
    pub async fn start_behind(&self, server: &Server, guard: &Guard) -> Result<Confined, Fault> {
        let (image, lease) = (self.image(server).await?, Lease::from_now(Terms::default().instance));
        let compartment = Compartment::behind(server, &image, &self.owner, lease, guard)?;
        compartment::start(&self.engine, compartment, LONG).await
    }

    /// A fence that was started for a server on a bridge.
    pub async fn fence(&self, server: &Server) -> Result<(Fence, Link), Fault> {
        let lease = Lease::from_now(Terms::default().instance);
        Fence::start(&self.engine, server, &self.owner, lease, LONG).await
    }

    /// Starts a server in the network of a fence.
    pub async fn start_fenced(&self, server: &Server, fence: &Fence) -> Result<Confined, Fault> {
        let (image, lease) = (self.image(server).await?, Lease::from_now(Terms::default().instance));
        let compartment = Compartment::within(server, &image, &self.owner, lease, fence)?;
        compartment::start(&self.engine, compartment, LONG).await
    }

    async fn image(&self, server: &Server) -> Result<ImageFacts, Fault> {
        let bulkhead::config::Run::Image { reference, .. } = &server.run else { panic!("no image: {:?}", server.run) };
        self.engine.image(reference).await
    }

    /// Starts it and talks to it.
    pub async fn talk(&self, server: &Server) -> Talk {
        let confined = self.start(server).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
        Talk::new(confined)
    }

    /// What is told of a server that ends by itself: by the start already, where the engine was quicker to remove it than
    /// the gateway to look at it, or by its end.
    pub async fn cause(&self, server: &Server) -> String {
        match self.start(server).await {
            Err(fault) => {
                assert_eq!(fault.class, bulkhead::error::Class::Crashed, "{}", fault.inward);
                fault.inward
            }
            Ok(confined) => {
                let mut talk = Talk::new(confined);
                while talk.line().await.is_some() {}
                let words = talk.errors();
                format!("{words}: {}", talk.end(LONG).await)
            }
        }
    }

    /// Its containers, running or not.
    pub async fn containers(&self) -> Vec<String> {
        containers(&self.owner.gateway).await
    }

    /// Waits until it has no container.
    pub async fn is_clean(&self) {
        let began = Instant::now();
        while !self.containers().await.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(20), "left: {:?}", self.containers().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

pub async fn docker() -> Docker {
    Gateway::new().engine.docker().await.expect("an engine")
}

/// The containers of a gateway, helpers included.
pub async fn containers(gateway: &str) -> Vec<String> {
    let filters = HashMap::from([("label", vec![format!("org.bulkhead.gateway={gateway}")])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let listed = docker().await.list_containers(Some(options)).await.unwrap();
    listed.into_iter().filter_map(|c| c.id).collect()
}

pub async fn remove_volume(name: &str) {
    let options = RemoveVolumeOptionsBuilder::new().force(true).build();
    let _ = docker().await.remove_volume(name, Some(options)).await;
}

/// The server that the entry of a configuration file means.
pub fn server(entry: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bulkhead.toml");
    std::fs::write(&path, format!("[servers.s]\n{entry}\n")).unwrap();
    let config = load(&path, &Fixed::default()).unwrap_or_else(|faults| panic!("{faults}"));
    config.servers.into_iter().next().unwrap()
}

/// The fixture server with flags.
pub fn fixture(flags: &[&str]) -> Server {
    server(&format!("image = {FIXTURE:?}\nargs = {flags:?}"))
}

/// A conversation with a server, both of its outputs read all the time.
pub struct Talk {
    pub confined: Parts,
    input: std::pin::Pin<Box<dyn AsyncWrite + Send>>,
    lines: mpsc::UnboundedReceiver<String>,
    errors: Arc<Mutex<Vec<u8>>>,
    next: u64,
}

/// What is left of a confined server beside its streams.
pub struct Parts {
    pub container: String,
    pub evidence: bulkhead::compartment::verify::Evidence,
    pub process: Box<dyn Process>,
}

impl Talk {
    pub fn new(confined: Confined) -> Self {
        let Confined { link, container, evidence, .. } = confined;
        let (tell, lines) = mpsc::unbounded_channel();
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = errors.clone();
        let mut output = link.output;
        tokio::spawn(async move {
            let mut partial = Vec::new();
            while let Some(Ok(piece)) = output.next().await {
                match piece {
                    Output::Stderr(bytes) => kept.lock().unwrap().extend_from_slice(&bytes),
                    Output::Stdout(bytes) => partial.extend_from_slice(&bytes),
                }
                while let Some(end) = partial.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = partial.drain(..=end).collect();
                    let _ = tell.send(String::from_utf8_lossy(&line[..end]).into_owned());
                }
            }
        });
        let confined = Parts { container, evidence, process: link.process };
        Talk { confined, input: link.input, lines, errors, next: 0 }
    }

    /// The next line that the server writes; none at its end.
    pub async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(LONG, self.lines.recv()).await.expect("a line in time")
    }

    pub async fn send(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        self.input.flush().await.unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        loop {
            let line = self.line().await.unwrap_or_else(|| panic!("it ended: {}", self.errors()));
            let answer: Option<Value> = serde_json::from_str(&line).ok();
            if let Some(answer) = answer.filter(|a| a["id"] == id) {
                return answer;
            }
        }
    }

    pub async fn greet(&mut self) {
        let info = json!({ "name": "test", "version": "0" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        let answer = self.ask("initialize", params).await;
        assert!(answer["result"]["serverInfo"].is_object(), "{answer}");
        self.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    }

    /// Sends a call without waiting for its answer.
    pub async fn throw(&mut self, tool: &str, arguments: Value) {
        let params = json!({ "name": tool, "arguments": arguments });
        self.send(json!({ "jsonrpc": "2.0", "id": "thrown", "method": "tools/call", "params": params })).await;
    }

    /// The text that a tool answers, and whether it is an error.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text, result["isError"] == true)
    }

    /// What was written to standard error.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.errors.lock().unwrap()).into_owned()
    }

    /// Closes its input and ends it.
    pub async fn end(mut self, grace: Duration) -> Ending {
        let _ = self.input.shutdown().await;
        self.confined.process.end(grace).await
    }
}
