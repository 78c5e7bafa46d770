//! The controls on what is around a server: its environment, its life; and that nothing else was set. Pure.

use std::collections::HashMap;

use serde_json::Value;

use super::super::spec::HOSTNAME;
use super::Control;
use super::view::{UNSEEN, View, as_asked, control, or_unread, shown};

/// Settings that have a control of their own; every other one is to be as an engine leaves it.
const PROVEN: [&str; 34] = [
    "AutoRemove",
    "Binds",
    "CapAdd",
    "CapDrop",
    "CgroupnsMode",
    "CpusetCpus",
    "DeviceCgroupRules",
    "DeviceRequests",
    "Devices",
    "GroupAdd",
    "Init",
    "IpcMode",
    "LogConfig",
    "MaskedPaths",
    "Memory",
    "MemorySwap",
    "Mounts",
    "NanoCpus",
    "NetworkMode",
    "PidMode",
    "PidsLimit",
    "PortBindings",
    "Privileged",
    "PublishAllPorts",
    "ReadonlyPaths",
    "ReadonlyRootfs",
    "RestartPolicy",
    "SecurityOpt",
    "ShmSize",
    "Tmpfs",
    "Ulimits",
    "UTSMode",
    "UsernsMode",
    "VolumesFrom",
];

/// Names only: values are compared where the engine tells them, and shown nowhere.
pub(super) fn environment(v: &View<'_>) -> Control {
    let asked: Vec<&str> = v.asked.env.keys().map(String::as_str).collect();
    let mut inside: Vec<&str> = v.inside.env.iter().map(String::as_str).collect();
    inside.sort_unstable();
    let mut set: Vec<&str> = v.config.env.iter().flatten().map(String::as_str).filter(|e| e.contains('=')).collect();
    set.sort_unstable();
    let mut declared: Vec<String> = v.asked.declared().collect();
    declared.sort_unstable();
    let mut engine: Vec<&str> = set.iter().filter_map(|e| e.split_once('=').map(|(name, _)| name)).collect();
    engine.sort_unstable();
    let same = set == declared;
    let told = if !same && engine == asked { "other values".to_owned() } else { engine.join(" ") };
    control("environment", &asked.join(" "), told, inside.join(" "), same && inside == asked)
}

pub(super) fn hostname(v: &View<'_>) -> Control {
    let name = v.config.hostname.clone().unwrap_or_default();
    let domain = v.config.domainname.clone().unwrap_or_default();
    let inside = v.inside.hostname.as_deref().map(str::trim);
    let holds = name == HOSTNAME && domain.is_empty() && inside == Some(HOSTNAME);
    let engine = if domain.is_empty() { name } else { format!("{name}.{domain}") };
    control("hostname", HOSTNAME, engine, or_unread(inside), holds)
}

/// The first process is the engine's init, and the server its child. A fence is the first process itself.
pub(super) fn init(v: &View<'_>) -> Control {
    if v.asked.is_fence() {
        let parent = v.inside.status("PPid");
        let inside = if parent == Some("0") { "none".to_owned() } else { format!("parent {}", or_unread(parent)) };
        let holds = v.host.init == Some(false) && parent == Some("0");
        return control("init", "none", shown(&v.host.init), inside, holds);
    }
    let name = v.inside.init("Name");
    let parent = v.inside.status("PPid");
    let holds = v.host.init == Some(true) && name.is_some_and(|n| n != "probe") && parent == Some("1");
    let inside = if parent == Some("1") { or_unread(name) } else { format!("parent {}", or_unread(parent)) };
    control("init", "the engine's", shown(&v.host.init), inside, holds)
}

/// What runs: this image, the probe in it with the command behind it, and no other program beside that.
pub(super) fn program(v: &View<'_>) -> Control {
    let image = v.engine.image.as_deref() == Some(v.asked.image.as_str());
    let command = v.config.cmd.as_ref().is_none_or(Vec::is_empty)
        && v.config.entrypoint.as_deref() == Some(v.asked.entrypoint().as_slice());
    let check = v.config.healthcheck.as_ref().and_then(|check| check.test.as_deref());
    let alone = matches!(check, Some([none]) if none == "NONE");
    let wrong = [("another image", image), ("another command", command), ("a health check", alone)];
    let wrong: Vec<&str> = wrong.into_iter().filter(|(_, holds)| !holds).map(|(what, _)| what).collect();
    let engine = as_asked(wrong.is_empty(), || wrong.join(", "));
    control(
        "program",
        &format!("the probe, then the server, of {:.19}", v.asked.image),
        engine,
        UNSEEN.into(),
        wrong.is_empty(),
    )
}

pub(super) fn log_driver(v: &View<'_>) -> Control {
    let engine = v.host.log_config.as_ref().and_then(|l| l.typ.clone()).unwrap_or_default();
    control("log driver", "none", engine.clone(), UNSEEN.into(), engine == "none")
}

/// What makes the server end with us: its input closes with our connection, and nobody starts it again. And that
/// nothing of it stays, also when we are gone.
pub(super) fn life(v: &View<'_>) -> Control {
    let restarts = v.host.restart_policy.as_ref().and_then(|p| p.name.as_ref()).map(ToString::to_string);
    let never = matches!(restarts.as_deref(), Some("" | "no"));
    let once = v.config.stdin_once == Some(true) && v.config.open_stdin == Some(true) && v.config.tty == Some(false);
    let removed = v.host.auto_remove == Some(true);
    let holds = never && once && removed;
    let engine = as_asked(holds, || {
        format!("input closes {once}, restart {}, removed {removed}", restarts.as_deref().unwrap_or("not set"))
    });
    control("life", "ends with its input, leaves nothing", engine, UNSEEN.into(), holds)
}

pub(super) fn labels(v: &View<'_>) -> Control {
    let set = v.config.labels.clone().unwrap_or_default();
    let asked: HashMap<String, String> = v.asked.labels();
    let mut wrong: Vec<&str> =
        asked.iter().filter(|(key, value)| set.get(*key) != Some(value)).map(|(key, _)| key.as_str()).collect();
    wrong.sort_unstable();
    let engine = as_asked(wrong.is_empty(), || format!("not as asked: {}", wrong.join(" ")));
    control("labels", "owner, server, digest", engine, UNSEEN.into(), wrong.is_empty())
}

/// Whatever else an engine lets be set on a container is as it leaves it.
pub(super) fn other_settings(v: &View<'_>) -> Control {
    let mut set: Vec<String> = Vec::new();
    if v.host.runtime.is_none() {
        set.push("Runtime not set".to_owned());
    }
    if let Ok(Value::Object(all)) = serde_json::to_value(&v.host) {
        let others = all.into_iter().filter(|(name, _)| !PROVEN.contains(&name.as_str()));
        set.extend(
            others.filter(|(name, value)| !is_left(v, name, value)).map(|(name, value)| format!("{name} {value}")),
        );
    }
    let known = ["no-new-privileges", "seccomp", "apparmor"];
    let options = v.host.security_opt.iter().flatten();
    set.extend(
        options.filter(|o| !v.security_options(&known).contains(&o.as_str())).map(|o| format!("SecurityOpt {o}")),
    );
    let limits = v.host.ulimits.iter().flatten().map(|u| u.name.as_deref().unwrap_or_default());
    set.extend(limits.filter(|name| !["nofile", "core"].contains(name)).map(|name| format!("Ulimits {name}")));
    let engine = if set.is_empty() { "none".to_owned() } else { set.join(", ") };
    control("other settings", "none", engine, UNSEEN.into(), set.is_empty())
}

/// Whether a setting says no more than if nothing had been asked for.
fn is_left(v: &View<'_>, name: &str, value: &Value) -> bool {
    match (name, value) {
        ("Runtime", Value::String(runtime)) => *runtime == v.defaults.runtime,
        ("Isolation", Value::String(text)) => text.is_empty() || text == "default",
        ("MemorySwappiness", Value::Number(n)) => n.as_i64() == Some(-1),
        // The control on the network asks for them where there is one.
        ("Dns" | "DnsSearch", Value::Array(_)) if v.asked.is_fence() => true,
        (_, Value::Null | Value::Bool(false)) => true,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Number(n)) => n.as_i64() == Some(0),
        // The size of a terminal that there is none of.
        (_, Value::Array(items)) => items.iter().all(|item| item.as_i64() == Some(0)),
        (_, Value::Object(members)) => members.is_empty(),
        (_, Value::Bool(true)) => false,
    }
}
