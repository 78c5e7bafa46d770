//! For each control: an engine that drops or changes that one thing makes the server unroutable, names the control, and
//! leaves no container. Where it lies about it as well, what is seen from inside gives it away.

use std::time::Duration;

use bulkhead::error::Class;
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::{Value, json};

use super::proxy::Proxy;
use super::support::{FIXTURE, Gateway, server};

/// Started at the same time: more would only wait for each other.
const AT_ONCE: usize = 4;

/// How a change of one thing comes to light.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Seen {
    /// The engine reports it, and it is seen from inside.
    Inside,
    /// The same, but what is seen is another control that does not hold either.
    InsideAs(&'static str),
    /// Only the engine can tell.
    Reported,
    /// The engine itself refuses what the request has become.
    Refused,
}

use Seen::{Inside, InsideAs, Refused, Reported};

struct Mutation {
    what: &'static str,
    control: &'static str,
    seen: Seen,
    change: fn(&mut Value),
}

macro_rules! mutations {
    ($($what:literal => $control:literal, $seen:expr, |$body:ident, $host:ident| $change:expr;)*) => {
        vec![$(Mutation { what: $what, control: $control, seen: $seen, change: |$body: &mut Value| {
            #[allow(unused_variables)]
            let $host = "HostConfig";
            $change
        } }),*]
    };
}

fn drop_field(body: &mut Value, name: &str) {
    let gone = body["HostConfig"].as_object_mut().unwrap().remove(name);
    assert!(gone.is_some(), "{name} was not asked for");
}

fn set(body: &mut Value, name: &str, value: Value) {
    body["HostConfig"][name] = value;
}

fn push(list: &mut Value, value: Value) {
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut().unwrap().push(value);
}

fn mutations() -> Vec<Mutation> {
    mutations! {
        "no capability dropped" => "capabilities", Inside, |b, h| drop_field(b, "CapDrop");
        "one capability added" => "capabilities", Inside, |b, h| set(b, "CapAdd", json!(["NET_RAW"]));
        "new privileges" => "privilege escalation", Inside, |b, h| drop_field(b, "SecurityOpt");
        "no filter" => "seccomp", Inside, |b, h| push(&mut b[h]["SecurityOpt"], json!("seccomp=unconfined"));
        "a filter that lets all through" => "seccomp", Reported, |b, h| {
            push(&mut b[h]["SecurityOpt"], json!(r#"seccomp={"defaultAction":"SCMP_ACT_ALLOW"}"#))
        };
        "AppArmor off" => "apparmor", Reported, |b, h| push(&mut b[h]["SecurityOpt"], json!("apparmor=unconfined"));
        "labels off" => "other settings", Reported, |b, h| push(&mut b[h]["SecurityOpt"], json!("label=disable"));
        "privileged" => "privileged", InsideAs("capabilities"), |b, h| set(b, "Privileged", json!(true));
        "host users" => "privileged", Reported, |b, h| set(b, "UsernsMode", json!("host"));
        "root" => "user", Inside, |b, h| b["User"] = json!("0:0");
        "the image's user" => "user", Reported, |b, h| { b.as_object_mut().unwrap().remove("User"); };
        "a group more" => "user", Inside, |b, h| set(b, "GroupAdd", json!(["999"]));
        "a writable root" => "root file system", Inside, |b, h| drop_field(b, "ReadonlyRootfs");
        "no memory file systems" => "tmpfs", Inside, |b, h| drop_field(b, "Tmpfs");
        "programs in /tmp" => "tmpfs", Inside, |b, h| b[h]["Tmpfs"]["/tmp"] = json!("rw,exec,size=65536k");
        "a large /tmp" => "tmpfs", Inside, |b, h| b[h]["Tmpfs"]["/tmp"] = json!("rw,nosuid,nodev,noexec,size=8g");
        "one more in memory" => "tmpfs", InsideAs("mounts"), |b, h| b[h]["Tmpfs"]["/var/lib"] = json!("rw,size=1m");
        "much shared memory" => "tmpfs", Inside, |b, h| set(b, "ShmSize", json!(1u64 << 33));
        "/etc of the host" => "mounts", Inside, |b, h| {
            push(&mut b[h]["Mounts"], json!({ "Type": "bind", "Source": "/etc", "Target": "/host", "ReadOnly": true }))
        };
        "a raw bind" => "mounts", Inside, |b, h| set(b, "Binds", json!(["/etc:/host:ro"]));
        "a bind over a device" => "mounts", Inside, |b, h| set(b, "Binds", json!(["/etc/passwd:/dev/sda:ro"]));
        "a bind over the hosts" => "mounts", Inside, |b, h| set(b, "Binds", json!(["/etc/passwd:/etc/hosts:ro"]));
        "a bind below /tmp" => "mounts", Inside, |b, h| set(b, "Binds", json!(["/etc:/tmp/etc:ro"]));
        "a bind below the control groups" => "mounts", Inside, |b, h| {
            set(b, "Binds", json!(["/sys/fs/cgroup:/sys/fs/cgroup:rw"]))
        };
        "the host's processes as files" => "mounts", Inside, |b, h| set(b, "Binds", json!(["/proc:/host/proc"]));
        "a writable probe" => "mounts", Inside, |b, h| b[h]["Mounts"][0]["ReadOnly"] = json!(false);
        "an anonymous volume" => "mounts", Inside, |b, h| b["Volumes"] = json!({ "/x": {} });
        "kernel files in the open" => "kernel files", Inside, |b, h| set(b, "MaskedPaths", json!([]));
        "kernel files writable" => "kernel files", Inside, |b, h| set(b, "ReadonlyPaths", json!([]));
        "no limit of memory" => "memory", Inside, |b, h| { drop_field(b, "Memory"); drop_field(b, "MemorySwap"); };
        "no limit of memory, but one of swap" => "Memory limit", Refused, |b, h| drop_field(b, "Memory");
        "more memory" => "memory", Inside, |b, h| {
            set(b, "Memory", json!(1u64 << 30));
            set(b, "MemorySwap", json!(1u64 << 30));
        };
        "the engine's share of swap" => "swap", Inside, |b, h| drop_field(b, "MemorySwap");
        "all swap" => "swap", Inside, |b, h| set(b, "MemorySwap", json!(-1));
        "no limit of processors" => "cpu", Inside, |b, h| drop_field(b, "NanoCpus");
        "twice the processors" => "cpu", Inside, |b, h| set(b, "NanoCpus", json!(2_000_000_000u64));
        "any processor" => "processors", Inside, |b, h| drop_field(b, "CpusetCpus");
        "every processor" => "processors", Inside, |b, h| set(b, "CpusetCpus", json!("0-1"));
        "no limit of processes" => "pids", Inside, |b, h| drop_field(b, "PidsLimit");
        "no limits of files and dumps" => "open files", Inside, |b, h| drop_field(b, "Ulimits");
        "more open files" => "open files", Inside, |b, h| b[h]["Ulimits"][0]["Hard"] = json!(2048);
        "core dumps" => "core dumps", Inside, |b, h| { b[h]["Ulimits"].as_array_mut().unwrap().remove(1); };
        "one limit more" => "other settings", Reported, |b, h| {
            push(&mut b[h]["Ulimits"], json!({ "Name": "nproc", "Soft": 1000, "Hard": 1000 }))
        };
        "the engine's network" => "network", Inside, |b, h| drop_field(b, "NetworkMode");
        "a bridge" => "network", Inside, |b, h| set(b, "NetworkMode", json!("bridge"));
        "the host's network" => "network", Inside, |b, h| {
            set(b, "NetworkMode", json!("host"));
            b.as_object_mut().unwrap().remove("Hostname");
        };
        "a port" => "network", Reported, |b, h| set(b, "PortBindings", json!({ "80/tcp": [{ "HostPort": "0" }] }));
        "the engine's shared memory" => "namespaces", Reported, |b, h| set(b, "IpcMode", json!("shareable"));
        "the host's shared memory" => "namespaces", Inside, |b, h| set(b, "IpcMode", json!("host"));
        "the host's processes" => "namespaces", Inside, |b, h| set(b, "PidMode", json!("host"));
        "the host's control groups" => "namespaces", Inside, |b, h| set(b, "CgroupnsMode", json!("host"));
        "the engine's choice of control groups" => "namespaces", Inside, |b, h| drop_field(b, "CgroupnsMode");
        "the host's name space" => "namespaces", Inside, |b, h| {
            set(b, "UTSMode", json!("host"));
            b.as_object_mut().unwrap().remove("Hostname");
        };
        "the host's log as a device" => "devices", Inside, |b, h| {
            set(b, "Devices", json!([{ "PathOnHost": "/dev/kmsg", "PathInContainer": "/dev/kmsg", "CgroupPermissions": "r" }]))
        };
        "a device elsewhere" => "devices", Inside, |b, h| {
            set(b, "Devices", json!([{ "PathOnHost": "/dev/kmsg", "PathInContainer": "/srv/x", "CgroupPermissions": "r" }]))
        };
        "every device allowed" => "devices", Inside, |b, h| set(b, "DeviceCgroupRules", json!(["b *:* rwm"]));
        "no host name" => "hostname", Inside, |b, h| { b.as_object_mut().unwrap().remove("Hostname"); };
        "another host name" => "hostname", Inside, |b, h| b["Hostname"] = json!("other");
        "a domain" => "hostname", Reported, |b, h| b["Domainname"] = json!("example.org");
        "no init" => "init", Inside, |b, h| drop_field(b, "Init");
        "a variable more" => "environment", Inside, |b, h| push(&mut b["Env"], json!("AWS_SECRET_ACCESS_KEY=x"));
        "another value" => "environment", Reported, |b, h| push(&mut b["Env"], json!("PATH=/evil:/usr/bin:/bin"));
        "the image's variables" => "environment", Inside, |b, h| {
            b["Env"].as_array_mut().unwrap().retain(|e| e.as_str().unwrap().contains('='))
        };
        "a health check" => "program", Reported, |b, h| b["Healthcheck"] = json!({ "Test": ["CMD", "true"] });
        "the image's health check" => "program", Reported, |b, h| { b.as_object_mut().unwrap().remove("Healthcheck"); };
        "arguments more" => "program", Reported, |b, h| b["Cmd"] = json!(["--insecure"]);
        "a log on disk" => "log driver", Reported, |b, h| set(b, "LogConfig", json!({ "Type": "json-file" }));
        "the engine's log" => "log driver", Reported, |b, h| drop_field(b, "LogConfig");
        "input that stays open" => "life", Reported, |b, h| b["StdinOnce"] = json!(false);
        "started again" => "restart policy", Refused, |b, h| set(b, "RestartPolicy", json!({ "Name": "always" }));
        "left behind" => "life", Reported, |b, h| set(b, "AutoRemove", json!(false));
        "no label of its owner" => "labels", Reported, |b, h| {
            b["Labels"].as_object_mut().unwrap().remove("org.bulkhead.owner.pid");
        };
        "another server's label" => "labels", Reported, |b, h| b["Labels"]["org.bulkhead.server"] = json!("other");
        "settings of the kernel" => "other settings", Reported, |b, h| {
            set(b, "Sysctls", json!({ "kernel.msgmax": "65536" }))
        };
        "killed first" => "other settings", Reported, |b, h| set(b, "OomScoreAdj", json!(500));
        "never killed" => "other settings", Reported, |b, h| set(b, "OomKillDisable", json!(true));
        "a name for somebody's address" => "other settings", Reported, |b, h| set(b, "ExtraHosts", json!(["db:10.0.0.1"]));
        "another control group" => "other settings", Reported, |b, h| set(b, "CgroupParent", json!("/elsewhere"));
        "a memory bank of its own" => "other settings", Reported, |b, h| set(b, "CpusetMems", json!("0"));
        "no such runtime" => "untime", Refused, |b, h| set(b, "Runtime", json!("none-such"));
        "another image" => "program", Reported, |b, h| b["Image"] = json!("bulkhead/runtime");
    }
}

/// One entry that has something of everything that can be dropped.
pub fn entry() -> bulkhead::config::Server {
    server(&format!("image = {FIXTURE:?}\nenv = {{ TZ = \"UTC\" }}\nmemory = \"256m\"\nuser = 20001"))
}

/// What is wrong with how a mutation was met.
async fn unmet(proxy: Proxy, what: &str, control: &str, refused: bool) -> Option<String> {
    let gateway = Gateway::at(proxy.addresses());
    let fault = match gateway.start(&entry()).await {
        Err(fault) => fault,
        Ok(proven) => {
            proven.link.process.end(Duration::ZERO).await;
            let control = proven.evidence.controls.iter().find(|c| c.control == control);
            return Some(format!("{what}: PROVEN: {control:?}"));
        }
    };
    gateway.is_clean().await;
    let named = if refused { &fault.inward } else { &fault.outward };
    let met = fault.class == Class::Isolation && named.contains(control);
    (!met).then(|| format!("{what} is not told as {control:?}: {:?}: {}", fault.class, fault.inward))
}

async fn none_is_unmet(met: impl Stream<Item = impl Future<Output = Option<String>>>) {
    let unmet: Vec<String> = met.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    assert!(unmet.is_empty(), "\n{}", unmet.join("\n"));
}

/// The engine's report of a container that is as it was asked for.
pub async fn truth() -> Value {
    let proxy = Proxy::new();
    let gateway = Gateway::at(proxy.addresses());
    let confined = gateway.start(&entry()).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
    let truth = proxy.reported();
    confined.link.process.end(Duration::ZERO).await;
    truth
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_changes_one_thing_is_found_out() {
    let met = mutations().into_iter().map(|m| unmet(Proxy::changing(m.change), m.what, m.control, m.seen == Refused));
    none_is_unmet(stream::iter(met)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_lies_about_it_is_found_out_from_inside() {
    let truth = truth().await;
    let met = mutations().into_iter().filter_map(|m| {
        let control = match m.seen {
            Inside => m.control,
            InsideAs(control) => control,
            Reported | Refused => return None,
        };
        Some(unmet(Proxy::lying(truth.clone(), m.change), m.what, control, false))
    });
    none_is_unmet(stream::iter(met)).await;
}

#[tokio::test]
async fn an_engine_that_changes_nothing_passes() {
    let truth = truth().await;
    for proxy in [Proxy::new(), Proxy::lying(truth.clone(), |_| {})] {
        let gateway = Gateway::at(proxy.addresses());
        let confined = gateway.start(&entry()).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
        confined.link.process.end(Duration::ZERO).await;
        gateway.is_clean().await;
    }
}

#[tokio::test]
async fn every_control_has_a_mutation() {
    let gateway = Gateway::new();
    let confined = gateway.start(&entry()).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
    let mutations = mutations();
    for control in &confined.evidence.controls {
        assert!(mutations.iter().any(|m| m.control == control.control), "{}", control.control);
        let seen = mutations.iter().any(|m| m.control == control.control && m.seen == Inside);
        // What is seen from inside is given away from inside: except a profile that this engine does not have.
        assert!(seen || control.inside == "-" || control.control == "apparmor", "{control:?}");
    }
    confined.link.process.end(Duration::ZERO).await;
}

/// Fields whose absence says the same as their value, since the engine, or the fixture's image, has that by itself.
pub const SAME: [&str; 15] = [
    "/AttachStderr",
    "/AttachStdin",
    "/AttachStdout",
    "/Cmd",
    "/Env/0",
    "/Env/1",
    "/Env/2",
    "/HostConfig/IpcMode",
    "/HostConfig/Privileged",
    "/HostConfig/RestartPolicy",
    "/HostConfig/RestartPolicy/Name",
    "/HostConfig/ShmSize",
    "/HostConfig/Ulimits/1/Hard",
    "/HostConfig/Ulimits/1/Soft",
    "/Tty",
];

/// Every place in a request, elements of lists included.
pub fn places(at: &str, value: &Value, found: &mut Vec<String>) {
    let members: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.replace('/', "~1"), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, value)| (n.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in members {
        let place = format!("{at}/{name}");
        places(&place, value, found);
        found.push(place);
    }
}

pub fn without(body: &mut Value, place: &str) {
    let (parent, name) = place.rsplit_once('/').unwrap();
    let gone = match body.pointer_mut(parent).unwrap() {
        Value::Object(members) => members.remove(&name.replace("~1", "/")),
        Value::Array(items) => Some(items.remove(name.parse().unwrap())),
        _ => None,
    };
    gone.unwrap_or_else(|| panic!("no {place}"));
}

/// A request that leaves anything out at all is found out, whatever it is: also a field that is new in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_left_out_of_a_request_is_found_out() {
    let mut body = serde_json::to_value(Gateway::new().plan(&entry()).await.unwrap().body("probe")).unwrap();
    // Decided when it is started.
    body["HostConfig"]["CpusetCpus"] = json!("0");
    let mut all = Vec::new();
    places("", &body, &mut all);
    let met = all.into_iter().map(|place| async move {
        let dropped = place.clone();
        let proxy = Proxy::changing(move |body| without(body, &dropped));
        let gateway = Gateway::at(proxy.addresses());
        let proven = gateway.start(&entry()).await;
        let same = SAME.contains(&place.as_str());
        let unmet = match &proven {
            Ok(_) if !same => Some("proven".to_owned()),
            Err(fault) if same => Some(format!("refused: {}", fault.inward)),
            Err(fault) if !matches!(fault.class, Class::Isolation | Class::Crashed) => Some(fault.inward.clone()),
            _ => None,
        };
        if let Ok(proven) = proven {
            proven.link.process.end(Duration::ZERO).await;
        }
        gateway.is_clean().await;
        unmet.map(|unmet| format!("{place}: {unmet}"))
    });
    none_is_unmet(stream::iter(met)).await;
}
