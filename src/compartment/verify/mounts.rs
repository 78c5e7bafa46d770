//! The control that nothing is mounted but what was asked for and what an engine mounts in every container. Pure.

use std::borrow::Cow;
use std::path::Path;

use bollard::models::{Mount, MountPoint, MountType};
use serde_json::Value;

use super::super::report::MountLine;
use super::Control;
use super::places::{is_in_memory, is_kernels};
use super::view::{View, control, or_unread};

/// What Docker Desktop puts before a path of its host, also on WSL.
const HOSTED: [&str; 2] = ["/host_mnt", "/run/desktop/mnt/host"];
/// Where engines put their own init.
const INITS: [&str; 4] = ["/sbin/docker-init", "/usr/sbin/docker-init", "/dev/init", "/run/podman-init"];
/// What an init is called where the engine has it from.
const INIT_NAMES: [&str; 3] = ["init", "tini", "catatonit"];
/// File systems that are windows on the kernel: never what a host directory is on.
const KERNELS: [&str; 13] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "mqueue",
    "cgroup",
    "cgroup2",
    "securityfs",
    "debugfs",
    "tracefs",
    "bpf",
    "configfs",
    "nsfs",
];

/// A place that was asked for.
struct Place<'a> {
    at: Cow<'a, str>,
    write: bool,
    from: From<'a>,
}

/// What is to be there.
enum From<'a> {
    /// A named volume.
    Volume(&'a str),
    /// A path of the host, and the same within its file system, if that is known.
    Host(String, Option<&'a Path>),
}

pub(super) fn mounts(v: &View<'_>) -> Control {
    let places = places(v);
    let asked = match places.len() {
        1 => "none".to_owned(),
        _ => places.iter().skip(1).map(|p| shown(&p.at, p.write)).collect::<Vec<_>>().join(", "),
    };
    let (engine, engine_holds) = reported(v, &places);
    let (inside, inside_holds) = seen(v, &places);
    control("mounts", &asked, engine, inside, engine_holds && inside_holds)
}

/// The probe's place first, then those that were asked for.
fn places<'a>(v: &'a View<'_>) -> Vec<Place<'a>> {
    let probe = Place { at: v.asked.probe_place().into(), write: false, from: From::Volume(v.probe) };
    let volumes =
        v.asked.volumes.iter().map(|v| Place { at: (&v.at).into(), write: true, from: From::Volume(&v.name) });
    let binds = v.asked.server.mounts.iter().map(|m| {
        let from = From::Host(m.host.to_string_lossy().into_owned(), m.within.as_deref());
        Place { at: (&m.at).into(), write: m.write, from }
    });
    [probe].into_iter().chain(volumes).chain(binds).collect()
}

fn shown(at: &str, write: bool) -> String {
    format!("{at} ({})", if write { "rw" } else { "ro" })
}

/// The engine tells it twice: the request as it took it, and the mounts that it made of it.
fn reported(v: &View<'_>, places: &[Place<'_>]) -> (String, bool) {
    let request = |mounts: &[Mount]| {
        let mut all: Vec<String> = mounts.iter().map(|m| bare(serde_json::to_value(m)).to_string()).collect();
        all.sort();
        all
    };
    let taken: Vec<Mount> = v.host.mounts.iter().flatten().map(|mount| unhosted(v, mount)).collect();
    let as_requested = request(&taken) == request(&v.asked.mounts(v.probe));
    let changed = (!as_requested).then(|| "not as requested".to_owned());
    let points = v.engine.mounts.as_deref().unwrap_or_default();
    let strange = points.iter().filter(|p| !places.iter().any(|place| place.is(v, p))).map(|p| {
        let source = p.source.as_deref().unwrap_or_default();
        format!(
            "not asked for: {} from {source:?}",
            shown(p.destination.as_deref().unwrap_or("?"), p.rw.unwrap_or(true))
        )
    });
    let missing = places.iter().filter(|place| points.iter().filter(|p| place.is(v, p)).count() != 1);
    let missing = missing.map(|place| format!("missing: {}", place.at));
    let raw = [("binds", &v.host.binds), ("volumes from", &v.host.volumes_from)];
    let raw = raw
        .into_iter()
        .filter_map(|(name, list)| list.as_ref().filter(|l| !l.is_empty()).map(|l| format!("{name} {l:?}")));
    let differences: Vec<String> = changed.into_iter().chain(strange).chain(missing).chain(raw).collect();
    match differences.is_empty() {
        true => ("as asked".to_owned(), true),
        false => (differences.join("; "), false),
    }
}

/// A request without what says nothing, for engines leave that out.
fn bare(value: Result<Value, serde_json::Error>) -> Value {
    match value.unwrap_or_default() {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, bare(Ok(value))));
            let members: serde_json::Map<_, _> = members.filter(|(_, value)| !value.is_null()).collect();
            if members.is_empty() { Value::Null } else { Value::Object(members) }
        }
        Value::Bool(false) => Value::Null,
        Value::String(text) if text.is_empty() => Value::Null,
        Value::Array(items) if items.is_empty() => Value::Null,
        other => other,
    }
}

impl Place<'_> {
    fn is(&self, v: &View<'_>, point: &MountPoint) -> bool {
        let alike = match &self.from {
            From::Volume(name) => {
                point.typ.as_deref() == Some("volume")
                    && point.name.as_deref() == Some(name)
                    && point.driver.as_deref() == Some("local")
            }
            From::Host(path, _) => {
                point.typ.as_deref() == Some("bind")
                    && matches!(point.propagation.as_deref(), Some("rprivate" | "private"))
                    && point.source.as_deref().is_some_and(|source| on_host(v, source) == path)
            }
        };
        alike && point.destination.as_deref() == Some(&*self.at) && point.rw == Some(self.write)
    }

    /// Whether that is what is seen there.
    fn is_seen(&self, m: &MountLine) -> bool {
        let source = match &self.from {
            // `…/NAME/_data`, wherever the engine keeps its volumes.
            From::Volume(name) => m.root.ends_with(&format!("/{name}/_data")),
            From::Host(path, within) => !KERNELS.contains(&m.kind.as_str()) && is_at(Path::new(path), *within, &m.root),
        };
        m.at == self.at && (self.write || !m.writable()) && source
    }
}

/// Whether a place within a file system is that path of the host. Links are followed once more when a container starts, and
/// somebody may have put one there since the path was looked at.
///
/// Where the engine's machine is this one, it is known what to see. Where not, the file system is mounted somewhere above,
/// or is a part of a larger one: one of the two ends with the other.
fn is_at(path: &Path, within: Option<&Path>, root: &str) -> bool {
    let root = Path::new(root);
    let tail = |path: &Path| path.strip_prefix("/").map(Path::to_owned).unwrap_or_default();
    let (short, long) = (tail(root), tail(path));
    let (named, held) = (!short.as_os_str().is_empty(), !long.as_os_str().is_empty());
    within == Some(root) || within.is_none() && !named || named && path.ends_with(short) || held && root.ends_with(long)
}

/// The path of the host behind one that the engine tells.
fn on_host<'a>(v: &View<'_>, source: &'a str) -> &'a str {
    let hosted = HOSTED.iter().find_map(|hosted| source.strip_prefix(hosted).filter(|path| path.starts_with('/')));
    hosted.filter(|_| v.defaults.desktop).unwrap_or(source)
}

fn unhosted(v: &View<'_>, mount: &Mount) -> Mount {
    let source = mount.source.as_deref().map(|source| on_host(v, source).to_owned());
    let source = if mount.typ == Some(MountType::BIND) { source } else { mount.source.clone() };
    Mount { source, ..mount.clone() }
}

/// Everything that is mounted is one of the engine's own places or one that was asked for, once, and not more writable.
fn seen(v: &View<'_>, places: &[Place<'_>]) -> (String, bool) {
    let Some(mounts) = &v.mounts else { return (or_unread(None), false) };
    let others = mounts.iter().filter(|m| m.at != "/" && !is_in_memory(v, &m.at));
    let strange = others.filter(|m| {
        let once = v.mount(&m.at).is_some();
        !once || !(places.iter().any(|p| p.is_seen(m)) || is_engines(v, m))
    });
    let strange: Vec<String> = strange.map(|m| shown(&m.at, m.writable())).collect();
    let missing: Vec<&str> = places.iter().filter(|p| !mounts.iter().any(|m| p.is_seen(m))).map(|p| &*p.at).collect();
    match (strange.is_empty(), missing.is_empty()) {
        (true, true) => ("as asked, nothing else".to_owned(), true),
        (false, _) => (format!("not asked for: {}", strange.join(", ")), false),
        (true, false) => (format!("missing: {}", missing.join(", ")), false),
    }
}

/// The mounts that an engine makes in every container.
fn is_engines(v: &View<'_>, m: &MountLine) -> bool {
    let whole = |kind: &str| m.root == "/" && m.kind == kind;
    let strict = || ["nosuid", "nodev", "noexec"].iter().all(|o| m.options.iter().any(|set| set == o));
    let read_only = || m.options.iter().any(|o| o == "ro");
    let file = m.root.rsplit('/').next().unwrap_or_default();
    match m.at.as_str() {
        "/proc" => whole("proc"),
        "/dev" => whole("tmpfs") && m.has("nosuid"),
        "/dev/pts" => whole("devpts") && m.has("noexec"),
        "/dev/mqueue" => whole("mqueue") && strict(),
        "/sys" => whole("sysfs") && read_only(),
        // The first version of control groups has a file system in memory with one mount a controller; the second has
        // one tree. Its top is writable in the first, for the host's root alone; its files are what limits, and never are.
        "/sys/fs/cgroup" => whole("tmpfs") && strict() || whole("cgroup2") && read_only(),
        "/sys/fs/cgroup/unified" => whole("cgroup2") && read_only(),
        "/etc/resolv.conf" | "/etc/hostname" | "/etc/hosts" => {
            is_of_its_network(v, &m.root)
                && Some(file) == m.at.strip_prefix("/etc/")
                && (v.asked.server.writable_root || !m.writable())
        }
        at if INITS.contains(&at) => read_only() && INIT_NAMES.iter().any(|name| file.contains(name)),
        _ if is_kernels(v, m) => true,
        at => at.strip_prefix("/sys/fs/cgroup/").is_some_and(|c| !c.contains('/')) && whole("cgroup") && read_only(),
    }
}

/// Whether a path is below one that an engine keeps for the container of this very id, or for the one whose network it
/// has: the files that tell of a network go with it.
fn is_of_its_network(v: &View<'_>, root: &str) -> bool {
    let own = v.engine.id.as_deref().filter(|id| !id.is_empty());
    let id = v.asked.host_of_network().map(|(container, _)| container).or(own);
    id.is_some_and(|id| root.split('/').any(|part| part == id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_path_is_what_its_file_system_or_the_machine_names_it() {
        let path = Path::new("/home/me/notes");
        for (within, root, holds) in [
            (Some("/home/me/notes"), "/home/me/notes", true),
            (Some("/@home/me/notes"), "/@home/me/notes", true),
            // An engine elsewhere, with the same path on a file system of its own, or in a part of one.
            (Some("/@home/me/notes"), "/me/notes", true),
            (None, "/me/notes", true),
            (None, "/data/home/me/notes", true),
            (None, "/", true),
            (Some("/home/me/notes"), "/", false),
            (Some("/home/me/notes"), "/home/me/.ssh", false),
            (Some("/home/me/notes"), "/other/notes", false),
            (None, "/other/notes", false),
            (None, "/home/me", false),
        ] {
            assert_eq!(is_at(path, within.map(Path::new), root), holds, "{within:?} {root}");
        }
    }
}
