//! What dead gateways left is removed, of every kind, and nothing of the living.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bollard::models::{ContainerCreateBody, HostConfig, NetworkCreateRequest, VolumeCreateRequest};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptions, KillContainerOptions, RemoveContainerOptionsBuilder,
    RemoveImageOptionsBuilder,
};
use bulkhead::compartment::reap::{Kind, Reaped};
use bulkhead::compartment::{self, Engine, Lease, Owner};

use super::support::{Gateway, addresses, docker, fixture, remove_volume};

const HOUR: Duration = Duration::from_secs(3600);

/// A lease that has long to go.
fn future() -> Lease {
    Lease::from_now(HOUR)
}

/// One that is over by more than clocks may differ.
fn past() -> Lease {
    Lease::new(SystemTime::now() - 3 * HOUR, HOUR / 2)
}

/// One that is over, but not on every clock.
fn just_past() -> Lease {
    Lease::new(SystemTime::now() - HOUR, HOUR / 2)
}

fn labels(owner: Option<&Owner>, lease: Option<Lease>, role: &str) -> HashMap<String, String> {
    let mut labels = owner.map(|owner| owner.labels(lease.unwrap_or_else(future))).unwrap_or_default();
    match lease {
        Some(lease) => labels.insert("org.bulkhead.lease".into(), lease.to_string()),
        None => labels.remove("org.bulkhead.lease"),
    };
    labels.insert("org.bulkhead.role".into(), role.into());
    labels.insert("org.bulkhead.server".into(), "forged".into());
    labels
}

/// A container as a gateway of that owner would have made it.
async fn forged(owner: Option<&Owner>, lease: Option<Lease>, role: &str, runs: bool) -> String {
    made(labels(owner, lease, role), runs, &[]).await
}

async fn made(labels: HashMap<String, String>, runs: bool, volumes: &[&str]) -> String {
    let binds = volumes.iter().map(|volume| format!("{volume}:/kept")).collect();
    let host = HostConfig { network_mode: Some("none".into()), binds: Some(binds), ..Default::default() };
    let body = ContainerCreateBody {
        image: Some("bulkhead/fixture".into()),
        cmd: Some(vec!["sleep".into(), "600".into()]),
        labels: Some(labels),
        host_config: Some(host),
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
    let id = forged(Some(owner), Some(future()), "server", true).await;
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

/// Who reaps, and whoever else there may be.
struct Owners {
    me: Owner,
    other: Owner,
    ended: Owner,
    reused: Owner,
    before: Owner,
    elsewhere: Owner,
}

impl Owners {
    fn new() -> Self {
        let me = Owner::this_process("test-reap");
        let other = Owner { gateway: "test-reap-other".into(), ..me.clone() };
        Owners {
            ended: Owner { pid: 4_000_000_000, ..other.clone() },
            reused: Owner { started: "1".into(), ..other.clone() },
            before: Owner { boot: "another".into(), ..other.clone() },
            elsewhere: Owner { host: "another".into(), pid: 4_000_000_000, ..other.clone() },
            me,
            other,
        }
    }
}

/// Several at once, as several gateways would.
async fn reap_together(me: &Owner) -> Vec<Reaped> {
    let engine = engine();
    let all = futures_util::future::join_all((0..4).map(|_| compartment::reap(&engine, me))).await;
    all.into_iter().map(|reaped| reaped.expect("a reap beside others")).collect()
}

fn reason<'r>(reaped: &'r Reaped, id: &str) -> &'r str {
    let left = reaped.left.iter().find(|left| left.item.id == id);
    &left.unwrap_or_else(|| panic!("{id} is not told of: {reaped:?}")).reason
}

#[tokio::test]
async fn only_what_dead_gateways_left_is_removed_however_many_reap() {
    let Owners { me, other, ended, reused, before, elsewhere } = &Owners::new();
    let dead = [
        forged(Some(ended), None, "server", true).await,
        forged(Some(ended), Some(future()), "helper", false).await,
        forged(Some(reused), Some(future()), "server", false).await,
        forged(Some(ended), Some(future()), "bake", true).await,
        ended_before(before).await,
    ];
    let living = [
        forged(Some(me), Some(future()), "server", false).await,
        forged(Some(other), None, "server", true).await,
        // Its gateway is at hand to end it.
        forged(Some(other), Some(past()), "server", true).await,
        forged(Some(elsewhere), None, "server", false).await,
        forged(None, None, "server", false).await,
        // No container runs on over a reboot: these are of a machine that calls itself like this one.
        forged(Some(before), Some(future()), "server", true).await,
        forged(Some(before), Some(future()), "helper", false).await,
    ];
    let found = compartment::leftovers(&engine(), me).await.unwrap();
    for id in &dead {
        // Another test's reaper may be quicker.
        assert!(found.iter().any(|item| item.id == *id) || !is_there(id).await, "{found:?}");
    }
    assert!(!found.iter().any(|item| living.contains(&item.id)), "{found:?}");
    for reaped in reap_together(me).await {
        assert!(living[..3].iter().all(|id| reaped.left.iter().all(|left| left.item.id != *id)), "{reaped:?}");
        for id in &living[3..] {
            assert!(!reason(&reaped, id).is_empty());
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
async fn what_nobody_can_tell_of_goes_once_its_lease_is_over_and_not_before() {
    let Owners { me, before, elsewhere, .. } = &Owners::new();
    let over = [
        forged(Some(elsewhere), Some(past()), "server", true).await,
        forged(Some(elsewhere), Some(past()), "helper", false).await,
        forged(Some(before), Some(past()), "server", true).await,
        forged(None, Some(past()), "server", false).await,
    ];
    let lease = future();
    let (going_on, just_over) = (
        forged(Some(elsewhere), Some(lease), "server", true).await,
        forged(Some(elsewhere), Some(just_past()), "server", true).await,
    );
    for reaped in reap_together(me).await {
        assert_eq!(
            reason(&reaped, &going_on),
            format!("its gateway may be running on another host; its lease ends at {lease}")
        );
        assert!(reason(&reaped, &just_over).contains("clocks may still differ"), "{reaped:?}");
    }
    for id in &over {
        assert!(!is_there(id).await, "{id} is left");
    }
    for id in [going_on, just_over] {
        assert!(is_there(&id).await, "{id} may be in use");
        remove(&id).await;
    }
}

#[tokio::test]
async fn a_server_in_use_is_not_reaped() {
    let gateway = Gateway::new();
    let mut talk = gateway.talk(&fixture(&[])).await;
    let reaped = compartment::reap(&engine(), &Owner::this_process("test-reaper")).await.unwrap();
    let left = reaped.left.iter().map(|left| &left.item);
    assert!(!reaped.removed.iter().chain(left).any(|item| item.id == talk.confined.container), "{reaped:?}");
    talk.greet().await;
    talk.end(Duration::from_secs(10)).await;
}

// === networks and volumes ===

fn unique(kind: &str) -> String {
    format!("bulkhead-{kind}-test-{:.12}", uuid::Uuid::new_v4().simple().to_string())
}

async fn network(owner: &Owner, lease: Lease) -> String {
    let labels = labels(Some(owner), Some(lease), "network");
    let name = unique("network");
    let request = NetworkCreateRequest {
        name: name.clone(),
        internal: Some(true),
        labels: Some(labels.into_iter().collect()),
        ..Default::default()
    };
    docker().await.create_network(request).await.unwrap();
    name
}

async fn has_network(name: &str) -> bool {
    docker().await.inspect_network(name, None).await.is_ok()
}

async fn volume(owner: &Owner, lease: Lease, keep: Option<&str>) -> String {
    let mut labels = labels(Some(owner), Some(lease), "volume");
    labels.extend(keep.map(|keep| ("org.bulkhead.keep".to_owned(), keep.to_owned())));
    let name = unique("state");
    let request = VolumeCreateRequest { name: Some(name.clone()), labels: Some(labels), ..Default::default() };
    docker().await.create_volume(request).await.unwrap();
    name
}

async fn has_volume(name: &str) -> bool {
    docker().await.inspect_volume(name).await.is_ok()
}

#[tokio::test]
async fn networks_of_dead_gateways_go_and_others_stay() {
    let Owners { me, other, ended, elsewhere, .. } = &Owners::new();
    let dead = [network(ended, future()).await, network(elsewhere, past()).await];
    let living = [network(me, past()).await, network(other, future()).await, network(elsewhere, future()).await];
    reap_together(me).await;
    for name in &dead {
        assert!(!has_network(name).await, "{name} is left");
    }
    for name in &living {
        assert!(has_network(name).await, "{name} may be in use");
        docker().await.remove_network(name).await.unwrap();
    }
}

#[tokio::test]
async fn volumes_go_only_where_they_are_not_meant_to_stay_and_their_gateway_is_dead() {
    let Owners { me, other, ended, before, elsewhere, .. } = &Owners::new();
    let dead = [volume(ended, future(), Some("no")).await, volume(elsewhere, past(), Some("no")).await];
    let staying = [
        volume(ended, past(), None).await,
        volume(ended, past(), Some("yes")).await,
        volume(other, past(), Some("no")).await,
        // A session may go on there, and none of its instances run just now.
        volume(before, future(), Some("no")).await,
        volume(elsewhere, future(), Some("no")).await,
    ];
    reap_together(me).await;
    for name in &dead {
        assert!(!has_volume(name).await, "{name} is left");
    }
    for name in &staying {
        assert!(has_volume(name).await, "{name} is to stay");
        remove_volume(name).await;
    }
}

/// Containers first: then their volume is free. One that is held by something else waits, and keeps nothing else.
#[tokio::test]
async fn what_is_in_use_is_left_for_the_next_round_and_keeps_nothing_else() {
    let Owners { me, other, ended, .. } = &Owners::new();
    let (free, held) = (volume(ended, future(), Some("no")).await, volume(ended, future(), Some("no")).await);
    let last = volume(ended, future(), Some("no")).await;
    let user = made(labels(Some(ended), Some(future()), "server"), true, &[&free]).await;
    let holder = made(labels(Some(other), Some(future()), "server"), true, &[&held]).await;
    let reaped = compartment::reap(&engine(), me).await.unwrap();
    assert_eq!(reason(&reaped, &held), "its gateway is gone, but it is still in use");
    assert!(!is_there(&user).await && !has_volume(&free).await && !has_volume(&last).await, "{reaped:?}");
    assert!(is_there(&holder).await && has_volume(&held).await);
    remove(&holder).await;
    let reaped = compartment::reap(&engine(), me).await.unwrap();
    let gone = reaped.removed.iter().any(|item| item.kind == Kind::Volume && item.id == held);
    assert!(gone || !has_volume(&held).await, "{reaped:?}");
    assert!(!has_volume(&held).await);
}

// === images ===

/// An image as a bake leaves it on its way.
async fn passing_image(owner: &Owner, lease: Lease) -> String {
    let mut labels = labels(Some(owner), Some(lease), "bake");
    labels.insert("org.bulkhead.bake".into(), uuid::Uuid::new_v4().simple().to_string());
    let docker = docker().await;
    let container = made(HashMap::new(), false, &[]).await;
    let tag = uuid::Uuid::new_v4().simple().to_string();
    let options = CommitContainerOptionsBuilder::new().container(&container).repo("bulkhead/baking").tag(&tag).build();
    let config = bollard::models::ContainerConfig { labels: Some(labels), ..Default::default() };
    docker.commit_container(options, config).await.unwrap();
    remove(&container).await;
    format!("bulkhead/baking:{tag}")
}

async fn has_image(name: &str) -> bool {
    docker().await.inspect_image(name).await.is_ok()
}

#[tokio::test]
async fn what_a_killed_bake_left_goes_and_what_a_running_one_needs_stays() {
    let Owners { me, other, ended, elsewhere, .. } = &Owners::new();
    let dead = [passing_image(ended, future()).await, passing_image(elsewhere, past()).await];
    let living = [passing_image(other, past()).await, passing_image(elsewhere, future()).await];
    reap_together(me).await;
    for name in &dead {
        assert!(!has_image(name).await, "{name} is left");
    }
    for name in &living {
        assert!(has_image(name).await, "{name} may be in use");
        let force = RemoveImageOptionsBuilder::new().force(true).build();
        docker().await.remove_image(name, Some(force), None).await.unwrap();
    }
}
