//! One entry of `[servers]`. Knows nothing of the other entries.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::env::Environment;
use crate::config::mounts::Guard;
use crate::config::quantity;
use crate::config::reader::Reader;
use crate::config::{RateLimits, Run, Server, Share, Total};
use crate::name::{Role, ServerName};

use super::gateway::{role, set};
use super::run::{Launch, launch};
use super::texts::Texts;
use super::{compartment, digest, environment, limits, settings, tools};

/// Every key of a server, for those who must tell them from keys of other clients.
pub(in crate::config) const KEYS: [&str; 35] = [
    "package",
    "with",
    "executable",
    "image",
    "unisolated",
    "command",
    "args",
    "url",
    "type",
    "headers",
    "secret_headers",
    "env",
    "secrets",
    "disabled",
    "min_role",
    "tools",
    "share",
    "limits",
    "memory",
    "cpus",
    "pids",
    "network",
    "egress",
    "host_ports",
    "egress_limits",
    "state",
    "cache",
    "mounts",
    "writable_root",
    "user",
    "timeout",
    "max_time",
    "start_timeout",
    "idle_stop",
    "max_result",
];

/// What an entry takes from around it.
pub(super) struct Surroundings<'a> {
    pub(super) env: &'a dyn Environment,
    pub(super) guard: &'a Guard,
    pub(super) idle_stop: Duration,
    pub(super) limits: RateLimits,
    pub(super) total: Total,
}

/// How long things may take.
struct Times {
    timeout: Duration,
    max_time: Duration,
    start_timeout: Duration,
    idle_stop: Duration,
}

/// Reads a server. `None` where it has no usable name or does not say how it runs; the faults are noted by then.
pub(super) fn server(name: Option<ServerName>, mut r: Reader<'_>, around: &Surroundings<'_>) -> Option<Server> {
    let mut texts = Texts::new(around.env);
    let launch = launch(&mut r, &mut texts);
    let run = launch.as_ref().map(|launch| &launch.run);
    let compartment = match run {
        Some(Run::Unisolated { .. }) => compartment::none(&mut r, "cannot be kept, since the server is unisolated"),
        Some(Run::Remote { .. }) => compartment::none(&mut r, "has no meaning for a remote server"),
        _ => compartment::compartment(&mut r, around.guard, &around.total),
    };
    if matches!(run, Some(Run::Remote { .. })) {
        r.refuse(&["env", "secrets"], "has no meaning for a remote server");
    }
    let contained = !matches!(run, Some(Run::Unisolated { .. }));
    let variables = environment::variables(&mut r, &mut texts, contained);
    let times = times(&mut r, around.idle_stop);
    let min_role = r.get("min_role").and_then(|f| f.parse(role)).unwrap_or(Role::User);
    let tools = tools::tools(r.table("tools"));
    let shares = [("principal", Share::Principal), ("session", Share::Session), ("all", Share::All)];
    let share = r.get("share").and_then(|f| f.choice(&shares)).unwrap_or(Share::Principal);
    let limits = r.get("limits").and_then(|f| limits::rate_table(&f, around.limits));
    let max_result = r.get("max_result").and_then(|f| f.parse(max_result)).unwrap_or(32 << 20);
    let off = r.get("disabled").and_then(|f| f.boolean()).unwrap_or(false);
    let url = r.path_of("url");
    r.finish();

    let Launch { run, written } = launch?;
    let (disabled, lacks) = match &run {
        _ if off => (Some("disabled in the configuration".to_owned()), Vec::new()),
        Run::Remote { .. } => (Some(format!("not yet supported: {url}")), Vec::new()),
        _ if texts.needs.is_empty() => (None, Vec::new()),
        _ => {
            let words: Vec<&str> = texts.needs.iter().map(|(_, text)| text.as_str()).collect();
            (Some(words.join("; ")), texts.needs)
        }
    };
    let mut server = Server {
        name: name?,
        run,
        disabled,
        lacks,
        min_role,
        tools,
        resources: compartment.resources,
        network: compartment.network,
        egress_limits: compartment.egress_limits,
        env: variables.values,
        share,
        state: compartment.state,
        cache: compartment.cache,
        mounts: compartment.mounts,
        writable_root: compartment.writable_root,
        uid: compartment.uid,
        limits,
        timeout: times.timeout,
        max_time: times.max_time,
        start_timeout: times.start_timeout,
        idle_stop: times.idle_stop,
        max_result,
        digest: String::new(),
        settings: BTreeMap::new(),
    };
    server.digest = digest::digest(&server, &written, &variables.written);
    server.settings = settings::settings(&server, &written, &variables.written);
    Some(server)
}

fn times(r: &mut Reader<'_>, idle_stop: Duration) -> Times {
    let minutes = |n: u64| Duration::from_secs(n * 60);
    let mut times = Times { timeout: minutes(1), max_time: minutes(10), start_timeout: minutes(1), idle_stop };
    set(&mut times.timeout, r.get("timeout").and_then(|f| f.parse(quantity::duration)));
    set(&mut times.start_timeout, r.get("start_timeout").and_then(|f| f.parse(quantity::duration)));
    set(&mut times.idle_stop, r.get("idle_stop").and_then(|f| f.parse(quantity::duration)));
    match r.get("max_time") {
        None => times.max_time = times.max_time.max(times.timeout),
        Some(field) => {
            set(&mut times.max_time, field.parse(quantity::duration));
            if times.max_time < times.timeout {
                field.fault("must not be shorter than \"timeout\"");
            }
        }
    }
    times
}

fn max_result(text: &str) -> Result<usize, String> {
    let bytes = quantity::size(text)?;
    usize::try_from(bytes).ok().filter(|n| *n <= 1 << 30).ok_or_else(|| format!("must be at most \"1g\", not {text:?}"))
}
