//! What dead gateways left is removed, and nothing of the living.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, KillContainerOptions, RemoveContainerOptionsBuilder};
use bulkhead::compartment::{self, Engine, Owner};

use super::support::{Gateway, addresses, docker, fixture};

/// A container as a gateway of that owner would have made it.
async fn forged(owner: Option<&Owner>, role: &str, runs: bool) -> String {
    let mut labels: HashMap<String, String> = owner.map(Owner::labels).unwrap_or_default();
    labels.insert("org.bulkhead.role".into(), role.into());
    labels.insert("org.bulkhead.server".into(), "forged".into());
    let body = ContainerCreateBody {
        image: Some("bulkhead/fixture".into()),
        cmd: Some(vec!["sleep".into(), "600".into()]),
        labels: Some(labels),
        host_config: Some(HostConfig { network_mode: Some("none".into()), ..Default::default() }),
        ..Default::default()
    };
    let docker = docker().await;
    let made = docker.create_container(None::<CreateContainerOptions>, body).await.unwrap();
    if runs {
        docker.start_container(&made.id, None).await.unwrap();
    }
    made.id
}

/// One that ran under that owner, and does no more.
async fn ended_before(owner: &Owner) -> String {
    let id = forged(Some(owner), "server", true).await;
    docker().await.kill_container(&id, None::<KillContainerOptions>).await.unwrap();
    id
}

async fn is_there(id: &str) -> bool {
    docker().await.inspect_container(id, None).await.is_ok()
}

async fn remove(id: &str) {
    let force = RemoveContainerOptionsBuilder::new().force(true).build();
    docker().await.remove_container(id, Some(force)).await.unwrap();
}

fn engine() -> Engine {
    Engine::new(Ok::<_, String>(addresses()))
}

#[tokio::test]
async fn only_what_dead_gateways_left_is_removed_however_many_reap() {
    let me = Owner::this_process("test-reap");
    let other = Owner { gateway: "test-reap-other".into(), ..me.clone() };
    let ended = Owner { pid: 4_000_000_000, ..other.clone() };
    let reused = Owner { started: "1".into(), ..other.clone() };
    let before = Owner { boot: "another".into(), ..other.clone() };
    let elsewhere = Owner { host: "another".into(), pid: 4_000_000_000, ..other.clone() };
    let dead = [
        forged(Some(&ended), "server", true).await,
        forged(Some(&ended), "helper", false).await,
        forged(Some(&reused), "server", false).await,
        ended_before(&before).await,
    ];
    let living = [
        forged(Some(&me), "server", false).await,
        forged(Some(&other), "server", true).await,
        forged(Some(&elsewhere), "server", false).await,
        forged(None, "server", false).await,
        // No container runs on over a reboot: these are of a machine that calls itself like this one.
        forged(Some(&before), "server", true).await,
        forged(Some(&before), "helper", false).await,
    ];
    let engine = engine();
    let found = compartment::leftovers(&engine, &me).await.unwrap();
    for id in &dead {
        // Another test's reaper may be quicker.
        assert!(found.iter().any(|shown| shown.starts_with(&id[..12])) || !is_there(id).await, "{found:?}");
    }
    for id in &living {
        assert!(!found.iter().any(|shown| shown.starts_with(&id[..12])), "{found:?}");
    }
    let all = futures_util::future::join_all((0..4).map(|_| compartment::reap(&engine, &me))).await;
    for reaped in all {
        let reaped = reaped.expect("a reap beside others");
        for id in &living[2..] {
            assert!(reaped.left.iter().any(|shown| shown.starts_with(&id[..12])), "{reaped:?}");
        }
    }
    for id in &dead {
        assert!(!is_there(id).await, "{id} is left");
    }
    for id in &living {
        assert!(is_there(id).await, "{id} was not a dead gateway's");
        remove(id).await;
    }
}

#[tokio::test]
async fn a_server_in_use_is_not_reaped() {
    let gateway = Gateway::new();
    let mut talk = gateway.talk(&fixture(&[])).await;
    let reaped = compartment::reap(&engine(), &Owner::this_process("test-reaper")).await.unwrap();
    let short = &talk.confined.container[..12];
    assert!(!reaped.removed.iter().chain(&reaped.left).any(|shown| shown.starts_with(short)), "{reaped:?}");
    talk.greet().await;
    talk.end(std::time::Duration::from_secs(10)).await;
}
