//! A server within its fence on the real engine: proven as such, and refused where its network, or the fence itself, is any
//! other than asked for, also by an engine that lies about it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, HostConfig, Ipam, IpamConfig, NetworkConnectRequest, NetworkCreateRequest};
use bollard::query_parameters::{CreateContainerOptions, ListNetworksOptions, RemoveContainerOptionsBuilder};
use bulkhead::compartment::Lease;
use bulkhead::config::Server;
use bulkhead::error::{Class, Fault};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::mutation::{SAME, places, without};
use super::proxy::{Call, Failure, Proxy};
use super::support::{FIXTURE, Gateway, LONG, docker, server};

type Change = Box<dyn Fn(&mut Value) + Send + Sync>;

fn bridged() -> Server {
    server(&format!("image = {FIXTURE:?}\nnetwork = \"bridge\""))
}

/// The networks of a gateway.
async fn networks(gateway: &Gateway) -> Vec<String> {
    let filters =
        HashMap::from([("label".to_owned(), vec![format!("org.bulkhead.gateway={}", gateway.owner.gateway)])]);
    let listed = docker().await.list_networks(Some(ListNetworksOptions { filters: Some(filters) })).await.unwrap();
    listed.into_iter().filter_map(|network| network.id).collect()
}

/// Waits until there is nothing of it.
async fn is_clean(gateway: &Gateway) {
    gateway.is_clean().await;
    let began = Instant::now();
    while !networks(gateway).await.is_empty() {
        assert!(began.elapsed() < LONG, "left: {:?}", networks(gateway).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The engine's report of a server that is within its fence as it was asked for.
async fn truth() -> Value {
    let proxy = Proxy::new();
    let gateway = Gateway::at(proxy.addresses());
    let (fence, link) = gateway.fence(&bridged()).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
    let confined = gateway.start_fenced(&bridged(), &fence).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
    for evidence in [&confined.evidence, &**fence.evidence()] {
        assert!(evidence.controls.len() == 29 && evidence.controls.iter().all(|control| control.holds), "{evidence:?}");
    }
    let network = confined.evidence.controls.iter().find(|control| control.control == "network").unwrap();
    let within = format!("none but within the fence {:.12}", fence.container());
    assert_eq!((&network.asked, &network.engine, &*network.inside), (&within, &within, "lo,eth0"));
    let truth = proxy.reported();
    confined.link.process.end(Duration::ZERO).await;
    link.process.end(Duration::ZERO).await;
    gateway.is_clean().await;
    assert_eq!(networks(&gateway).await, [""; 0], "it is gone when its end has been waited for");
    truth
}

/// The networks that it must not have instead, and by what that is seen from inside.
const OTHERS: [(&str, &[&str]); 3] =
    [("bridge", &["fence", "network"]), ("none", &["fence", "network"]), ("other", &["network"])];

#[tokio::test]
async fn another_network_than_its_fences_is_found_out_whatever_the_engine_says() {
    let truth = truth().await;
    let elsewhere = Gateway::new();
    let (other, other_link) = elsewhere.fence(&bridged()).await.unwrap();
    for (network, seen) in OTHERS {
        let mode = if network == "other" { format!("container:{}", other.container()) } else { network.to_owned() };
        let change = move |body: &mut Value| body["HostConfig"]["NetworkMode"] = json!(mode);
        let honest = (Proxy::changing(change.clone()), &["network"][..]);
        for (proxy, controls) in [honest, (Proxy::lying(truth.clone(), change), seen)] {
            let gateway = Gateway::at(proxy.addresses());
            let (fence, link) = gateway.fence(&bridged()).await.unwrap();
            let fault = gateway.start_fenced(&bridged(), &fence).await.err().expect("a refusal");
            assert_eq!(fault.class, Class::Isolation, "{network}: {}", fault.inward);
            for control in controls {
                assert!(fault.outward.contains(control), "{network}, {control}: {}", fault.inward);
            }
            link.process.end(Duration::ZERO).await;
            is_clean(&gateway).await;
        }
    }
    other_link.process.end(Duration::ZERO).await;
    is_clean(&elsewhere).await;
}

/// What a fence comes to at an engine that does not do as it is told, which has nothing left of it.
async fn refused(proxy: &Proxy) -> Fault {
    let gateway = Gateway::at(proxy.addresses());
    let fault = gateway.fence(&bridged()).await.err().expect("a refusal");
    is_clean(&gateway).await;
    fault
}

#[tokio::test]
async fn a_network_that_is_another_than_asked_for_is_found_out() {
    let icc = "com.docker.network.bridge.enable_icc";
    let changes: [(&str, Change); 6] = [
        ("icc on", Box::new(move |body| body["Options"][icc] = json!("true"))),
        ("no options", Box::new(|body| body["Options"] = json!({}))),
        ("attachable", Box::new(|body| body["Attachable"] = json!(true))),
        ("another option", Box::new(|body| body["Options"]["com.docker.network.driver.mtu"] = json!("1400"))),
        (
            "no lease",
            Box::new(|body| {
                body["Labels"].as_object_mut().unwrap().remove("org.bulkhead.lease");
            }),
        ),
        (
            "IPv6",
            Box::new(|body| {
                body["EnableIPv6"] = json!(true);
                body["IPAM"] = json!({ "Config": [{ "Subnet": "fd42:6272:6467::/64" }] });
            }),
        ),
    ];
    for (what, change) in changes {
        let fault = refused(&Proxy::networking(change)).await;
        assert_eq!(fault.class, Class::Isolation, "{what}: {}", fault.inward);
        assert!(fault.outward.contains("(fence)") || what == "IPv6", "{what}: {}", fault.inward);
    }
    // Whether there is a way out of such a one is a matter of the engine's version.
    let fault = refused(&Proxy::networking(|body| body["Internal"] = json!(true))).await;
    assert!(["internal", "there is no way out by"].iter().any(|why| fault.inward.contains(why)), "{}", fault.inward);
}

#[tokio::test]
async fn a_fence_that_does_not_stand_is_found_out() {
    // What comes before the probe is what sets it up.
    let unfenced = |body: &mut Value| {
        let rest = body["Entrypoint"].as_array().unwrap()[6..].to_vec();
        body["Entrypoint"] = rest.into();
    };
    let changes: [(&str, &[&str], Change); 8] = [
        ("no fence", &["capabilities", "user", "fence", "program"], Box::new(unfenced)),
        (
            "a fence with a hole",
            &["fence", "program"],
            Box::new(|body| {
                let hole = body["Entrypoint"][3].as_str().unwrap().replace("10.0.0.0/8,", "");
                body["Entrypoint"][3] = hole.into();
            }),
        ),
        ("names anywhere", &["program"], Box::new(|body| body["Entrypoint"][4] = json!("10.0.0.0/8"))),
        (
            "a published port",
            &["network"],
            Box::new(|body| {
                body["ExposedPorts"] = json!({ "80/tcp": {} });
                body["HostConfig"]["PortBindings"] = json!({ "80/tcp": [{ "HostIp": "127.0.0.1", "HostPort": "0" }] });
            }),
        ),
        ("every port", &["network"], Box::new(|body| body["HostConfig"]["PublishAllPorts"] = json!(true))),
        (
            "a capability more",
            &["capabilities"],
            Box::new(|body| {
                body["HostConfig"]["CapAdd"].as_array_mut().unwrap().push(json!("NET_RAW"));
            }),
        ),
        ("an init", &["init"], Box::new(|body| body["HostConfig"]["Init"] = json!(true))),
        ("other name servers", &["network"], Box::new(|body| body["HostConfig"]["Dns"] = json!(["9.9.9.9"]))),
    ];
    for (what, controls, change) in changes {
        let fault = refused(&Proxy::fencing(change)).await;
        assert_eq!(fault.class, Class::Isolation, "{what}: {}", fault.inward);
        for control in controls {
            assert!(fault.outward.contains(control), "{what}, {control}: {}", fault.inward);
        }
    }
    // Without the right to its network it can set up nothing, and on the engine's own it is not where it should be.
    let fault = refused(&Proxy::fencing(|body| body["HostConfig"]["CapAdd"] = json!(["SETUID"]))).await;
    assert!(fault.inward.contains("cannot filter packets"), "{}", fault.inward);
    for network in ["bridge", "none"] {
        let fault = refused(&Proxy::fencing(move |body| body["HostConfig"]["NetworkMode"] = json!(network))).await;
        assert!(fault.inward.contains("there is no way out by"), "{network}: {}", fault.inward);
    }
}

/// A request that a fence is made of.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Request {
    Network,
    Container,
}

impl Request {
    /// An engine that is asked for something else.
    fn changed(self, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Proxy {
        match self {
            Request::Network => Proxy::networking(change),
            Request::Container => Proxy::fencing(change),
        }
    }

    /// It, as it comes.
    async fn body(self) -> Value {
        let seen: Arc<Mutex<Value>> = Arc::default();
        let keep = seen.clone();
        let proxy = self.changed(move |body| *keep.lock().unwrap() = body.clone());
        let gateway = Gateway::at(proxy.addresses());
        let (_, link) = gateway.fence(&bridged()).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
        link.process.end(Duration::ZERO).await;
        is_clean(&gateway).await;
        seen.lock().unwrap().clone()
    }
}

/// What an engine does by itself where a request for a network does not say it.
const USUAL: [&str; 4] = ["/Attachable", "/Driver", "/EnableIPv6", "/Internal"];

/// Leaves out of a request each of the places in turn that are selected.
async fn left_out(of: Request, selected: fn(&str) -> bool) {
    let mut all = Vec::new();
    places("", &of.body().await, &mut all);
    all.retain(|place| selected(place));
    assert!(!all.is_empty());
    let met = all.into_iter().map(|place| async move {
        let dropped = place.clone();
        let proxy = of.changed(move |body| without(body, &dropped));
        let gateway = Gateway::at(proxy.addresses());
        let made = gateway.fence(&bridged()).await;
        let usual: &[&str] = if of == Request::Network { &USUAL } else { &SAME };
        // The fixture's image has these by itself, and the fence's has not.
        let same = usual.contains(&place.as_str()) && !["/Env/0", "/Env/1"].contains(&place.as_str());
        let unmet = match &made {
            Ok(_) if !same => Some("proven".to_owned()),
            Err(fault) if same => Some(format!("refused: {}", fault.inward)),
            Err(fault) if !matches!(fault.class, Class::Isolation | Class::Crashed) => Some(fault.inward.clone()),
            _ => None,
        };
        if let Ok((_, link)) = made {
            link.process.end(Duration::ZERO).await;
        }
        gateway.is_clean().await;
        unmet.map(|unmet| format!("{place} of the {of:?}: {unmet}"))
    });
    let unmet: Vec<String> = stream::iter(met).buffer_unordered(4).filter_map(std::future::ready).collect().await;
    assert!(unmet.is_empty(), "\n{}", unmet.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_left_out_of_the_request_for_a_fences_network_is_found_out() {
    left_out(Request::Network, |place| place != "/Name" && !place.starts_with("/CheckDuplicate")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_left_out_of_how_a_fences_container_is_held_is_found_out() {
    left_out(Request::Container, |place| place.starts_with("/HostConfig")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_left_out_of_what_a_fences_container_is_is_found_out() {
    // One whose labels say nothing is no fence's to this proxy, and the labels are each found out by themselves.
    const NAMING: [&str; 3] = ["/Labels", "/Labels/org.bulkhead.role", "/Labels/org.bulkhead.gateway"];
    left_out(Request::Container, |place| !place.starts_with("/HostConfig") && !NAMING.contains(&place)).await;
}

#[tokio::test]
async fn what_comes_to_the_network_before_the_server_is_found_out() {
    let gateway = Gateway::new();
    let (fence, link) = gateway.fence(&bridged()).await.unwrap();
    let connect = |container: &str| NetworkConnectRequest { container: container.to_owned(), ..Default::default() };
    // A second network for the fence, and so a second interface and a second way. Engines do not even manage that where its
    // addresses are prohibited.
    let id = std::process::id();
    let subnet = format!("11.{}.{}.0/28", id >> 8 & 0xff, id & 0xff);
    let ipam =
        Ipam { config: Some(vec![IpamConfig { subnet: Some(subnet), ..Default::default() }]), ..Default::default() };
    let labels = gateway.owner.labels(Lease::from_now(LONG));
    let request = NetworkCreateRequest {
        name: format!("bulkhead-test-{id}"),
        ipam: Some(ipam),
        labels: Some(labels),
        ..NetworkCreateRequest::default()
    };
    let second = docker().await.create_network(request).await.unwrap().id;
    docker().await.connect_network(&second, connect(fence.container())).await.unwrap();
    let fault = gateway.start_fenced(&bridged(), &fence).await.err().expect("a refusal");
    link.process.end(Duration::ZERO).await;
    docker().await.remove_network(&second).await.unwrap();
    assert!(fault.outward.contains("(network, fence)"), "{}", fault.inward);
    is_clean(&gateway).await;

    let (fence, link) = gateway.fence(&bridged()).await.unwrap();
    let host = HostConfig { network_mode: Some(fence.bounds().place.name.clone()), ..HostConfig::default() };
    let other = ContainerCreateBody {
        image: Some("bulkhead/fixture".to_owned()),
        cmd: Some(["sleep", "60"].map(str::to_owned).to_vec()),
        labels: Some(gateway.owner.labels(Lease::from_now(LONG))),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    };
    let other = docker().await.create_container(None::<CreateContainerOptions>, other).await.unwrap().id;
    docker().await.start_container(&other, None).await.unwrap();
    let fault = gateway.start_fenced(&bridged(), &fence).await.err().expect("a refusal");
    let force = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    docker().await.remove_container(&other, Some(force)).await.unwrap();
    assert!(fault.outward.contains("(fence)") && fault.inward.contains("other containers in it"), "{}", fault.inward);
    link.process.end(Duration::ZERO).await;
    is_clean(&gateway).await;
}

#[tokio::test]
async fn a_server_is_not_started_where_its_fence_has_ended_or_without_one() {
    let gateway = Gateway::new();
    let (fence, link) = gateway.fence(&bridged()).await.unwrap();
    link.process.end(Duration::ZERO).await;
    let fault = gateway.start_fenced(&bridged(), &fence).await.err().expect("a refusal");
    assert!(fault.class == Class::Isolation && fault.outward.contains("the engine refuses to"), "{}", fault.inward);
    is_clean(&gateway).await;
    assert!(gateway.plan(&bridged()).await.is_err(), "nor without one");
}

#[tokio::test]
async fn a_fence_that_is_dropped_leaves_no_network() {
    let gateway = Gateway::new();
    let fence = gateway.fence(&bridged()).await.unwrap();
    assert_eq!(networks(&gateway).await.len(), 1);
    drop(fence);
    is_clean(&gateway).await;
}

#[tokio::test]
async fn an_engine_that_makes_no_network_or_lacks_the_image_is_told() {
    let fault = refused(&Proxy::failing(Call::FenceImage, Failure::Answer(404))).await;
    let why = "its image \"bulkhead/fence\" is not on the engine; run scripts/setup";
    assert_eq!(fault.outward, format!("server s: the fence of its network cannot be used: {why}"));
    let fault = refused(&Proxy::failing(Call::Network, Failure::Answer(500))).await;
    assert_eq!(fault.class, Class::Isolation, "{}", fault.inward);
    assert!(fault.outward.ends_with("the engine refuses to make its network"), "{fault}");
    // One that was asked, and whose answer nobody hears, has made it all the same.
    let fault = refused(&Proxy::failing(Call::Network, Failure::CutAfter)).await;
    assert_eq!(fault.class, Class::Engine, "{}", fault.inward);
}

#[tokio::test]
async fn whoever_gives_up_while_the_network_is_made_leaves_none() {
    let proxy = Proxy::failing(Call::Network, Failure::Delay(Duration::from_secs(1)));
    let gateway = Gateway::at(proxy.addresses());
    let waited = tokio::time::timeout(Duration::from_millis(500), gateway.fence(&bridged())).await;
    assert!(waited.is_err(), "it was not that quick");
    let began = Instant::now();
    while networks(&gateway).await.is_empty() && began.elapsed() < Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    is_clean(&gateway).await;
}
