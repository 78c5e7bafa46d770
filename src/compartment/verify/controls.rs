//! The controls, one function each: the readings as text, and whether they are what was asked. Pure.

use std::collections::{BTreeSet, HashMap};

use bollard::models::{ContainerConfig, ContainerInspectResponse, HostConfig, HostConfigCgroupnsModeEnum};

use super::super::report::Report;
use super::super::spec::{Compartment, HOSTNAME, NOFILE, nano};
use super::Control;
use super::places;

/// What all readings are taken from.
pub(super) struct Readings<'a> {
    pub asked: &'a Compartment,
    pub probe: &'a str,
    pub engine: &'a ContainerInspectResponse,
    pub host: HostConfig,
    pub config: ContainerConfig,
    pub inside: &'a Report,
}

/// What only the engine can know.
const UNSEEN: &str = "-";

pub(super) fn all(
    asked: &Compartment,
    probe: &str,
    engine: &ContainerInspectResponse,
    inside: &Report,
) -> Vec<Control> {
    let host = engine.host_config.clone().unwrap_or_default();
    let config = engine.config.clone().unwrap_or_default();
    let readings = Readings { asked, probe, engine, host, config, inside };
    let r = &readings;
    vec![
        capabilities(r),
        privilege_escalation(r),
        privileged(r),
        seccomp(r),
        user(r),
        places::root(r),
        places::tmpfs(r),
        places::mounts(r),
        memory(r),
        swap(r),
        cpu(r),
        pids(r),
        open_files(r),
        core_dumps(r),
        network(r),
        environment(r),
        namespaces(r),
        devices(r),
        hostname(r),
        init(r),
        log_driver(r),
        life(r),
        labels(r),
    ]
}

pub(super) fn control(control: &'static str, asked: &str, engine: String, inside: String, holds: bool) -> Control {
    Control { control, asked: asked.to_owned(), engine, inside, holds }
}

pub(super) fn or_unread(text: Option<&str>) -> String {
    text.unwrap_or("cannot be read").to_owned()
}

fn shown<T: std::fmt::Debug>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| "not set".to_owned(), |v| format!("{v:?}"))
}

fn empty<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_none_or(Vec::is_empty)
}

fn capabilities(r: &Readings<'_>) -> Control {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let read: Vec<Option<&str>> = sets.iter().map(|set| r.inside.status(set)).collect();
    let none = |set: &Option<&str>| set.is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|b| b == b'0'));
    let drop = r.host.cap_drop.clone().unwrap_or_default();
    let dropped = drop.iter().any(|c| c.eq_ignore_ascii_case("ALL") || c.eq_ignore_ascii_case("CAP_ALL"));
    let all = read.iter().all(none);
    let inside = if all { "all sets 0".to_owned() } else { format!("{read:?}") };
    let holds = dropped && empty(&r.host.cap_add) && all;
    let engine = format!("drop {}, add {}", drop.join(","), r.host.cap_add.clone().unwrap_or_default().join(","));
    control("capabilities", "none", engine.trim_end_matches(", add ").to_owned(), inside, holds)
}

fn privilege_escalation(r: &Readings<'_>) -> Control {
    let options = r.host.security_opt.clone().unwrap_or_default();
    let set = options
        .iter()
        .any(|o| matches!(o.as_str(), "no-new-privileges" | "no-new-privileges:true" | "no-new-privileges=true"));
    let inside = r.inside.status("NoNewPrivs");
    control(
        "privilege escalation",
        "no-new-privileges",
        options.join(","),
        or_unread(inside),
        set && inside == Some("1"),
    )
}

fn privileged(r: &Readings<'_>) -> Control {
    let holds = r.host.privileged == Some(false) && r.host.userns_mode.as_deref().unwrap_or_default() != "host";
    control("privileged", "no", shown(&r.host.privileged), UNSEEN.into(), holds)
}

fn seccomp(r: &Readings<'_>) -> Control {
    let options = r.host.security_opt.clone().unwrap_or_default();
    let loose = options.iter().any(|o| o.contains("unconfined"));
    let inside = r.inside.status("Seccomp");
    let seen = if inside == Some("2") { "filtering (2)".to_owned() } else { or_unread(inside) };
    let engine = if loose { options.join(",") } else { "default profile".to_owned() };
    control("seccomp", "the engine's default profile", engine, seen, !loose && inside == Some("2"))
}

fn user(r: &Readings<'_>) -> Control {
    let id = r.asked.server.uid.to_string();
    let four = |field: &str| r.inside.status(field).is_some_and(|all| all.split_whitespace().eq([id.as_str(); 4]));
    // The engine lists the user's own group among the extra ones.
    let groups = r.inside.status("Groups").is_some_and(|all| all.split_whitespace().all(|g| g == id));
    let engine = r.config.user.clone().unwrap_or_default();
    let inside = format!("uid {}, gid {}", or_unread(r.inside.status("Uid")), or_unread(r.inside.status("Gid")));
    let inside = if four("Uid") && four("Gid") && groups { format!("{id}:{id}, no extra groups") } else { inside };
    let holds = engine == r.asked.user() && empty(&r.host.group_add) && four("Uid") && four("Gid") && groups;
    control("user", &r.asked.user(), engine, inside, holds)
}

fn memory(r: &Readings<'_>) -> Control {
    let asked = r.asked.server.resources.memory;
    let inside = r.inside.cgroup("memory.limit_in_bytes").or(r.inside.cgroup("memory.max"));
    let holds = r.host.memory == i64::try_from(asked).ok() && inside == Some(asked.to_string().as_str());
    control("memory", &asked.to_string(), shown(&r.host.memory), or_unread(inside), holds)
}

/// Swap equal to memory: no swap beyond it. The two versions of control groups count it differently.
fn swap(r: &Readings<'_>) -> Control {
    let asked = r.asked.server.resources.memory;
    let v1 = r.inside.cgroup("memory.memsw.limit_in_bytes");
    let v2 = r.inside.cgroup("memory.swap.max");
    let inside = match (v1, v2) {
        (Some(both), _) => both == asked.to_string(),
        (None, Some(beyond)) => beyond == "0",
        (None, None) => false,
    };
    let holds = r.host.memory_swap == i64::try_from(asked).ok() && inside;
    control("swap", "no more than memory", shown(&r.host.memory_swap), or_unread(v1.or(v2)), holds)
}

fn cpu(r: &Readings<'_>) -> Control {
    let asked = r.asked.server.resources.cpus;
    let v1 = r.inside.cgroup("cpu.cfs_quota_us").zip(r.inside.cgroup("cpu.cfs_period_us"));
    let v2 = r.inside.cgroup("cpu.max").and_then(|text| text.split_once(' '));
    let share = v1.or(v2).and_then(|(quota, period)| Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?));
    let near = share.is_some_and(|s| s > 0.0 && (s - asked).abs() <= 0.01);
    let inside = share.map_or_else(|| or_unread(None), |s| s.to_string());
    control("cpu", &asked.to_string(), shown(&r.host.nano_cpus), inside, r.host.nano_cpus == Some(nano(asked)) && near)
}

fn pids(r: &Readings<'_>) -> Control {
    let asked = r.asked.server.resources.pids;
    let inside = r.inside.cgroup("pids.max");
    let holds = r.host.pids_limit == Some(i64::from(asked)) && inside == Some(asked.to_string().as_str());
    control("pids", &asked.to_string(), shown(&r.host.pids_limit), or_unread(inside), holds)
}

fn limit(r: &Readings<'_>, name: &'static str, engine: &str, inside: &str, asked: i64) -> Control {
    let limits = r.host.ulimits.clone().unwrap_or_default();
    let set = limits.iter().find(|u| u.name.as_deref() == Some(engine)).and_then(|u| u.hard);
    let text = asked.to_string();
    let seen = r.inside.limit(inside);
    let holds = set == Some(asked) && seen == Some((text.as_str(), text.as_str()));
    control(name, &text, shown(&set), or_unread(seen.map(|(_, hard)| hard)), holds)
}

fn open_files(r: &Readings<'_>) -> Control {
    limit(r, "open files", "nofile", "Max open files", NOFILE)
}

fn core_dumps(r: &Readings<'_>) -> Control {
    limit(r, "core dumps", "core", "Max core file size", 0)
}

fn network(r: &Readings<'_>) -> Control {
    let engine = r.host.network_mode.clone().unwrap_or_default();
    let published = r.host.port_bindings.as_ref().is_some_and(|p| !p.is_empty());
    let (interfaces, routes) = (r.inside.interfaces(), r.inside.routes());
    let only_lo = interfaces.as_ref().is_some_and(|all| all.iter().all(|name| *name == "lo"));
    let no_way = routes.as_ref().is_some_and(Vec::is_empty);
    let inside = match (&interfaces, &routes) {
        (Some(all), Some(routes)) => format!("{}, {} routes out", all.join(","), routes.len()),
        _ => or_unread(None),
    };
    control("network", "none", engine.clone(), inside, engine == "none" && !published && only_lo && no_way)
}

/// Names only: values are nobody's business here.
fn environment(r: &Readings<'_>) -> Control {
    let asked: BTreeSet<&str> = r.asked.env.keys().map(String::as_str).collect();
    let inside: BTreeSet<&str> = r.inside.env.iter().map(String::as_str).collect();
    let set = r.config.env.clone().unwrap_or_default();
    let engine: BTreeSet<&str> = set.iter().filter_map(|e| e.split_once('=').map(|(name, _)| name)).collect();
    let list = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(" ");
    let holds = inside == asked && engine == asked;
    control("environment", &list(&asked), list(&engine), list(&inside), holds)
}

fn namespaces(r: &Readings<'_>) -> Control {
    let pid = r.host.pid_mode.clone().unwrap_or_default();
    let uts = r.host.uts_mode.clone().unwrap_or_default();
    let ipc = r.host.ipc_mode.clone().unwrap_or_default();
    let own_cgroup = r.host.cgroupns_mode == Some(HostConfigCgroupnsModeEnum::PRIVATE);
    let holds = pid.is_empty() && uts.is_empty() && ipc == "private" && own_cgroup;
    let engine = format!("ipc {ipc}, cgroup {}, pid {:?}, uts {:?}", shown(&r.host.cgroupns_mode), pid, uts);
    // A process that sees the engine's init as the first one is in a process namespace of its own.
    let own = r.inside.status("PPid") == Some("1");
    let inside =
        if own { "own process tree".to_owned() } else { format!("parent {}", or_unread(r.inside.status("PPid"))) };
    control("namespaces", "own pid, uts, ipc, cgroup", engine, inside, holds && own)
}

fn devices(r: &Readings<'_>) -> Control {
    let none = empty(&r.host.devices) && empty(&r.host.device_requests) && empty(&r.host.device_cgroup_rules);
    control("devices", "none", if none { "none".into() } else { "some".into() }, UNSEEN.into(), none)
}

fn hostname(r: &Readings<'_>) -> Control {
    let engine = r.config.hostname.clone().unwrap_or_default();
    let inside = r.inside.hostname.as_deref().map(str::trim);
    let holds = engine == HOSTNAME && inside == Some(HOSTNAME);
    control("hostname", HOSTNAME, engine, or_unread(inside), holds)
}

fn init(r: &Readings<'_>) -> Control {
    let name = r.inside.init("Name");
    let holds = r.host.init == Some(true) && name.is_some_and(|n| n != "probe") && r.inside.status("PPid") == Some("1");
    control("init", "the engine's", shown(&r.host.init), or_unread(name), holds)
}

fn log_driver(r: &Readings<'_>) -> Control {
    let engine = r.host.log_config.as_ref().and_then(|l| l.typ.clone()).unwrap_or_default();
    control("log driver", "none", engine.clone(), UNSEEN.into(), engine == "none")
}

/// What makes the server end with us: its input closes with our connection, and nobody starts it again.
fn life(r: &Readings<'_>) -> Control {
    let restarts = r.host.restart_policy.as_ref().and_then(|p| p.name.as_ref()).map(ToString::to_string);
    let never = matches!(restarts.as_deref(), None | Some("" | "no"));
    let once = r.config.stdin_once == Some(true) && r.config.open_stdin == Some(true) && r.config.tty == Some(false);
    let engine = format!("input closes {}, restart {}", once, restarts.unwrap_or_default());
    control("life", "ends with its input", engine, UNSEEN.into(), never && once)
}

fn labels(r: &Readings<'_>) -> Control {
    let set = r.config.labels.clone().unwrap_or_default();
    let asked: HashMap<String, String> = r.asked.labels();
    let holds = asked.iter().all(|(key, value)| set.get(key) == Some(value));
    let engine = if holds { "all".to_owned() } else { format!("{} labels", set.len()) };
    control("labels", "owner, server, digest", engine, UNSEEN.into(), holds)
}
