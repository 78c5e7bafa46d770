//! What the engine is, whether it can do what a compartment asks for, and what it is to be told of it.

use bollard::models::SystemInfo;

use crate::compartment::Engine;
use crate::compartment::engine::{Defaults, Description, State};
use crate::error::Exit;

use super::Finding;

/// What helps with an engine that does not say what is wrong with it.
pub(super) const RESTART: &str = "restart the engine, and look into its log";

/// Looks at the engine; whether it can be used at all.
pub(super) async fn look(engine: &Engine, findings: &mut Vec<Finding>) -> bool {
    let Description { version, info } = match engine.describe().await {
        Ok(found) => found,
        Err(fault) => {
            let mend = mend(&engine.states().await);
            findings.push(Finding::wrong("engine", fault.inward, mend, Exit::Isolation));
            return false;
        }
    };
    let word = |text: Option<String>| text.unwrap_or_else(|| "?".into());
    let cgroup = info.cgroup_version.map_or_else(|| "?".to_owned(), |v| v.to_string());
    let says = format!(
        "version {}, API {}, {}, control groups v{cgroup}",
        word(version.version),
        word(version.api_version),
        word(info.operating_system.clone()),
    );
    findings.push(Finding::fine("engine", says));
    findings.extend(users(&info));
    findings.push(seccomp(&info));
    findings.push(limits(&info));
    true
}

/// What to do where no engine can be used: of several addresses, the one that is nearest to being one says it.
fn mend(states: &Result<Vec<(String, State)>, String>) -> &'static str {
    let Ok(states) = states else { return "choose a docker context that is there, or set DOCKER_HOST" };
    let has = |is: fn(&State) -> bool| states.iter().any(|(_, state)| is(state));
    if has(|s| matches!(s, State::Old(_))) {
        "install Docker Engine 20.10 or newer: an older one ignores controls without a word"
    } else if has(|s| *s == State::Hung) {
        "it takes connections and does not answer: restart it"
    } else if has(|s| *s == State::Denied) {
        "add this user to the group that owns the socket (mostly \"docker\"), log in again; or use a rootless engine"
    } else if has(|s| matches!(s, State::Answers | State::Failed(_))) {
        RESTART
    } else {
        "start Docker, Colima or Podman's socket, or run scripts/setup where Debian is at hand"
    }
}

/// Whose users those of a container are on the host.
fn users(info: &SystemInfo) -> Option<Finding> {
    let named = |name: &str| {
        let options = info.security_options.iter().flatten();
        options.flat_map(|option| option.split(',')).any(|part| part.strip_prefix("name=") == Some(name))
    };
    if named("rootless") {
        let says = "the engine runs without root: whoever broke out of a container would be its user, not root. \
                    Servers run and are proven as elsewhere, where the limits below can be had";
        return Some(Finding::note("rootless engine", says, None));
    }
    if named("userns") {
        let says = "the engine shifts user ids (userns-remap): a server's user 10001 has another number on the host, \
                    and owns nothing there. Servers run and are proven by what is seen inside";
        let mend = "files of mounts must be readable for the shifted user, or for everybody";
        return Some(Finding::note("user ids", says, Some(mend.to_owned())));
    }
    None
}

fn seccomp(info: &SystemInfo) -> Finding {
    let wrong = |says: String, mend: &str| Finding::wrong("seccomp", says, mend, Exit::Isolation);
    match Defaults::of(info).seccomp.as_deref() {
        Some("default" | "builtin") => {
            Finding::fine("seccomp", "the engine filters system calls by its default profile")
        }
        None => wrong(
            "the engine does not filter system calls, so nothing runs".to_owned(),
            "use an engine and a kernel with seccomp",
        ),
        Some(profile) => wrong(
            format!("the engine filters system calls by {profile:?}, which nobody has vouched for, so nothing runs"),
            "take \"seccomp-profile\" out of the engine's configuration",
        ),
    }
}

fn limits(info: &SystemInfo) -> Finding {
    let all = [
        (info.memory_limit, "memory"),
        (info.swap_limit, "swap"),
        (info.pids_limit, "processes"),
        (info.cpu_cfs_quota, "processors"),
    ];
    let lacking: Vec<&str> = all.into_iter().filter_map(|(has, name)| (has == Some(false)).then_some(name)).collect();
    if lacking.is_empty() && info.cpu_set != Some(true) {
        let says = "servers share all processors, since the engine cannot keep them apart: one that uses all it may \
                    slows down the calls of the others";
        let mend = "enable the control group cpuset; for a rootless engine, have systemd delegate it to this user";
        return Finding::note("limits", says, Some(mend.to_owned()));
    }
    if lacking.is_empty() {
        return Finding::fine("limits", "memory, swap, processes and processors can be limited");
    }
    let says = format!("{} cannot be limited here, so nothing runs", lacking.join(", "));
    let mend = match lacking[..] {
        ["swap"] => "boot the kernel with swapaccount=1",
        _ if users(info).is_some_and(|note| note.what == "rootless engine") => {
            "have systemd delegate the controllers cpu, cpuset, memory and pids to this user"
        }
        _ => "enable these control groups at boot: cgroup_enable=memory swapaccount=1, or a kernel with them",
    };
    Finding::wrong("limits", says, mend, Exit::Isolation)
}
