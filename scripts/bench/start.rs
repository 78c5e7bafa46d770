//! From a start to its first answer: with its proof, and the same container without the probe and without a look at it.

use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{AttachContainerOptions, CreateContainerOptions, RemoveContainerOptionsBuilder};
use bulkhead::compartment;
use bulkhead::config::Server;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::measure::median;
use super::support::{Gateway, LONG, Talk, docker, server};

/// Starts of each kind.
const ROUNDS: usize = 20;

/// A server that answers its first line, started as a gateway would that proves nothing; ms.
async fn unproven(body: ContainerCreateBody) -> f64 {
    let docker = docker().await;
    let began = Instant::now();
    let id = docker.create_container(None::<CreateContainerOptions>, body).await.unwrap().id;
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
    let mut attached = docker.attach_container(&id, Some(options)).await.unwrap();
    docker.start_container(&id, None).await.unwrap();
    attached.input.write_all(b"{}\n").await.unwrap();
    attached.input.flush().await.unwrap();
    while let Some(Ok(piece)) = attached.output.next().await {
        if matches!(piece, LogOutput::StdOut { .. }) {
            break;
        }
    }
    let answered = began.elapsed().as_secs_f64() * 1e3;
    let force = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    docker.remove_container(&id, Some(force)).await.unwrap();
    answered
}

/// The same, started and proven as it is served; ms.
async fn proven(gateway: &Gateway, server: &Server) -> f64 {
    let compartment = gateway.plan(server).await.unwrap();
    let began = Instant::now();
    let confined = compartment::start(&gateway.engine, compartment, LONG).await.unwrap();
    let mut talk = Talk::new(confined);
    talk.send(json!({})).await;
    talk.line().await.unwrap();
    let answered = began.elapsed().as_secs_f64() * 1e3;
    talk.end(Duration::ZERO).await;
    answered
}

/// Servers that answer whatever they are sent, one that is there at once and one that takes its time to be: the proof is
/// gathered beside that.
pub fn measure() -> Vec<Value> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let servers = [
        ("cat", json!(["cat"])),
        ("node", json!(["node", "-e", "process.stdin.pipe(process.stdout)"])),
        (
            "python",
            json!(["python3", "-c", "import json, asyncio, sys\nfor line in sys.stdin: print(line, flush=True)"]),
        ),
    ];
    servers.iter().map(|(name, command)| runtime.block_on(one(name, command))).collect()
}

async fn one(name: &str, command: &Value) -> Value {
    let gateway = Gateway::new();
    let server = server(&format!("image = \"bulkhead/runtime\"\ncommand = {command}"));
    proven(&gateway, &server).await;
    let mut bare = gateway.plan(&server).await.unwrap().body("none");
    bare.entrypoint.as_mut().unwrap().drain(..2);
    bare.host_config.as_mut().unwrap().mounts.as_mut().unwrap().remove(0);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(unproven(bare.clone()).await);
        with.push(proven(&gateway, &server).await);
    }
    let (unproven, proven) = (median(without), median(with));
    json!({
        "server": name, "rounds": ROUNDS, "unproven": unproven, "proven": proven,
        "adds": proven - unproven, "ratio": proven / unproven,
    })
}
