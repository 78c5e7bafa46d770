//! How long a start takes, and what of that is the proof. Measured on request, not with every run:
//! `cargo test --release --test isolation speed -- --ignored --nocapture`

use std::io::Write as _;
use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{AttachContainerOptions, CreateContainerOptions, RemoveContainerOptionsBuilder};
use bulkhead::compartment;
use bulkhead::config::Server;
use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;

use super::support::{Gateway, LONG, Talk, docker, server};

const ROUNDS: usize = 20;

/// A server that answers its first line, started as a gateway would that proves nothing.
async fn unproven(body: ContainerCreateBody) -> [Duration; 2] {
    let docker = docker().await;
    let began = Instant::now();
    let id = docker.create_container(None::<CreateContainerOptions>, body).await.unwrap().id;
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
    let mut attached = docker.attach_container(&id, Some(options)).await.unwrap();
    docker.start_container(&id, None).await.unwrap();
    let started = began.elapsed();
    attached.input.write_all(b"{}\n").await.unwrap();
    attached.input.flush().await.unwrap();
    while let Some(Ok(piece)) = attached.output.next().await {
        if matches!(piece, LogOutput::StdOut { .. }) {
            break;
        }
    }
    let answered = began.elapsed();
    let force = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    docker.remove_container(&id, Some(force)).await.unwrap();
    [started, answered]
}

async fn proven(gateway: &Gateway, server: &Server) -> [Duration; 2] {
    let compartment = gateway.plan(server).await.unwrap();
    let began = Instant::now();
    let confined = compartment::start(&gateway.engine, compartment, LONG).await.unwrap();
    let started = began.elapsed();
    let mut talk = Talk::new(confined);
    talk.send(serde_json::json!({})).await;
    talk.line().await.unwrap();
    let answered = began.elapsed();
    talk.end(Duration::ZERO).await;
    [started, answered]
}

fn median(mut all: Vec<Duration>) -> u128 {
    all.sort_unstable();
    all[all.len() / 2].as_millis()
}

#[tokio::test]
#[ignore = "a measurement"]
async fn a_start_with_and_without_its_proof() {
    let gateway = Gateway::new();
    for (name, command) in [
        ("cat", serde_json::json!(["cat"])),
        ("node", serde_json::json!(["node", "-e", "process.stdin.pipe(process.stdout)"])),
    ] {
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
        for (what, all) in [("unproven", &without), ("proven", &with)] {
            let started = median(all.iter().map(|t| t[0]).collect());
            let answered = median(all.iter().map(|t| t[1]).collect());
            writeln!(std::io::stderr(), "{name} {what}: started {started} ms, first answer {answered} ms").unwrap();
        }
    }
}
