//! The keys that confine a server in its container. Knows nothing of how an engine is told.

mod egress_limits;
mod network;

use std::path::Path;

use crate::config::CACHE;
use crate::config::fault::quoted;
use crate::config::mounts::{Guard, target, within};
use crate::config::reader::{Field, Reader};
use crate::config::{FENCE, GUARD, Mount, Network, Resources, Total};
use crate::egress::passage::Limits;

use super::gateway::set;
use super::limits::{LEAST_CPUS, LEAST_MEMORY, memory};

/// What a server may use unless it says otherwise.
const RESOURCES: Resources = Resources { memory: 512 << 20, cpus: 1.0, pids: 256 };

/// The user in a container: above the usual accounts of a host, where its processes would be somebody's.
const UID: u32 = 10001;

/// The keys that only a container can keep.
const KEYS: [&str; 12] = [
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
];

/// Everything that confines a server.
pub(super) struct Compartment {
    pub(super) resources: Resources,
    pub(super) network: Network,
    pub(super) egress_limits: Limits,
    pub(super) state: Option<String>,
    pub(super) cache: bool,
    pub(super) mounts: Vec<Mount>,
    pub(super) writable_root: bool,
    pub(super) uid: u32,
}

impl Default for Compartment {
    fn default() -> Self {
        Compartment {
            resources: RESOURCES,
            network: Network::None,
            egress_limits: Limits::default(),
            state: None,
            cache: false,
            mounts: Vec::new(),
            writable_root: false,
            uid: UID,
        }
    }
}

/// Refuses the keys that confine, for a server that has no container to keep them.
pub(super) fn none(r: &mut Reader<'_>, why: &str) -> Compartment {
    r.refuse(&KEYS, why);
    Compartment::default()
}

/// Reads the keys that confine a server.
pub(super) fn compartment(r: &mut Reader<'_>, guard: &Guard, total: &Total) -> Compartment {
    let network = network::network(r);
    let left = left(r, &network, total);
    let resources = resources(r, &left);
    let egress_limits = egress_limits::egress_limits(r);
    let mut found = Compartment { resources, network, egress_limits, ..Compartment::default() };
    found.state = r.get("state").and_then(|f| f.parse(target));
    set(&mut found.cache, r.get("cache").and_then(|f| f.boolean()));
    set(&mut found.writable_root, r.get("writable_root").and_then(|f| f.boolean()));
    set(&mut found.uid, r.get("user").and_then(|f| user(&f)));
    for field in r.get("mounts").and_then(|f| f.list()).unwrap_or_default() {
        let mount = mount(&field, guard);
        let taken =
            |mount: &Mount| found.state.as_deref() == Some(&mount.at) || found.mounts.iter().any(|m| m.at == mount.at);
        match mount {
            Some(mount) if taken(&mount) => field.fault(format!("is the second use of {}", quoted(&mount.at))),
            mount => found.mounts.extend(mount),
        }
    }
    if let Some((inner, outer)) = nested(&found) {
        r.fault(&format!("has {} in {}: give each a place beside the others", quoted(&inner), quoted(&outer)));
    }
    found
}

/// A place within another one. What a server can write to must not decide what something is mounted over: it could put a
/// link in the way.
fn nested(found: &Compartment) -> Option<(String, String)> {
    let own = found.state.iter().map(String::as_str).chain(found.cache.then_some(CACHE));
    let places: Vec<&str> = own.chain(found.mounts.iter().map(|mount| mount.at.as_str())).collect();
    let below = |inner: &str, outer: &str| inner != outer && Path::new(inner).starts_with(outer);
    let mut pairs = places.iter().flat_map(|inner| places.iter().map(move |outer| (*inner, *outer)));
    pairs.find(|(inner, outer)| below(inner, outer)).map(|(inner, outer)| (inner.to_owned(), outer.to_owned()))
}

/// What of the totals is a server's own: those of its guard or fence count, too.
fn left(r: &Reader<'_>, network: &Network, total: &Total) -> Total {
    let (what, takes) = match network {
        Network::None => return *total,
        Network::Guarded { .. } => ("guard", GUARD),
        Network::Bridge => ("fence", FENCE),
    };
    let left = Total { memory: total.memory.saturating_sub(takes.memory), cpus: total.cpus - takes.cpus, ..*total };
    if left.memory >= LEAST_MEMORY && left.cpus >= LEAST_CPUS {
        return left;
    }
    r.fault(&format!(
        "has no room: the {what} of its network takes {} MiB and {} of a processor of limits.total",
        takes.memory >> 20,
        takes.cpus
    ));
    *total
}

fn resources(r: &mut Reader<'_>, total: &Total) -> Resources {
    let mut found = RESOURCES;
    let within = |field: &Field<'_>, fits: bool, most: &str| {
        if !fits {
            field.fault(format!("is more than limits.total.{most} allows for all servers together"));
        }
    };
    if let Some(field) = r.get("memory") {
        set(&mut found.memory, field.parse(memory));
        within(&field, found.memory <= total.memory, "memory");
    }
    if let Some(field) = r.get("cpus") {
        set(&mut found.cpus, field.number(LEAST_CPUS, 4096.0));
        within(&field, found.cpus <= total.cpus, "cpus");
    }
    set(&mut found.pids, r.get("pids").and_then(|f| f.integer(1, 4_194_304)));
    // A small total also holds for servers that rely on the defaults.
    found.memory = found.memory.min(total.memory);
    found.cpus = found.cpus.min(total.cpus);
    found
}

/// A numeric user; 0 would be root.
fn user(field: &Field<'_>) -> Option<u32> {
    const MOST: i64 = i32::MAX as i64;
    if field.node().value.kind() != "a string" {
        return field.integer(1, MOST);
    }
    field.parse(|text| {
        let digits = text.chars().all(|c| c.is_ascii_digit());
        let uid = text.parse().ok().filter(|uid| digits && (1..=MOST as u32).contains(uid));
        uid.ok_or_else(|| format!("must be a number from 1 to {MOST}, not {}", quoted(text)))
    })
}

fn mount(field: &Field<'_>, guard: &Guard) -> Option<Mount> {
    let mut table = field.table()?;
    let host = table.get("host");
    let at = table.get("at");
    let write = table.get("write");
    for (key, given) in [("host", &host), ("at", &at)] {
        if given.is_none() {
            field.fault(format!("needs {key:?}"));
        }
    }
    table.finish();
    let host = host.and_then(|f| f.parse(|path| guard.vet(path)));
    let at = at.and_then(|f| f.parse(target));
    let writes = write.as_ref().map_or(Some(false), Field::boolean)?;
    let (host, at) = (host?, at?);
    if let Some((field, why)) = write.as_ref().filter(|_| writes).zip(guard.vet_writing(&host).err()) {
        field.fault(why);
        return None;
    }
    Some(Mount { within: within(&host), host, at, write: writes })
}
