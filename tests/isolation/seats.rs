//! Which processors a server runs on: few, those with the least on them, and proven; and what an engine says that has
//! others than it seems, or cannot keep anything to any.

use std::time::Duration;

use bulkhead::compartment::Confined;
use bulkhead::compartment::verify::Control;
use serde_json::json;

use super::proxy::Proxy;
use super::support::{FIXTURE, Gateway, server};

async fn started(gateway: &Gateway, more: &str) -> Confined {
    let server = server(&format!("image = {FIXTURE:?}\n{more}"));
    gateway.start(&server).await.unwrap_or_else(|fault| panic!("{}", fault.inward))
}

fn processors(confined: &Confined) -> &Control {
    confined.evidence.controls.iter().find(|c| c.control == "processors").unwrap()
}

#[tokio::test]
async fn two_servers_have_a_processor_each_until_they_end() {
    let gateway = Gateway::new();
    let (one, other) = (started(&gateway, "").await, started(&gateway, "").await);
    let inside = [&one, &other].map(|confined| processors(confined).inside.clone());
    assert!(inside[0] != inside[1], "{inside:?}");
    // The place that the first had is the free one.
    one.link.process.end(Duration::ZERO).await;
    drop(one.link);
    let third = started(&gateway, "").await;
    assert_eq!(processors(&third).inside, inside[0]);
    for confined in [other, third] {
        confined.link.process.end(Duration::ZERO).await;
    }
    gateway.is_clean().await;
}

#[tokio::test]
async fn one_that_may_use_two_has_two() {
    let gateway = Gateway::new();
    let confined = started(&gateway, "cpus = 1.5").await;
    assert_eq!(processors(&confined).inside, "0-1");
    confined.link.process.end(Duration::ZERO).await;
}

/// As in a virtual machine within which an engine has only some processors.
#[tokio::test]
async fn an_engine_that_has_others_than_their_number_says_is_taken_at_its_word() {
    let proxy = Proxy::answering("/info", |info| info["NCPU"] = json!(4096));
    let gateway = Gateway::at(proxy.addresses());
    // Both have asked for what is not there before either is told.
    let both = tokio::join!(started(&gateway, ""), started(&gateway, ""));
    for confined in [both.0, both.1] {
        assert!(["0", "1"].contains(&processors(&confined).inside.as_str()), "{:?}", processors(&confined));
        confined.link.process.end(Duration::ZERO).await;
    }
    gateway.is_clean().await;
}

#[tokio::test]
async fn an_engine_that_keeps_nothing_to_any_is_asked_for_none_and_that_is_told() {
    let proxy = Proxy::answering("/info", |info| info["CPUSet"] = json!(false));
    let gateway = Gateway::at(proxy.addresses());
    let confined = started(&gateway, "").await;
    let told = processors(&confined);
    assert_eq!((told.asked.as_str(), told.engine.as_str(), told.inside.as_str()), ("any", "any", "0-1"));
    confined.link.process.end(Duration::ZERO).await;
}
