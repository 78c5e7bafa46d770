//! The request that makes a container, whole, and what a change of the configuration changes in it.

use serde_json::{Value, json};

use crate::compartment::testing::{GUARD, NONCE, PROBE_VOLUME, bind, image, lease, owner, planned, server};
use crate::config::{Run, Server};
use crate::error::Class;

use super::*;

const GOLDEN: &str = include_str!("../../../tests/golden/create-body.json");
const GOLDEN_FULL: &str = include_str!("../../../tests/golden/create-body-full.json");
const GOLDEN_GUARDED: &str = include_str!("../../../tests/golden/create-body-guarded.json");
const GOLDEN_FENCE: &str = include_str!("../../../tests/golden/create-body-fence.json");
const GOLDEN_BRIDGED: &str = include_str!("../../../tests/golden/create-body-bridged.json");
const PLAIN: &str = r#"image = "notes""#;
const GUARDED: &str = r#"
image = "notes"
egress = ["api.github.com:443"]
host_ports = [5432]
env = { HTTPS_PROXY = "http://proxy.example:1" }
"#;
const FULL: &str = r#"
image = "notes"
args = ["--root", "/notes"]
env = { TZ = "UTC" }
secrets = { API_KEY = "env:TOKEN" }
state = "/data"
cache = true
memory = "1g"
cpus = 0.25
pids = 64
user = 20001
"#;

fn body(server: &Server) -> Value {
    serde_json::to_value(planned(server).body(PROBE_VOLUME)).unwrap()
}

fn full() -> Server {
    let mounts = vec![bind("/srv/notes", "/notes", false), bind("/srv/out", "/out", true)];
    Server { mounts, ..server(FULL) }
}

#[track_caller]
fn assert_is(golden: &str, body: &Value) {
    let text = serde_json::to_string_pretty(body).unwrap();
    assert!(golden.trim_end() == text, "not as in the golden file:\n{text}");
}

/// The paths at which two bodies differ.
fn differences(one: &Value, other: &Value) -> Vec<String> {
    fn walk(at: String, one: &Value, other: &Value, found: &mut Vec<String>) {
        match (one, other) {
            (Value::Object(a), Value::Object(b)) => {
                let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for name in names {
                    let of = |members: &serde_json::Map<String, Value>| members.get(name).cloned().unwrap_or_default();
                    walk(format!("{at}/{name}"), &of(a), &of(b), found);
                }
            }
            _ if one == other => {}
            _ => found.push(at),
        }
    }
    let mut found = Vec::new();
    walk(String::new(), one, other, &mut found);
    found
}

/// Program and arguments behind the probe and its nonce.
fn command_of(server: &Server, image: &ImageFacts) -> Vec<String> {
    let body = Compartment::plan(server, image, &owner(), lease()).unwrap().body(PROBE_VOLUME);
    assert_eq!(body.cmd, Some(Vec::new()), "the engine must not add what the image has for arguments");
    let mut entrypoint = body.entrypoint.unwrap();
    let probe = entrypoint.remove(0);
    assert!(probe.starts_with("/.bulkhead-") && probe.ends_with("/probe") && probe.len() == 33, "{probe}");
    assert_eq!(entrypoint.remove(0).len(), NONCE.len());
    entrypoint
}

#[track_caller]
fn refusal(server: &Server, image: &ImageFacts) -> String {
    let fault = Compartment::plan(server, image, &owner(), lease()).expect_err("a refusal");
    assert_eq!(fault.class, Class::Isolation);
    fault.outward
}

#[test]
fn the_whole_request_is_the_golden_one() {
    assert_is(GOLDEN, &body(&server(PLAIN)));
}

#[test]
fn the_whole_request_of_a_server_that_keeps_and_sees_things_is_the_golden_one() {
    assert_is(GOLDEN_FULL, &body(&full()));
}

#[test]
fn each_key_changes_only_what_it_says() {
    let plain = body(&server(PLAIN));
    let changed = |more: &str| differences(&plain, &body(&server(&format!("{PLAIN}\n{more}"))));
    assert_eq!(changed("writable_root = true"), ["/HostConfig/ReadonlyRootfs"]);
    assert_eq!(changed("memory = \"1g\""), ["/HostConfig/Memory", "/HostConfig/MemorySwap"]);
    assert_eq!(changed("cpus = 0.5"), ["/HostConfig/NanoCpus"]);
    assert_eq!(changed("pids = 64"), ["/HostConfig/PidsLimit"]);
    assert_eq!(
        changed("user = 20001"),
        ["/HostConfig/Tmpfs//home/mcp", "/HostConfig/Tmpfs//run", "/HostConfig/Tmpfs//tmp", "/User"]
    );
    assert_eq!(changed("state = \"/data\""), ["/HostConfig/Mounts"]);
    assert_eq!(changed("cache = true"), ["/HostConfig/Mounts"]);
    assert_eq!(changed("env = { TZ = \"UTC\" }"), ["/Env"]);
    assert_eq!(changed("args = [\"-v\"]"), ["/Entrypoint"]);
    assert_eq!(changed("network = \"none\""), Vec::<String>::new());
}

#[test]
fn the_image_is_asked_for_by_its_identity_and_never_by_its_name() {
    let reference = Run::Image { reference: "notes:latest".into(), command: None, args: Vec::new() };
    let moved = Server { run: reference, ..server(PLAIN) };
    assert_eq!(body(&moved)["Image"], format!("sha256:{}", "ab".repeat(32)));
}

#[test]
fn a_command_replaces_the_images_own_and_arguments_replace_its_arguments() {
    let of = |entry: &str| command_of(&server(&format!("{PLAIN}\n{entry}")), &image());
    assert_eq!(of(""), ["node", "server.js", "--stdio"]);
    assert_eq!(of(r#"args = ["-v"]"#), ["node", "server.js", "-v"]);
    assert_eq!(of(r#"command = ["sh", "-c", "x"]"#), ["sh", "-c", "x"]);
    assert_eq!(of("command = [\"sh\"]\nargs = [\"-c\", \"x y\"]"), ["sh", "-c", "x y"]);
    // As with the engine's own command line: where an image has no program of its own, its arguments are the command.
    let bare = ImageFacts { entrypoint: Vec::new(), ..image() };
    assert_eq!(command_of(&server(PLAIN), &bare), ["--stdio"]);
    assert_eq!(command_of(&server(&format!("{PLAIN}\nargs = [\"python\", \"x.py\"]")), &bare), ["python", "x.py"]);
}

#[test]
fn a_package_runs_what_was_baked_for_it_with_its_arguments_behind() {
    let package = server("package = \"uvx:mcp-server-time@2026.8.31\"\nargs = [\"--local-timezone\", \"UTC\"]");
    let baked = ImageFacts { entrypoint: vec!["/opt/server".into()], command: Vec::new(), ..image() };
    assert_eq!(command_of(&package, &baked), ["/opt/server", "--local-timezone", "UTC"]);
}

#[test]
fn without_a_command_nothing_is_planned() {
    let nothing = ImageFacts { entrypoint: Vec::new(), command: Vec::new(), ..image() };
    assert!(refusal(&server(PLAIN), &nothing).ends_with("neither its configuration nor its image names a command"));
    for (run, kind) in [(r#"unisolated = "why""#, "host"), ("url = \"https://x.example/mcp\"", "remote")] {
        let entry = if kind == "host" { format!("{run}\ncommand = [\"x\"]") } else { run.to_owned() };
        assert!(refusal(&server(&entry), &image()).contains("names a command"), "{kind}");
    }
}

#[test]
fn the_request_of_a_server_behind_its_guard_is_the_golden_one() {
    let guarded = body(&server(GUARDED));
    assert_is(GOLDEN_GUARDED, &guarded);
    // Beside the network, the name that goes with it, and the variables that lead to the proxy nothing is different.
    let alone = body(&Server { network: Network::None, ..server(GUARDED) });
    assert_eq!(differences(&alone, &guarded), ["/Env", "/HostConfig/NetworkMode", "/Hostname"]);
    assert_eq!(guarded["HostConfig"]["NetworkMode"], format!("container:{GUARD}"));
}

#[test]
fn the_proxys_variables_are_there_where_there_is_a_proxy_and_never_over_the_operators() {
    let env = |entry: &str| {
        let planned = planned(&server(entry));
        let value = |name: &str| planned.env.get(name).map(|value| value.reveal().to_owned());
        [value("HTTPS_PROXY"), value("http_proxy"), value("NODE_USE_ENV_PROXY"), value("https_proxy")]
    };
    let proxy = || Some("http://127.0.0.1:3128".to_owned());
    assert_eq!(env(GUARDED), [Some("http://proxy.example:1".to_owned()), proxy(), Some("1".to_owned()), None]);
    assert_eq!(env(&format!("{PLAIN}\nhost_ports = [5432]")), [None, None, None, None]);
    let beside = env(&format!("{PLAIN}\negress = [\"a.org:1\"]\nhost_ports = [3128]"));
    assert_eq!(beside[1], Some("http://127.0.0.1:3129".to_owned()));
}

#[test]
fn what_may_reach_something_has_no_compartment_without_its_own_guard() {
    let guarded = server(GUARDED);
    assert!(refusal(&guarded, &image()).contains("there is no guard or fence to see to that"));
    let behind = |guard: &Guard| Compartment::behind(&guarded, &image(), &owner(), lease(), guard);
    let other = Server { digest: "other".into(), ..guarded.clone() };
    for wrong in [
        Guard::of(&other, &owner(), GUARD),
        Guard::of(&guarded, &Owner { principal: "bob".into(), ..owner() }, GUARD),
        Guard::of(&guarded, &Owner { gateway: "g2".into(), ..owner() }, GUARD),
    ] {
        assert_eq!(behind(&wrong).expect_err("a refusal").class, Class::Isolation);
    }
    assert!(behind(&Guard::of(&guarded, &owner(), GUARD)).is_ok());
}

#[test]
fn a_guard_is_as_confined_as_any_server_and_says_whose_it_is() {
    let (guarded, own) = (server(GUARDED), server(PLAIN));
    let mut guard = Compartment::guarding(&guarded.name, &own, &image(), &owner(), lease()).unwrap();
    guard.nonce = NONCE.to_owned();
    assert_eq!(guard.name(), "bulkhead-guard-My-Notes-00112233");
    let guard = serde_json::to_value(guard.body(PROBE_VOLUME)).unwrap();
    // Which processors it has is decided when it is started.
    assert_eq!(differences(&body(&own), &guard), ["/HostConfig/CpusetCpus", "/Labels/org.bulkhead.role"]);
    assert_eq!(guard["Labels"]["org.bulkhead.server"], "My Notes");
    assert_eq!(guard["HostConfig"]["NetworkMode"], "none");
}

const BRIDGED: &str = "image = \"notes\"\nnetwork = \"bridge\"";

/// The request of a fence.
fn fence() -> Value {
    let (fenced, own) = (server(BRIDGED), server(PLAIN));
    let bounds = Arc::new(Bounds::example());
    let mut fence = Compartment::fencing(&fenced.name, &own, &image(), &owner(), lease(), &bounds).unwrap();
    fence.nonce = NONCE.to_owned();
    fence.seat = planned(&own).seat;
    assert_eq!(fence.name(), "bulkhead-fence-My-Notes-00112233");
    serde_json::to_value(fence.body(PROBE_VOLUME)).unwrap()
}

#[test]
fn the_request_of_a_fence_is_the_golden_one() {
    let fence = fence();
    assert_is(GOLDEN_FENCE, &fence);
    // What it begins with beside any server's compartment.
    let more = ["CapAdd", "Dns", "DnsSearch", "Init", "NetworkMode"].map(|name| format!("/HostConfig/{name}"));
    let all = [&["/Entrypoint".to_owned()], &more[..], &["/Labels/org.bulkhead.role".into(), "/User".into()]].concat();
    assert_eq!(differences(&body(&server(PLAIN)), &fence), all);
}

#[test]
fn the_request_of_a_server_within_its_fence_is_the_golden_one() {
    let within = body(&server(BRIDGED));
    assert_is(GOLDEN_BRIDGED, &within);
    assert_eq!(differences(&body(&server(PLAIN)), &within), ["/Entrypoint", "/HostConfig/NetworkMode", "/Hostname"]);
    let fenced = server(BRIDGED);
    assert!(refusal(&fenced, &image()).contains("no guard or fence to see to that"));
    let other = Fence::of(&Server { digest: "other".into(), ..fenced.clone() }, &owner(), GUARD);
    let bob = Fence::of(&fenced, &Owner { principal: "bob".into(), ..owner() }, GUARD);
    let own = Fence::of(&fenced, &owner(), GUARD);
    let within = |server: &Server, fence: &Fence| Compartment::within(server, &image(), &owner(), lease(), fence);
    assert!(within(&fenced, &other).is_err() && within(&fenced, &bob).is_err() && within(&fenced, &own).is_ok());
    assert!(within(&Server { network: Network::None, ..fenced.clone() }, &own).is_err(), "it asks for no network");
    assert!(Compartment::behind(&fenced, &image(), &owner(), lease(), &Guard::of(&fenced, &owner(), GUARD)).is_err());
}

#[test]
fn nothing_runs_as_root() {
    assert!(refusal(&Server { uid: 0, ..server(PLAIN) }, &image()).ends_with("it must not run as root"));
}

#[test]
fn a_volume_that_an_image_wants_has_a_place_or_the_image_does_not_run() {
    let wants = |path: &str| ImageFacts { volumes: vec![path.to_owned()], ..image() };
    let text = refusal(&server(PLAIN), &wants("/data"));
    assert!(text.contains("its image wants a volume at \"/data\""), "{text}");
    let kept = server(&format!("{PLAIN}\nstate = \"/data\""));
    assert!(Compartment::plan(&kept, &wants("/data"), &owner(), lease()).is_ok());
    assert!(Compartment::plan(&kept, &wants("/data/"), &owner(), lease()).is_ok());
    assert!(Compartment::plan(&kept, &wants("/data/sub"), &owner(), lease()).is_err());
    assert!(Compartment::plan(&server(PLAIN), &wants("/tmp"), &owner(), lease()).is_ok());
    let mounted = Server { mounts: vec![bind("/srv/notes", "/notes", false)], ..server(PLAIN) };
    assert!(Compartment::plan(&mounted, &wants("/notes"), &owner(), lease()).is_ok());
}

#[test]
fn what_is_kept_or_seen_at_a_place_is_not_covered_by_memory() {
    let kept = server(&format!("{PLAIN}\nstate = \"/home/mcp\""));
    let mounted = Server { mounts: vec![bind("/srv/home", "/home/mcp", true)], ..server(PLAIN) };
    for server in [kept, mounted] {
        let host = &body(&server)["HostConfig"];
        assert_eq!(host["Tmpfs"]["/home/mcp"], Value::Null);
        assert!(host["Tmpfs"]["/tmp"].is_string());
        assert!(host["Mounts"].as_array().unwrap().iter().any(|m| m["Target"] == "/home/mcp"));
    }
}

#[test]
fn the_environment_is_what_is_declared_and_everything_else_is_taken_away() {
    let env = body(&full())["Env"].clone();
    let declared = ["API_KEY=s3cr3t", "HOME=/home/mcp", "LANG=C.UTF-8", "PATH=/app/bin:/usr/bin", "TZ=UTC"];
    // The image's variable, and the one that the engine sets, go by their bare names.
    let all: Vec<&str> = declared.into_iter().chain(["NODE_VERSION", "HOSTNAME"]).collect();
    assert_eq!(env, json!(all));
    let own = body(&server(&format!("{PLAIN}\nenv = {{ NODE_VERSION = \"1\", HOSTNAME = \"h\" }}")))["Env"].clone();
    let all = ["HOME=/home/mcp", "HOSTNAME=h", "LANG=C.UTF-8", "NODE_VERSION=1", "PATH=/app/bin:/usr/bin"];
    assert_eq!(own, json!(all));
    let bare = ImageFacts { env: Default::default(), ..image() };
    let body = Compartment::plan(&server(PLAIN), &bare, &owner(), lease()).unwrap().body(PROBE_VOLUME);
    assert!(body.env.unwrap().contains(&format!("PATH={DEFAULT_PATH}")));
}

#[test]
fn volumes_belong_to_one_server_and_one_principal() {
    let of = |principal: &str| {
        let owner = Owner { principal: principal.into(), ..owner() };
        let planned = Compartment::plan(&full(), &image(), &owner, lease()).unwrap();
        planned.volumes.into_iter().map(|v| (v.name, v.at)).collect::<Vec<_>>()
    };
    let (alice, bob) = (of("alice"), of("bob"));
    assert_eq!(alice[0].1, "/data");
    assert_eq!(alice[1].1, "/home/mcp/.cache");
    assert!(alice.iter().zip(&bob).all(|(a, b)| a.0 != b.0 && a.1 == b.1), "{alice:?} {bob:?}");
    assert_eq!(alice, of("alice"));
    let legal = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    assert!(alice.iter().all(|(name, _)| legal(name) && name.contains("my-notes")), "{alice:?}");
}

#[test]
fn no_two_starts_share_a_nonce_or_a_name() {
    let plan = || Compartment::plan(&server(PLAIN), &image(), &owner(), lease()).unwrap();
    let (one, other) = (plan(), plan());
    assert_ne!(one.nonce, other.nonce);
    assert_ne!(one.name(), other.name());
    assert_eq!(planned(&server(PLAIN)).name(), "bulkhead-My-Notes-00112233");
}

#[test]
fn nothing_secret_is_shown() {
    let entry = format!("{FULL}\n").replace("\"--root\", \"/notes\"", "\"--key\", \"hunter2\"");
    let shown = format!("{:?}", planned(&server(&entry)));
    assert!(!shown.contains("s3cr3t") && !shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("API_KEY"), "{shown}");
}
