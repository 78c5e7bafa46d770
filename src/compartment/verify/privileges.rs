//! The controls on what a server's processes are allowed, whoever wrote its program. Pure.

use bollard::models::HostConfigCgroupnsModeEnum;

use super::Control;
use super::view::{UNSEEN, View, control, empty, or_unread, shown};

/// The host's own namespaces have these numbers on every Linux. An engine may itself be in others, so to see another
/// number proves less than to see one of these disproves.
const HOSTS: [(&str, u64); 4] =
    [("cgroup", 4_026_531_835), ("pid", 4_026_531_836), ("uts", 4_026_531_838), ("ipc", 4_026_531_839)];

/// Devices that every container has: null, zero, full, random, urandom, tty, console, ptmx, and terminals.
const DEVICES: [&str; 8] = ["1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:1", "5:2"];

pub(super) fn capabilities(v: &View<'_>) -> Control {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let read: Vec<Option<&str>> = sets.iter().map(|set| v.inside.status(set)).collect();
    let none = |set: &Option<&str>| set.is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|b| b == b'0'));
    let drop = v.host.cap_drop.clone().unwrap_or_default();
    let dropped = drop.iter().any(|c| c.eq_ignore_ascii_case("ALL") || c.eq_ignore_ascii_case("CAP_ALL"));
    let all = read.iter().all(none);
    let inside = if all { "all sets 0".to_owned() } else { format!("{read:?}") };
    let mut added: Vec<String> = v.host.cap_add.clone().unwrap_or_default();
    added.sort_unstable();
    let bare = added.iter().map(|name| name.strip_prefix("CAP_").unwrap_or(name));
    let holds = dropped && bare.eq(v.asked.capabilities().iter().copied()) && all;
    let asked = match v.asked.capabilities() {
        [] => "none".to_owned(),
        begins => format!("none, after {}", begins.join(",")),
    };
    let engine = format!("drop {}, add {}", drop.join(","), added.join(","));
    control("capabilities", &asked, engine.trim_end_matches(", add ").to_owned(), inside, holds)
}

pub(super) fn escalation(v: &View<'_>) -> Control {
    let options = v.security_options(&["no-new-privileges"]);
    let set = matches!(options[..], ["no-new-privileges" | "no-new-privileges:true" | "no-new-privileges=true"]);
    let inside = v.inside.status("NoNewPrivs");
    let engine = if options.is_empty() { "not set".to_owned() } else { options.join(",") };
    control("privilege escalation", "no-new-privileges", engine, or_unread(inside), set && inside == Some("1"))
}

pub(super) fn privileged(v: &View<'_>) -> Control {
    let holds = v.host.privileged == Some(false) && v.host.userns_mode.as_deref().unwrap_or_default().is_empty();
    let users = v.host.userns_mode.as_deref().filter(|mode| !mode.is_empty());
    let engine = format!("{}{}", shown(&v.host.privileged), users.map(|m| format!(", users {m}")).unwrap_or_default());
    control("privileged", "no", engine, UNSEEN.into(), holds)
}

/// A filter is seen from inside, but not what it lets through: that it is the engine's own is the engine's word.
pub(super) fn seccomp(v: &View<'_>) -> Control {
    let own = v.security_options(&["seccomp"]);
    let default = v.defaults.seccomp.as_deref();
    let usual = own.is_empty() && matches!(default, Some("default" | "builtin"));
    let engine = match (own.is_empty(), default) {
        (false, _) => own.join(","),
        (true, Some(profile)) => format!("profile {profile}"),
        (true, None) => "no profile".to_owned(),
    };
    let inside = v.inside.status("Seccomp");
    let seen = if inside == Some("2") { "filtering (2)".to_owned() } else { or_unread(inside) };
    control("seccomp", "the engine's default profile", engine, seen, usual && inside == Some("2"))
}

pub(super) fn apparmor(v: &View<'_>) -> Control {
    let own = v.security_options(&["apparmor"]);
    let profile = v.engine.app_armor_profile.as_deref().unwrap_or_default();
    let inside = v.inside.apparmor.as_deref();
    let (asked, holds) = match v.defaults.apparmor {
        true => {
            // `docker-default (enforce)`
            let enforced = inside.and_then(|label| label.strip_suffix(" (enforce)"));
            (
                "the engine's default profile",
                profile != "unconfined" && !profile.is_empty() && enforced == Some(profile),
            )
        }
        false => ("none, as the engine has none", profile.is_empty()),
    };
    let engine = if profile.is_empty() { "none" } else { profile };
    let engine = if own.is_empty() { engine.to_owned() } else { own.join(",") };
    control("apparmor", asked, engine, inside.unwrap_or("none").to_owned(), own.is_empty() && holds)
}

pub(super) fn user(v: &View<'_>) -> Control {
    let id = v.asked.server.uid.to_string();
    let four = |field: &str| v.inside.status(field).is_some_and(|all| all.split_whitespace().eq([id.as_str(); 4]));
    // The engine lists the user's own group among the extra ones.
    let groups = v.inside.status("Groups").is_some_and(|all| all.split_whitespace().all(|g| g == id));
    let engine = v.config.user.clone().unwrap_or_default();
    let inside = format!(
        "uid {}, gid {}, groups {}",
        or_unread(v.inside.status("Uid")),
        or_unread(v.inside.status("Gid")),
        or_unread(v.inside.status("Groups"))
    );
    let inside = if four("Uid") && four("Gid") && groups { format!("{id}:{id}, no extra groups") } else { inside };
    let holds = engine == v.asked.user() && empty(&v.host.group_add) && four("Uid") && four("Gid") && groups;
    let extra = v.host.group_add.iter().flatten().map(|group| format!(" +{group}"));
    control("user", &v.asked.user(), extra.fold(engine, |all, one| all + &one), inside, holds)
}

pub(super) fn namespaces(v: &View<'_>) -> Control {
    let pid = v.host.pid_mode.clone().unwrap_or_default();
    let uts = v.host.uts_mode.clone().unwrap_or_default();
    let ipc = v.host.ipc_mode.clone().unwrap_or_default();
    let own_cgroup = v.host.cgroupns_mode == Some(HostConfigCgroupnsModeEnum::PRIVATE);
    let holds = pid.is_empty() && uts.is_empty() && ipc == "private" && own_cgroup;
    let cgroup = v.host.cgroupns_mode.as_ref().map_or_else(|| "not set".to_owned(), ToString::to_string);
    let engine = if holds { "own".to_owned() } else { format!("ipc {ipc}, cgroup {cgroup}, pid {pid:?}, uts {uts:?}") };
    let shared: Vec<&str> =
        HOSTS.iter().filter(|(name, number)| !is_own(v, name, *number)).map(|(name, _)| *name).collect();
    let inside = if shared.is_empty() { "own".to_owned() } else { format!("not own: {}", shared.join(", ")) };
    control("namespaces", "own pid, uts, ipc, cgroup", engine, inside, holds && shared.is_empty())
}

/// `ipc:[4026532180]`, and not the host's number.
fn is_own(v: &View<'_>, name: &str, hosts: u64) -> bool {
    let link = v.inside.namespaces.get(name).and_then(Option::as_deref);
    let number = link.and_then(|l| l.strip_prefix(name)?.strip_prefix(":[")?.strip_suffix(']')?.parse::<u64>().ok());
    number.is_some_and(|number| number != hosts)
}

pub(super) fn devices(v: &View<'_>) -> Control {
    let none = empty(&v.host.devices) && empty(&v.host.device_requests) && empty(&v.host.device_cgroup_rules);
    let given = || {
        let devices = v.host.devices.iter().flatten().filter_map(|d| d.path_on_host.clone());
        let rules = v.host.device_cgroup_rules.iter().flatten().cloned();
        let requests = v.host.device_requests.iter().flatten().map(|_| "a device request".to_owned());
        devices.chain(rules).chain(requests).collect::<Vec<_>>().join(", ")
    };
    let engine = if none { "none".to_owned() } else { given() };
    // Control groups of the first version list what may be used at all; those of the second have a program for it.
    let rules = v.inside.cgroup("devices.list").map(|list| list.lines().filter(|rule| !is_usual_rule(rule)).collect());
    let rules: Vec<&str> = rules.unwrap_or_default();
    let strange = v.inside.devices.as_ref().map(|all| {
        let all = all.iter().map(String::as_str).filter(|device| !is_usual_device(device));
        all.chain(rules).collect::<Vec<_>>()
    });
    let holds = none && strange.as_ref().is_some_and(Vec::is_empty);
    let inside = match &strange {
        Some(strange) if strange.is_empty() => "none".to_owned(),
        other => or_unread(other.as_ref().map(|all| all.join(", ")).as_deref()),
    };
    control("devices", "none", engine, inside, holds)
}

/// `c 1:3 /dev/null`
fn is_usual_device(device: &str) -> bool {
    let mut words = device.splitn(3, ' ');
    let (kind, number) = (words.next(), words.next().unwrap_or_default());
    kind == Some("c") && (DEVICES.contains(&number) || number.starts_with("136:"))
}

/// `c 1:3 rwm`. To make a node of any kind opens nothing by itself, and needs a capability; a tunnel device does, too.
fn is_usual_rule(rule: &str) -> bool {
    let words: Vec<&str> = rule.split_whitespace().collect();
    match words[..] {
        ["b" | "c", "*:*", "m"] => true,
        ["c", number, _] => DEVICES.contains(&number) || number == "136:*" || number == "10:200",
        _ => false,
    }
}
