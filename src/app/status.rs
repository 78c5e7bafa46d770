//! The state of a running gateway in the shape that the interface promises. Changes nothing.

use serde::Serialize;
use serde_json::{Value, json};

use crate::audit::record::Isolation;
use crate::compartment::verify::Evidence;
use crate::config::{Network, Run, Server};
use crate::downstream::guarded::Way;
use crate::downstream::instance::Instance;
use crate::downstream::pool::{Entry, State};
use crate::egress::passage::{Limits, Usage};
use crate::error::Class;
use crate::gate;

use super::{App, shown};

#[derive(Serialize)]
struct ServerStatus {
    name: String,
    kind: &'static str,
    state: State,
    reason: Option<String>,
    isolation: &'static str,
    isolation_reason: Option<String>,
    network: &'static str,
    reach: Vec<String>,
    mounts: Vec<String>,
    writable_root: bool,
    tools: usize,
    withheld: usize,
    image: Option<String>,
    instances: Vec<Value>,
}

impl App {
    /// One gateway of `status --json`.
    pub fn status(&self) -> Value {
        let audit = &self.gateway.audit;
        let roster = self.gateway.pool.roster();
        let config = &roster.config;
        let (seq, head) = audit.head();
        let servers: Vec<ServerStatus> = roster.entries.iter().map(|e| self.server(e)).collect();
        let leaving = self.gateway.pool.leaving();
        let leaving: Vec<Value> = leaving.iter().flat_map(|e| e.leaving().into_iter().map(|i| left(e, &i))).collect();
        json!({
            "instance": self.instance,
            "pid": std::process::id(),
            "config": shown(&std::path::absolute(&config.path).unwrap_or_else(|_| config.path.clone())),
            "config_digest": config.digest,
            "policy_digest": gate::digest(&config.servers),
            "reload": self.reloaded(),
            "audit": { "path": shown(&self.state.join(&config.audit.path)), "seq": seq, "head": head },
            "servers": servers,
            "leaving": leaving,
        })
    }

    fn server(&self, entry: &Entry) -> ServerStatus {
        let pool = &self.gateway.pool;
        let (state, reason) = pool.state(entry);
        let instances = entry.instances();
        let (isolation, isolation_reason) = isolation(entry, &instances);
        let listing = entry.listing();
        let (network, reach) = network(&entry.server, &instances);
        ServerStatus {
            name: entry.server.name.as_str().to_owned(),
            kind: entry.server.run.kind(),
            state,
            reason,
            isolation,
            isolation_reason,
            network,
            reach,
            mounts: mounts(&entry.server),
            writable_root: entry.server.writable_root,
            tools: listing.as_ref().map_or(0, |l| l.tools.len()),
            withheld: listing.as_ref().map_or(0, |l| l.withheld.len()),
            image: instances.iter().find_map(|i| i.confinement.image.clone()).or_else(|| entry.image.clone()),
            instances: instances.iter().map(|i| instance(i)).collect(),
        }
    }
}

fn isolation(entry: &Entry, instances: &[std::sync::Arc<Instance>]) -> (&'static str, Option<String>) {
    match &entry.server.run {
        Run::Unisolated { reason, .. } => ("unisolated", Some(reason.as_str().to_owned())),
        Run::Remote { .. } => ("remote", None),
        _ if instances.iter().any(|i| i.confinement.isolation == Isolation::Proven) => ("proven", None),
        _ => match entry.last_fault() {
            Some(fault) if fault.class == Class::Isolation => ("refused", Some(fault.inward)),
            _ => ("not-running", None),
        },
    }
}

fn network(server: &Server, instances: &[std::sync::Arc<Instance>]) -> (&'static str, Vec<String>) {
    match (&server.run, &server.network) {
        (Run::Unisolated { .. }, _) => ("host", vec!["everything the host can reach".to_owned()]),
        (Run::Remote { .. }, _) => ("remote", vec!["not ours to say".to_owned()]),
        (_, Network::None) => ("none", vec!["lo".to_owned()]),
        (_, Network::Guarded { rules, host_ports }) => {
            let ports = host_ports.iter().map(|port| format!("host 127.0.0.1:{port}"));
            (
                "egress",
                ["lo".to_owned()].into_iter().chain(rules.iter().map(ToString::to_string)).chain(ports).collect(),
            )
        }
        (_, Network::Bridge) => {
            let fences = instances.iter().filter_map(|instance| match &instance.way {
                Some(Way::Fenced(fence)) => Some(fence.bounds().reach()),
                _ => None,
            });
            // What is not known before is told once it runs.
            let reach = fences.reduce(|all, more| all.into_iter().chain(more).collect()).unwrap_or_else(unfenced);
            let mut all = vec!["lo".to_owned()];
            for place in reach {
                if !all.contains(&place) {
                    all.push(place);
                }
            }
            ("bridge", all)
        }
    }
}

/// What a server on a bridge can reach as far as it is known before it runs.
fn unfenced() -> Vec<String> {
    ["the internet (public IPv4 addresses)", "name servers (port 53)"].map(str::to_owned).to_vec()
}

fn mounts(server: &Server) -> Vec<String> {
    let way = |write| if write { "read and write" } else { "read only" };
    server.mounts.iter().map(|m| format!("{} at {} ({})", shown(&m.host), m.at, way(m.write))).collect()
}

/// An instance of a server that is no more what it was.
fn left(entry: &Entry, of: &Instance) -> Value {
    let mut shown = instance(of);
    shown["server"] = entry.server.name.as_str().into();
    shown["reason"] = entry.why_leaving().into();
    shown
}

fn egress(usage: Usage, limits: Limits) -> Value {
    let Usage { open, connections, refused, cut, bytes_out, bytes_in, bytes_today } = usage;
    let Limits { connections: at_once, bytes_per_day, connect, request, idle } = limits;
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    json!({
        "open": open,
        "connections": connections,
        "refused": refused,
        "cut": cut,
        "bytes_out": bytes_out,
        "bytes_in": bytes_in,
        "bytes_today": bytes_today,
        "limits": {
            "connections": at_once,
            "bytes_per_day": bytes_per_day,
            "connect_ms": ms(connect),
            "request_ms": ms(request),
            "idle_ms": ms(idle),
        },
    })
}

/// The container whose network an instance has.
fn keeper(container: &str, image: &str, evidence: &Evidence) -> Value {
    json!({ "container": container, "image": image, "evidence": evidence })
}

fn instance(instance: &Instance) -> Value {
    use std::sync::atomic::Ordering::Relaxed;
    let counters = &instance.peer.counters;
    let (guard, fence, usage) = match &instance.way {
        None => (Value::Null, Value::Null, Value::Null),
        Some(Way::Guarded { guard, egress: used, .. }) => (
            keeper(guard.container(), guard.image(), guard.evidence()),
            Value::Null,
            egress(used.usage(), used.policy().limits),
        ),
        Some(Way::Fenced(fence)) => {
            let mut told = keeper(fence.container(), fence.image(), fence.evidence());
            let bounds = fence.bounds();
            told["network"] = json!({ "name": bounds.place.name, "subnet": bounds.place.subnet.to_string() });
            told["host_addresses"] = json!(bounds.host);
            told["refused"] = bounds.refused().iter().map(ToString::to_string).collect();
            (Value::Null, told, Value::Null)
        }
    };
    json!({
        "container": instance.confinement.container,
        "principal": instance.owner,
        "since": humantime::format_rfc3339_millis(instance.since).to_string(),
        "revision": instance.greeting.revision,
        "evidence": instance.confinement.evidence,
        "guard": guard,
        "fence": fence,
        "egress": usage,
        "skipped": {
            "noise": counters.noise.load(Relaxed),
            "stray": counters.stray.load(Relaxed),
            "mended": counters.mended.load(Relaxed),
        },
    })
}
