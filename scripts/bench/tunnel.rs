//! What the way through a guard costs: a program in a container that talks to a port of the host's, and the same program on
//! the host that talks to it directly. Prints both and their ratio; asserts nothing.
//!
//!     cargo bench --bench tunnel            needs an engine, the images of scripts/setup, and python3
//!
//! Each figure is the best of a few rounds: a busy machine only ever makes them worse.

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::container::AttachContainerResults;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{AttachContainerOptions, CreateContainerOptions, RemoveContainerOptionsBuilder};
use bulkhead::compartment::guard::policy;
use bulkhead::compartment::{Engine, Guard, Lease, Owner};
use bulkhead::config::env::{ProcessEnvironment, engine_candidates};
use bulkhead::config::resolve;
use bulkhead::downstream::link::Output;
use bulkhead::egress::Egress;
use bulkhead::egress::passage::{Limits, Passage, Witness};
use bulkhead::egress::resolve::System;
use bulkhead::egress::tunnel::{Tunnel, over};
use bulkhead::error::Fault;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::StreamExt as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 5;

/// Measures, and says what it measured: megabytes a second either way, microseconds of a round trip.
const CLIENT: &str = r#"
import json, socket, sys, time
port, size, trips = int(sys.argv[1]), 256 << 20, 3000
def connect(order, length):
    s = socket.create_connection(("127.0.0.1", port), 60)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(order + length.to_bytes(8, "big"))
    return s
buffer = bytearray(1 << 18)
s, left, began = connect(b"d", size), size, time.perf_counter()
while left:
    left -= s.recv_into(buffer)
down = size / (time.perf_counter() - began) / 1e6
s, left, began = connect(b"u", size), size, time.perf_counter()
while left:
    s.sendall(buffer)
    left -= len(buffer)
s.recv(1)
up = size / (time.perf_counter() - began) / 1e6
s, all = connect(b"e", 0), []
for _ in range(trips):
    began = time.perf_counter()
    s.sendall(b"x" * 64)
    got = 0
    while got < 64:
        got += len(s.recv(64))
    all.append((time.perf_counter() - began) * 1e6)
all.sort()
print(json.dumps({"down": down, "up": up, "p50": all[trips // 2], "p90": all[trips * 9 // 10]}))
"#;

struct Nobody;

impl Witness for Nobody {
    fn opens<'a>(&'a self, _: &'a Passage) -> BoxFuture<'a, Result<(), Fault>> {
        async { Ok(()) }.boxed()
    }

    fn ended(&self, _: Passage) {}
}

/// Sends, takes or gives back what a client orders.
async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let order = stream.read_u8().await?;
    let mut left = usize::try_from(stream.read_u64().await?).unwrap_or_default();
    let mut piece = vec![0; 256 << 10];
    match order {
        b'd' => {
            while left > 0 {
                let length = left.min(piece.len());
                stream.write_all(&piece[..length]).await?;
                left -= length;
            }
        }
        b'u' => {
            while left > 0 {
                left -= stream.read(&mut piece).await?;
            }
            stream.write_all(b"k").await?;
        }
        _ => loop {
            let length = stream.read(&mut piece).await?;
            if length == 0 {
                return Ok(());
            }
            stream.write_all(&piece[..length]).await?;
        },
    }
    Ok(())
}

async fn container(
    docker: &Docker,
    image: &str,
    command: Vec<String>,
    network: String,
) -> (String, AttachContainerResults) {
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: Some(command),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        host_config: Some(HostConfig {
            network_mode: Some(network),
            auto_remove: Some(true),
            log_config: Some(bollard::models::HostConfigLogConfig { typ: Some("none".into()), config: None }),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let id = docker.create_container(None::<CreateContainerOptions>, body).await.expect("a container").id;
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, stderr: true, ..Default::default() };
    let attached = docker.attach_container(&id, Some(options)).await.expect("its streams");
    docker.start_container(&id, None).await.expect("its start");
    (id, attached)
}

/// By a guard that is started as for any server, with its limits.
async fn through(engine: &Engine, docker: &Docker, port: u16) -> Value {
    let server =
        resolve::own("bench", &format!("image = \"bulkhead/fixture\"\nhost_ports = [{port}]")).expect("a server");
    let policy = policy(&server).expect("a port");
    let owner = Owner::this_process("bench").for_principal("bench");
    let lease = Lease::from_now(Duration::from_secs(3600));
    let guard = Guard::start(engine, &server, &policy, &owner, lease, Duration::from_secs(60)).await;
    let (guard, link) = guard.expect("a guard");
    let bytes = link.output.filter_map(|piece| async move {
        match piece {
            Ok(Output::Stderr(_)) => None,
            Ok(Output::Stdout(bytes)) => Some(Ok(bytes)),
            Err(error) => Some(Err(error)),
        }
    });
    let egress = Arc::new(Egress::new(policy, Arc::default(), Arc::new(System), Arc::new(Nobody)));
    let io = over(bytes.boxed(), link.input);
    let tunnel = Tunnel::meet(io, Limits::default(), Duration::from_secs(30)).await.expect("a guard");
    let task = tokio::spawn(tunnel.serve(egress));
    let command = ["python3", "-c", CLIENT, &port.to_string()].map(str::to_owned).to_vec();
    let (id, attached) =
        container(docker, "bulkhead/fixture", command, format!("container:{}", guard.container())).await;
    let said: Vec<u8> = attached.output.map(|piece| piece.expect("words").into_bytes().to_vec()).concat().await;
    task.abort();
    let force = RemoveContainerOptionsBuilder::new().force(true).build();
    let _ = docker.remove_container(&id, Some(force)).await;
    link.process.end(Duration::ZERO).await;
    serde_json::from_slice(&said).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&said)))
}

async fn direct(port: u16) -> Value {
    let output = tokio::process::Command::new("python3").args(["-c", CLIENT, &port.to_string()]).output().await;
    serde_json::from_slice(&output.expect("python3").stdout).expect("figures")
}

/// The best of all rounds: the most of what is to be much, the least of what is to be little.
fn best(rounds: &[Value], name: &str) -> f64 {
    let all = rounds.iter().filter_map(|round| round[name].as_f64());
    if name.starts_with('p') { all.fold(f64::MAX, f64::min) } else { all.fold(0.0, f64::max) }
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let engine = Engine::new(engine_candidates(&ProcessEnvironment));
    let docker = engine.docker().await.expect("an engine");
    let listener = TcpListener::bind((IpAddr::from([127, 0, 0, 1]), 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        near.push(direct(port).await);
        far.push(through(&engine, &docker, port).await);
    }
    let mut out = io::stdout();
    writeln!(out, "{:<22} {:>10} {:>10} {:>8}", "", "direct", "tunnel", "ratio")?;
    for (name, what) in [
        ("down", "to the server, MB/s"),
        ("up", "to the host, MB/s"),
        ("p50", "round trip p50, us"),
        ("p90", "round trip p90, us"),
    ] {
        let (near, far) = (best(&near, name), best(&far, name));
        writeln!(out, "{what:<22} {near:>10.0} {far:>10.0} {:>8.2}", far / near)?;
    }
    writeln!(out, "added to a round trip: {:.3} ms", (best(&far, "p50") - best(&near, "p50")) / 1e3)
}
