//! Each control taken away alone, from the very request that a compartment makes: then an attempt on that control succeeds,
//! and with the control none does. So each control does something here, and the canary would see it go.

use std::path::Path;

use bulkhead::compartment::canary::{self, Attempt};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::escape::{IMAGE, run, shown};
use super::support::{Gateway, server, socket};

/// Started at the same time: more would only wait for each other.
const AT_ONCE: usize = 4;

/// Who runs the canary: as a server's user much is shut by the owners of files alone, so what only root would be let
/// through is tried as root, with all other controls as they are.
#[derive(Clone, Copy, PartialEq, Debug)]
enum As {
    User,
    Root,
}

use As::{Root, User};

type Opening = (&'static str, As, fn(&mut Value));

/// Every control that an attempt can go over, and how it is taken away. Not here: *swap* and *cpu*, of which one can try
/// to lift the limit, as is done, but to go over them takes time and a measure.
const OPENINGS: [Opening; 16] = [
    ("capabilities", User, |b| b["HostConfig"]["CapDrop"] = json!([])),
    ("privilege escalation", User, |b| b["HostConfig"]["SecurityOpt"] = json!([])),
    ("seccomp", User, |b| b["HostConfig"]["SecurityOpt"] = json!(["no-new-privileges", "seccomp=unconfined"])),
    ("user", User, |b| b["User"] = json!("0:0")),
    ("root file system", Root, |b| b["HostConfig"]["ReadonlyRootfs"] = json!(false)),
    ("tmpfs", User, |b| b["HostConfig"]["Tmpfs"]["/tmp"] = json!("rw,exec,size=256m,mode=1777")),
    ("mounts", Root, |b| {
        let socket = json!({ "Type": "bind", "Source": socket(), "Target": "/var/run/docker.sock" });
        b["HostConfig"]["Mounts"].as_array_mut().unwrap().push(socket);
    }),
    ("kernel files", Root, |b| b["HostConfig"]["ReadonlyPaths"] = json!([])),
    ("memory", User, |b| {
        b["HostConfig"]["Memory"] = json!(1u64 << 30);
        b["HostConfig"]["MemorySwap"] = json!(1u64 << 30);
    }),
    ("pids", User, |b| b["HostConfig"]["PidsLimit"] = json!(1000)),
    ("processors", User, |b| b["HostConfig"]["CpusetCpus"] = json!("0-1")),
    ("open files", User, |b| b["HostConfig"]["Ulimits"] = json!([{ "Name": "core", "Soft": 0, "Hard": 0 }])),
    ("core dumps", User, |b| b["HostConfig"]["Ulimits"][1] = json!({ "Name": "core", "Soft": -1, "Hard": -1 })),
    ("network", User, |b| b["HostConfig"]["NetworkMode"] = json!("bridge")),
    ("environment", User, |b| b["Env"].as_array_mut().unwrap().push(json!("TOKEN=x"))),
    ("namespaces", User, |b| b["HostConfig"]["PidMode"] = json!("host")),
];

/// And the one for which there must be something to give.
fn devices(body: &mut Value) {
    let all = ["/dev/fuse", "/dev/net/tun", "/dev/loop-control"];
    let device = all.into_iter().find(|path| Path::new(path).exists()).expect("a device that every host has");
    body["HostConfig"]["Devices"] =
        json!([{ "PathOnHost": device, "PathInContainer": device, "CgroupPermissions": "rwm" }]);
}

/// What the canary says in a default compartment that was changed.
async fn with(who: As, change: impl Fn(&mut Value)) -> Vec<Attempt> {
    let gateway = Gateway::new();
    let targets = ["/canary", "tmp=67108864", "memory=134217728", "files=1024", "pids=64", "cpus=1"];
    let entry = format!("image = {IMAGE:?}\ncommand = {}\nmemory = \"128m\"\npids = 64", json!(targets));
    let image = gateway.engine.image(IMAGE).await.unwrap().id;
    let probe = format!("bulkhead-probe-{:.12}", image.trim_start_matches("sha256:"));
    let body = gateway.plan(&server(&entry)).await.unwrap().body(&probe);
    let mut body = serde_json::to_value(body).unwrap();
    // Which it is is decided when a server is started.
    body["HostConfig"]["CpusetCpus"] = json!("0");
    if who == Root {
        body["User"] = json!("0:0");
    }
    change(&mut body);
    let said = run(serde_json::from_value(body).unwrap()).await;
    let said = String::from_utf8(said).unwrap();
    // The first line is the probe's.
    let (probe, report) = said.split_once('\n').unwrap();
    assert!(probe.starts_with(r#"{"bulkhead_probe":"#), "{said}");
    canary::read(report.as_bytes()).unwrap_or_else(|why| panic!("it {why}: {said}"))
}

fn broken(attempts: &[Attempt], control: &str) -> Vec<Attempt> {
    attempts.iter().filter(|attempt| attempt.broke && attempt.rule == control).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_that_is_taken_away_lets_an_attempt_through() {
    // The probe's volume is filled by whoever needs it first.
    canary::try_out(&Gateway::new().engine, &Gateway::new().owner, &[], &[]).await.unwrap();
    let (user, root) = tokio::join!(with(User, |_| {}), with(Root, |_| {}));
    let all = user.iter().filter(|attempt| attempt.broke).cloned().collect::<Vec<_>>();
    assert!(all.is_empty(), "with every control none succeeds:\n{}", shown(&all));
    let openings = OPENINGS.into_iter().chain([("devices", Root, devices as fn(&mut Value))]);
    let unseen = stream::iter(openings.map(|(control, who, change)| {
        let closed = if who == Root { &root } else { &user };
        async move {
            let before = broken(closed, control);
            if !before.is_empty() {
                return Some(format!("{control} is broken already:\n{}", shown(&before)));
            }
            let opened = with(who, change).await;
            broken(&opened, control).is_empty().then(|| format!("{control} was taken away, and nothing got through"))
        }
    }));
    let unseen: Vec<String> = unseen.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    assert!(unseen.is_empty(), "\n{}", unseen.join("\n"));
}
