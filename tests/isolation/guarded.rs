//! A server behind its guard on the real engine: proven as such, and refused where its network is any other, also by an
//! engine that lies about it.

use std::time::Duration;

use bulkhead::config::Server;
use bulkhead::error::Class;
use serde_json::{Value, json};

use super::proxy::{Call, Failure, Proxy};
use super::support::{FIXTURE, Gateway, server};

fn guarded() -> Server {
    server(&format!("image = {FIXTURE:?}\nhost_ports = [5432]\negress = [\"example.org:443\"]"))
}

/// The engine's report of a server that is behind its guard as it was asked for.
async fn truth() -> Value {
    let proxy = Proxy::new();
    let gateway = Gateway::at(proxy.addresses());
    let (guard, link) = gateway.guard(&guarded()).await.unwrap();
    let confined = gateway.start_behind(&guarded(), &guard).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
    let network = confined.evidence.controls.iter().find(|control| control.control == "network").unwrap();
    let through = format!("none but through the guard {:.12}", guard.container());
    assert_eq!((&network.asked, &network.engine, &*network.inside), (&through, &through, "lo, 0 routes out"));
    assert!(confined.evidence.controls.iter().all(|control| control.holds));
    assert!(guard.evidence().controls.iter().all(|control| control.holds));
    let truth = proxy.reported();
    confined.link.process.end(Duration::ZERO).await;
    link.process.end(Duration::ZERO).await;
    gateway.is_clean().await;
    truth
}

/// The networks that it must not have instead, and by what that is seen from inside.
const OTHERS: [(&str, &[&str]); 4] = [
    ("bridge", &["network"]),
    ("host", &["network"]),
    ("none", &["network", "hostname", "mounts"]),
    ("other", &["network", "mounts"]),
];

#[tokio::test]
async fn another_network_than_its_guards_is_found_out_whatever_the_engine_says() {
    let truth = truth().await;
    let elsewhere = Gateway::new();
    let (other, _link) = elsewhere.guard(&guarded()).await.unwrap();
    for (network, seen) in OTHERS {
        let mode = if network == "other" { format!("container:{}", other.container()) } else { network.to_owned() };
        let change = move |body: &mut Value| body["HostConfig"]["NetworkMode"] = json!(mode);
        let honest = (Proxy::changing(change.clone()), &["network"][..]);
        for (proxy, controls) in [honest, (Proxy::lying(truth.clone(), change), seen)] {
            let gateway = Gateway::at(proxy.addresses());
            let (guard, link) = gateway.guard(&guarded()).await.unwrap();
            let fault = gateway.start_behind(&guarded(), &guard).await.err().expect("a refusal");
            assert_eq!(fault.class, Class::Isolation, "{network}: {}", fault.inward);
            for control in controls {
                assert!(fault.outward.contains(control), "{network}, {control}: {}", fault.inward);
            }
            link.process.end(Duration::ZERO).await;
            gateway.is_clean().await;
        }
    }
}

#[tokio::test]
async fn a_server_is_not_started_where_its_guard_has_ended() {
    let gateway = Gateway::new();
    let (guard, link) = gateway.guard(&guarded()).await.unwrap();
    link.process.end(Duration::ZERO).await;
    let fault = gateway.start_behind(&guarded(), &guard).await.err().expect("a refusal");
    assert_eq!(fault.class, Class::Isolation, "{}", fault.inward);
    assert!(fault.outward.contains("the engine refuses to"), "{fault}");
    gateway.is_clean().await;
    assert!(gateway.plan(&guarded()).await.is_err(), "nor without one");
}

#[tokio::test]
async fn a_guard_whose_image_is_missing_says_what_makes_it() {
    let proxy = Proxy::failing(Call::GuardImage, Failure::Answer(404));
    let gateway = Gateway::at(proxy.addresses());
    let fault = gateway.guard(&guarded()).await.err().expect("a refusal");
    assert_eq!(fault.class, Class::Isolation, "{}", fault.inward);
    let why =
        "the guard of its network cannot be used: its image \"bulkhead/guard\" is not on the engine; run scripts/setup";
    assert_eq!(fault.outward, format!("server s: {why}"));
    gateway.is_clean().await;
}
