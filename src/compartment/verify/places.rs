//! The file system's controls: the root, the file systems in memory, and that nothing else is mounted. Pure.

use bollard::models::MountPoint;

use super::super::report::MountLine;
use super::super::spec::{PROBE, Tmpfs};
use super::Control;
use super::controls::{Readings, control, or_unread};

pub(super) fn root(r: &Readings<'_>) -> Control {
    let writable = r.asked.server.writable_root;
    let asked = if writable { "writable" } else { "read-only" };
    let engine = r.host.readonly_rootfs;
    let mounts = r.inside.mounts();
    let inside = mounts.as_ref().and_then(|all| all.iter().find(|m| m.at == "/")).map(MountLine::writable);
    let word = |writable: Option<bool>| or_unread(writable.map(|w| if w { "writable" } else { "read-only" }));
    // A root that is less writable than asked is no harm; one that is more is.
    let holds = engine == Some(!writable) && inside.is_some_and(|seen| !seen || writable);
    control("root file system", asked, word(engine.map(|read_only| !read_only)), word(inside), holds)
}

pub(super) fn tmpfs(r: &Readings<'_>) -> Control {
    let set = r.host.tmpfs.clone().unwrap_or_default();
    let mounts = r.inside.mounts().unwrap_or_default();
    let asked: Vec<String> = r.asked.tmpfs.iter().map(|t| format!("{} {}m", t.at, t.size >> 20)).collect();
    let engine: Vec<String> = set.iter().map(|(at, options)| format!("{at} {options}")).collect();
    let same_set = set.len() == r.asked.tmpfs.len()
        && r.asked.tmpfs.iter().all(|t| set.get(t.at).is_some_and(|o| *o == format!("{},size={}", t.options, t.size)));
    let wrong: Vec<&str> = r.asked.tmpfs.iter().filter(|t| !is_as_asked(t, &mounts)).map(|t| t.at).collect();
    let inside = if wrong.is_empty() { "as asked".to_owned() } else { format!("not as asked: {}", wrong.join(" ")) };
    let engine = if same_set { "as asked".to_owned() } else { engine.join("; ") };
    control("tmpfs", &asked.join(", "), engine, inside, same_set && wrong.is_empty())
}

fn is_as_asked(tmpfs: &Tmpfs, mounts: &[MountLine]) -> bool {
    let size = format!("size={}k", tmpfs.size >> 10);
    mounts.iter().filter(|m| m.at == tmpfs.at).count() == 1
        && mounts.iter().any(|m| {
            m.at == tmpfs.at
                && m.kind == "tmpfs"
                && m.has(&size)
                && ["nosuid", "nodev", "noexec"].iter().all(|o| m.options.iter().any(|set| set == o))
        })
}

/// A place that was asked for, and whether it may be written to.
struct Place<'a> {
    at: &'a str,
    write: bool,
    source: String,
    kind: &'static str,
}

pub(super) fn mounts(r: &Readings<'_>) -> Control {
    let places = places(r);
    let asked = match r.asked.server.mounts.len() + r.asked.volumes.len() {
        0 => "none".to_owned(),
        _ => places.iter().skip(1).map(|p| shown(p.at, p.write)).collect::<Vec<_>>().join(", "),
    };
    let points = r.engine.mounts.clone().unwrap_or_default();
    let strange: Vec<String> = points.iter().filter(|p| !places.iter().any(|place| place.is(p))).map(point).collect();
    let missing = places.iter().filter(|place| !points.iter().any(|p| place.is(p))).count();
    let raw = r.host.binds.as_ref().is_some_and(|b| !b.is_empty())
        || r.host.volumes_from.as_ref().is_some_and(|v| !v.is_empty());
    let engine_holds = strange.is_empty() && missing == 0 && !raw;
    let engine =
        if engine_holds { "as asked".to_owned() } else { format!("{} missing, strange: {strange:?}", missing) };
    let (inside, inside_holds) = seen(r, &places);
    control("mounts", &asked, engine, inside, engine_holds && inside_holds)
}

fn places<'a>(r: &'a Readings<'_>) -> Vec<Place<'a>> {
    let probe = Place { at: PROBE, write: false, source: r.probe.to_owned(), kind: "volume" };
    let volumes =
        r.asked.volumes.iter().map(|v| Place { at: &v.at, write: true, source: v.name.clone(), kind: "volume" });
    let binds = r.asked.server.mounts.iter().map(|m| Place {
        at: &m.at,
        write: m.write,
        source: m.host.to_string_lossy().into_owned(),
        kind: "bind",
    });
    [probe].into_iter().chain(volumes).chain(binds).collect()
}

impl Place<'_> {
    fn is(&self, point: &MountPoint) -> bool {
        let source = match self.kind {
            "volume" => &point.name,
            _ => &point.source,
        };
        point.typ.as_deref() == Some(self.kind)
            && point.destination.as_deref() == Some(self.at)
            && point.rw == Some(self.write)
            // An engine in a virtual machine may show a host path behind a prefix of its own.
            && source.as_deref().is_some_and(|s| s == self.source || s.ends_with(&self.source))
    }
}

fn shown(at: &str, write: bool) -> String {
    format!("{at} ({})", if write { "rw" } else { "ro" })
}

fn point(point: &MountPoint) -> String {
    shown(point.destination.as_deref().unwrap_or("?"), point.rw.unwrap_or(true))
}

/// Everything that is mounted is one of the engine's own places or one that was asked for, and not more writable.
fn seen(r: &Readings<'_>, places: &[Place<'_>]) -> (String, bool) {
    let Some(mounts) = r.inside.mounts() else { return (or_unread(None), false) };
    let is_tmpfs = |at: &str| r.asked.tmpfs.iter().any(|t| t.at == at);
    let strange: Vec<String> = mounts
        .iter()
        .filter(|m| m.at != "/" && !is_tmpfs(&m.at) && !is_engines(m))
        .filter(|m| !places.iter().any(|p| p.at == m.at && (p.write || !m.writable())))
        .map(|m| shown(&m.at, m.writable()))
        .collect();
    let missing: Vec<&str> = places.iter().filter(|p| !mounts.iter().any(|m| m.at == p.at)).map(|p| p.at).collect();
    match (strange.is_empty(), missing.is_empty()) {
        (true, true) => ("as asked, nothing else".to_owned(), true),
        (false, _) => (format!("not asked for: {}", strange.join(", ")), false),
        (true, false) => (format!("missing: {}", missing.join(", ")), false),
    }
}

/// The mounts that an engine makes in every container.
fn is_engines(m: &MountLine) -> bool {
    let below = |top: &str| m.at.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'));
    match m.at.as_str() {
        "/proc" => m.kind == "proc",
        "/dev" | "/dev/shm" => m.kind == "tmpfs",
        "/dev/pts" => m.kind == "devpts",
        "/dev/mqueue" => m.kind == "mqueue",
        "/sys" => m.kind == "sysfs" && !m.writable(),
        "/etc/resolv.conf" | "/etc/hostname" | "/etc/hosts" => true,
        "/sbin/docker-init" | "/usr/sbin/docker-init" | "/dev/init" | "/run/podman-init" => !m.writable(),
        // Parts of /proc that are read-only, or hidden behind an empty file system or the null device.
        _ if below("/proc") => (m.kind == "proc" && !m.writable()) || m.kind == "tmpfs",
        "/sys/fs/cgroup" => matches!(m.kind.as_str(), "tmpfs" | "cgroup2") && m.has("noexec"),
        _ if below("/sys/fs/cgroup") => m.kind == "cgroup" && !m.options.iter().any(|o| o == "rw"),
        _ if below("/sys") => m.kind == "tmpfs" && !m.writable(),
        _ => false,
    }
}
