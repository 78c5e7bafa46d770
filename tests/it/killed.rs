//! However a gateway ends, nothing of it stays; and nothing of another gateway goes with it.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::engine::{self, Container, containers};
use crate::support::{PATIENCE, Serving, Site, contained, wait_until};

/// How soon a killed gateway's containers are gone.
const SOON: Duration = Duration::from_secs(10);

/// How soon the next start has cleared up: before any gateway that runs already looks again.
const PROMPTLY: Duration = Duration::from_secs(25);

const TAME: [&str; 4] = ["a", "b", "c", "d"];
const STUBBORN: [&str; 2] = ["deaf", "deafer"];

/// Six servers that start with the gateway; two of them ignore the end of their input.
fn six() -> String {
    let tame: String = TAME.iter().map(|name| contained(name, &[])).collect();
    let deaf = contained("deaf", &["--ignore-eof", "--fork"]);
    let deafer = contained("deafer", &["--ignore-eof", "--ignore-term"]);
    format!("[gateway]\nstart = \"eager\"\n{tame}{deaf}{deafer}")
}

/// The gateway of a site with all its servers running; its name, too.
fn running(site: &Site) -> (Serving, String) {
    let serving = site.open();
    for name in TAME.iter().chain(&STUBBORN) {
        site.server_in(name, "ready");
    }
    let gateway = site.gateway();
    assert_eq!(containers(&gateway).len(), 6);
    (serving, gateway)
}

/// Another gateway with a server of its own, which has to get through it all.
struct Bystander {
    serving: Serving,
    container: Vec<Container>,
    site: Site,
}

impl Bystander {
    fn of(site: &Site) -> Self {
        let site = site.another(&contained("fx", &[]));
        let mut serving = site.open();
        assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":1}"#);
        let container = containers(&site.gateway());
        assert_eq!(container.len(), 1);
        Bystander { site, serving, container }
    }

    fn assert_untouched(mut self) {
        assert_eq!(containers(&self.site.gateway()), self.container);
        assert_eq!(self.serving.text("fx__count", json!({})), r#"{"calls":2}"#);
    }
}

/// The servers of a gateway that have a container, running or not.
fn left(gateway: &str) -> BTreeSet<String> {
    engine::servers(gateway).into_iter().collect()
}

#[test]
fn kill_9_leaves_nothing_but_what_ignores_its_end_and_reap_removes_that() {
    let site = Site::alone(&six());
    let bystander = Bystander::of(&site);
    let (serving, gateway) = running(&site);
    serving.kill();
    let stubborn: BTreeSet<String> = STUBBORN.map(str::to_owned).into();
    wait_until("only the stubborn are left", SOON, || left(&gateway).is_subset(&stubborn));

    let before = left(&gateway);
    let said = site.prints(&["reap"]);
    assert!(before.iter().all(|name| said.contains(&format!("({name})"))), "{before:?}: {said}");
    assert_eq!(left(&gateway), BTreeSet::new());
    bystander.assert_untouched();
}

#[test]
fn the_next_start_removes_what_a_killed_gateway_left() {
    let site = Site::alone(&six());
    let bystander = Bystander::of(&site);
    let (serving, gateway) = running(&site);
    serving.kill();
    assert!(!left(&gateway).is_empty());
    // It asks for nothing: to start is enough.
    let next = site.another("");
    let _serving = next.serve();
    wait_until("nothing of the killed gateway", PROMPTLY, || left(&gateway).is_empty());
    bystander.assert_untouched();
}

#[test]
fn the_end_of_the_input_leaves_nothing() {
    let site = Site::alone(&six());
    let bystander = Bystander::of(&site);
    let (serving, gateway) = running(&site);
    let ended = serving.close();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(engine::servers(&gateway), [""; 0]);
    bystander.assert_untouched();
}

#[test]
fn sigterm_leaves_nothing_even_with_a_call_in_flight() {
    let site = Site::alone(&six());
    let bystander = Bystander::of(&site);
    let (mut serving, gateway) = running(&site);
    let call = serving.ask_tool("a__sleep", json!({"ms": 600_000}));
    wait_until("the call is on its way", PATIENCE, || !site.records("intent").is_empty());
    serving.signal(Signal::TERM);
    let answer = serving.answer(call);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let ended = serving.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(engine::servers(&gateway), [""; 0]);
    bystander.assert_untouched();
}

#[test]
fn sigterm_while_a_server_starts_leaves_nothing() {
    let site = Site::alone(&contained("slow", &["--slow-init", "600000"]));
    let serving = site.open();
    let gateway = site.gateway();
    wait_until("the container runs", PATIENCE, || {
        containers(&gateway).iter().any(|container| container.state == "running")
    });
    serving.signal(Signal::TERM);
    assert!(serving.ended().status.success());
    assert_eq!(engine::servers(&gateway), [""; 0]);
}

#[test]
fn every_server_that_was_started_is_recorded_as_stopped() {
    let site = Site::new(&(TAME.map(|name| contained(name, &[])).concat() + &contained("deaf", &["--ignore-eof"])));
    let mut serving = site.open();
    for name in TAME.iter().chain(&["deaf"]) {
        serving.wait_for_tool(&format!("{name}__echo"));
    }
    assert!(serving.close().status.success());
    let events = |event: &str| {
        let all = site.records("server").into_iter().filter(|record| record["event"] == *event);
        all.map(|record| record["container"].to_string()).collect::<BTreeSet<_>>()
    };
    assert_eq!(events("started").len(), 5);
    assert_eq!(events("stopped"), events("started"));
}

#[test]
fn a_gateway_that_ends_while_its_servers_come_up_ends_and_records_each() {
    let site = Site::new(&format!("[gateway]\nstart = \"eager\"\n{}{}", contained("a", &[]), contained("b", &[])));
    for round in 0..12 {
        let mut serving = site.serve();
        serving.initialize();
        // From before the first container to after the last handshake.
        std::thread::sleep(Duration::from_millis(round * 90));
        let ended = serving.close();
        assert!(ended.status.success(), "{round}: {}", ended.stderr);
        assert!(!ended.stderr.contains("lack the record"), "{round}: {}", ended.stderr);
    }
    let count = |event: &str| site.records("server").iter().filter(|record| record["event"] == event).count();
    assert_eq!(count("started"), count("stopped") + count("crashed"));
    assert!(count("stopped") > 0);
}
