//! What a gateway writes on what is its own, what stays of a killed one, and what the commands say of it.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use bulkhead::compartment::{Lease, Owner};
use bulkhead::config::env::Fixed;
use bulkhead::config::resolve::load;
use serde_json::{Value, json};

use crate::support::engine::{self, containers, docker, try_docker};
use crate::support::{PATIENCE, Site, contained, wait_until};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn labels(container: &str) -> HashMap<String, String> {
    let shown = docker(&["inspect", "--format", "{{json .Config.Labels}}", container]);
    serde_json::from_str(&shown).unwrap()
}

/// The 22nd field of a process's stat line.
fn started(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().to_owned()
}

#[test]
fn what_the_labels_of_a_container_say_is_true() {
    let site = Site::new(&contained("fx", &[]));
    let before = SystemTime::now() - Duration::from_secs(1);
    let mut serving = site.open();
    serving.text("fx__count", json!({}));
    let gateway = site.gateway();
    let labels = labels(&containers(&gateway)[0].id);
    let says = |name: &str| labels.get(&format!("org.bulkhead.{name}")).cloned().unwrap_or_default();
    let config = load(&site.config(), &Fixed::default()).unwrap_or_else(|faults| panic!("{faults}"));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(says("gateway"), gateway);
    assert_eq!(says("owner.pid"), serving.pid().to_string());
    assert_eq!(says("owner.started"), started(serving.pid()));
    assert_eq!(says("owner.boot"), boot.trim());
    assert_eq!(says("owner.host"), Owner::this_process("here").host);
    assert_eq!(says("server"), "fx");
    assert_eq!(says("principal"), config.stdio.id.to_string());
    assert_eq!(says("digest"), config.servers[0].digest);
    assert_eq!(says("role"), "server");
    let lease = Lease::from_labels(&labels).expect("a lease").end() - DAY;
    assert!(lease >= before && lease <= SystemTime::now(), "a day from its start: {}", says("lease"));
}

// === what a session kept ===

/// A server that keeps things for its session, and one that keeps them for its principal.
fn keeping() -> String {
    let entry = |name: &str, more: &str| contained(name, &[]) + "state = \"/keep\"\n" + more;
    entry("fleeting", "share = \"session\"\n") + &entry("lasting", "")
}

/// The volumes of both, while they run.
fn volumes(site: &Site) -> (String, String) {
    let mut serving_as: HashMap<String, String> = HashMap::new();
    for container in containers(&site.gateway()) {
        let format = r#"{{range .Mounts}}{{if eq .Destination "/keep"}}{{.Name}}{{end}}{{end}}"#;
        serving_as.insert(container.server, docker(&["inspect", "--format", format, &container.id]));
    }
    (serving_as["fleeting"].clone(), serving_as["lasting"].clone())
}

fn has_volume(name: &str) -> bool {
    try_docker(&["volume", "inspect", name]).is_ok()
}

#[test]
fn at_the_end_of_the_input_only_what_a_principal_kept_stays() {
    let site = Site::new(&keeping());
    let mut serving = site.open();
    for server in ["fleeting", "lasting"] {
        serving.text(&format!("{server}__count"), json!({}));
    }
    let (fleeting, lasting) = volumes(&site);
    assert!(has_volume(&fleeting) && has_volume(&lasting));
    assert!(serving.close().status.success());
    assert!(!has_volume(&fleeting), "{fleeting} outlives its session");
    assert!(has_volume(&lasting), "{lasting} is gone");
    docker(&["volume", "rm", &lasting]);
}

#[test]
fn what_a_killed_gateways_session_kept_is_named_by_check_and_removed_by_reap() {
    let site = Site::alone(&keeping());
    let mut serving = site.open();
    for server in ["fleeting", "lasting"] {
        serving.text(&format!("{server}__count"), json!({}));
    }
    let (gateway, (fleeting, lasting)) = (site.gateway(), volumes(&site));
    serving.kill();
    wait_until("no container of the killed gateway", PATIENCE, || engine::servers(&gateway).is_empty());
    assert!(has_volume(&fleeting) && has_volume(&lasting));

    let checked = site.run(&["check"]);
    assert!(checked.stdout.contains("volume"), "{checked:?}");
    assert!(checked.stdout.contains("of gateways that are gone"), "{checked:?}");

    let reaped: Value = serde_json::from_str(&site.prints(&["reap", "--json"])).unwrap();
    let removed = reaped["removed"].as_array().unwrap();
    let expected = json!({ "kind": "volume", "id": fleeting, "name": "fleeting" });
    assert!(removed.contains(&expected), "{reaped}");
    assert!(!has_volume(&fleeting) && has_volume(&lasting), "{reaped}");
    docker(&["volume", "rm", &lasting]);
}

#[test]
fn reap_says_what_it_removed_and_why_it_left_the_rest() {
    let site = Site::alone("");
    let me = Owner::this_process("test-reap-says");
    let lease = Lease::from_now(DAY);
    let elsewhere = Owner { host: "another".into(), ..me.clone() };
    let dead = Owner { pid: 4_000_000_000, ..me };
    let forged = |owner: &Owner| {
        let mut labels = owner.labels(lease);
        labels.extend(
            [("org.bulkhead.role", "server"), ("org.bulkhead.server", "forged")].map(|(k, v)| (k.into(), v.into())),
        );
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("--label={name}={value}")).collect();
        let args = ["create", "--network=none"].into_iter().chain(labels.iter().map(String::as_str));
        docker(&args.chain(["bulkhead/fixture", "true"]).collect::<Vec<_>>())
    };
    let (left, gone) = (forged(&elsewhere), forged(&dead));
    let said = site.prints(&["reap"]);
    assert!(said.contains(&format!("removed container {:.12} (forged)\n", gone)), "{said}");
    assert!(said.contains("removed in all: "), "{said}");
    let why = format!("its gateway may be running on another host; its lease ends at {lease}");
    assert!(said.contains(&format!("left alone: container {left:.12} (forged): {why}\n")), "{said}");
    let told: Value = serde_json::from_str(&site.prints(&["reap", "--json"])).unwrap();
    let expected = json!({ "kind": "container", "id": left, "name": "forged", "reason": why });
    assert!(told["left"].as_array().unwrap().contains(&expected), "{told}");
    docker(&["rm", "--force", &left]);
    assert!(try_docker(&["inspect", &gone]).is_err());
}

// === bakes ===

/// The containers and passing images of a bake, by the process that it belongs to. That process starts a server, too.
fn of_bake(pid: u32) -> (Vec<String>, Vec<String>) {
    let owner = format!("label=org.bulkhead.owner.pid={pid}");
    let bake = ["--quiet", "--no-trunc", "--filter", &owner, "--filter", "label=org.bulkhead.role=bake"];
    let lines = |command: &[&str]| docker(&[command, &bake].concat()).lines().map(str::to_owned).collect();
    (lines(&["ps", "--all"]), lines(&["images"]))
}

#[test]
fn what_a_killed_bake_left_is_reaped_and_a_running_one_is_not() {
    let site = Site::alone("[servers.memory]\npackage = \"npx:@modelcontextprotocol/server-memory\"\n");
    let mut lock = site.command(&["lock", "--yes"]);
    let mut lock = lock.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = lock.id();
    wait_until("a container of the bake", PATIENCE, || !of_bake(pid).0.is_empty());
    let said = site.prints(&["reap"]);
    assert!(!said.contains("(bulkhead/baking:"), "{said}");
    assert!(lock.try_wait().unwrap().is_none(), "the bake goes on");
    lock.kill().unwrap();
    lock.wait().unwrap();
    // Nobody waits for it any more, so it asks registries for nothing any more.
    wait_until("the end of its container", PATIENCE, || {
        let running =
            |id: &String| try_docker(&["inspect", "--format", "{{.State.Running}}", id]).is_ok_and(|r| r == "true");
        !of_bake(pid).0.iter().any(running)
    });
    wait_until("nothing of the killed bake", PATIENCE, || {
        site.prints(&["reap"]);
        let (containers, images) = of_bake(pid);
        containers.is_empty() && images.is_empty()
    });
}
