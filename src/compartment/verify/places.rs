//! The controls on the file systems that every compartment has: its root, those in memory, and the kernel's own. Pure.

use std::collections::BTreeSet;

use super::super::report::MountLine;
use super::super::spec::SHM;
use super::Control;
use super::view::{View, as_asked, control, or_unread};

/// Where shared memory is.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// What every engine hides; it may hide more.
const HIDDEN: [&str; 8] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/firmware",
];
/// What every engine makes read-only.
const PROTECTED: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// One of these that is there on every kernel: a list without it is no list.
const ALWAYS: &str = "/proc/sys";

pub(super) fn root(v: &View<'_>) -> Control {
    let writable = v.asked.server.writable_root;
    let asked = if writable { "writable" } else { "read-only" };
    let engine = v.host.readonly_rootfs;
    // Where one file system lies over another, it cannot be said from here which of them is seen: so there is none.
    let inside = v.mount("/").map(MountLine::writable);
    let word = |writable: Option<bool>| or_unread(writable.map(|w| if w { "writable" } else { "read-only" }));
    // A root that is less writable than asked is no harm; one that is more is.
    let holds = engine == Some(!writable) && inside.is_some_and(|seen| !seen || writable);
    control("root file system", asked, word(engine.map(|read_only| !read_only)), word(inside), holds)
}

/// A file system in memory as it is asked for.
struct Memory<'a> {
    at: &'a str,
    size: u64,
    options: &'a str,
}

fn in_memory<'a>(v: &View<'a>) -> Vec<Memory<'a>> {
    let shared = Memory { at: SHARED_MEMORY, size: SHM, options: "nosuid,nodev,noexec,mode=1777" };
    let asked = v.asked.tmpfs.iter().map(|t| Memory { at: t.at, size: t.size, options: &t.options });
    asked.chain([shared]).collect()
}

/// Whether a place is one of the file systems in memory.
pub(super) fn is_in_memory(v: &View<'_>, at: &str) -> bool {
    at == SHARED_MEMORY || v.asked.tmpfs.iter().any(|t| t.at == at)
}

pub(super) fn tmpfs(v: &View<'_>) -> Control {
    let all = in_memory(v);
    let asked: Vec<String> = all.iter().map(|t| format!("{} {}m", t.at, t.size >> 20)).collect();
    let set = v.host.tmpfs.clone().unwrap_or_default();
    let of_engine = v.asked.tmpfs.iter();
    let same = set.len() == v.asked.tmpfs.len()
        && of_engine.clone().all(|t| set.get(t.at).is_some_and(|o| *o == format!("{},size={}", t.options, t.size)))
        && v.host.shm_size == i64::try_from(SHM).ok();
    let told: BTreeSet<String> = set.iter().map(|(at, options)| format!("{at} {options}")).collect();
    let told = told.into_iter().chain([format!("{SHARED_MEMORY} {}", v.host.shm_size.unwrap_or_default())]);
    let wrong: Vec<&str> = all.iter().filter(|t| !v.mount(t.at).is_some_and(|m| t.is(m))).map(|t| t.at).collect();
    let engine = as_asked(same, || told.collect::<Vec<_>>().join("; "));
    let inside = as_asked(wrong.is_empty(), || format!("not as asked: {}", wrong.join(" ")));
    control("tmpfs", &asked.join(", "), engine, inside, same && wrong.is_empty())
}

impl Memory<'_> {
    fn is(&self, m: &MountLine) -> bool {
        let inner = |prefix: &str| m.inner.iter().find_map(|o| o.strip_prefix(prefix));
        let set = |option: &str| match option.split_once('=') {
            // The kernel shows a mode only where it is not the usual one, and without the leading zero.
            Some(("mode", mode)) => inner("mode=").unwrap_or("1777") == mode.trim_start_matches('0'),
            Some((name, value)) => inner(&format!("{name}=")) == Some(value),
            None => option == "rw" || m.options.iter().any(|o| o == option),
        };
        let size = format!("{}k", self.size >> 10);
        m.kind == "tmpfs" && m.root == "/" && inner("size=") == Some(size.as_str()) && self.options.split(',').all(set)
    }
}

/// Files of the kernel that tell of the host, or change it: hidden, or read-only.
pub(super) fn kernel_files(v: &View<'_>) -> Control {
    let lacks = |list: &Option<Vec<String>>, path: &str| !list.iter().flatten().any(|listed| listed == path);
    let bare = HIDDEN.iter().filter(|path| lacks(&v.host.masked_paths, path));
    let open = PROTECTED.iter().filter(|path| lacks(&v.host.readonly_paths, path));
    let missing: Vec<&str> = bare.chain(open).copied().collect();
    let here = v.inside.kernel_files.as_ref().filter(|all| all.iter().any(|path| path == ALWAYS));
    let loose = here.map(|all| all.iter().map(String::as_str).filter(|path| is_loose(v, path)).collect::<Vec<_>>());
    let word = |loose: &[&str]| match loose {
        [] => "hidden or read-only".to_owned(),
        loose => format!("not: {}", loose.join(" ")),
    };
    let holds = missing.is_empty() && loose.as_ref().is_some_and(Vec::is_empty);
    let inside = loose.as_deref().map_or_else(|| or_unread(None), word);
    control("kernel files", "hidden or read-only", word(&missing), inside, holds)
}

/// Whether a file of the kernel that is here is to be hidden or read-only, and is not.
fn is_loose(v: &View<'_>, path: &str) -> bool {
    match v.mount(path) {
        Some(m) => !is_kernels(v, m),
        None => is_to_be_hidden(v, path) || is_to_be_protected(v, path),
    }
}

fn is_to_be_hidden(v: &View<'_>, path: &str) -> bool {
    HIDDEN.contains(&path) || v.host.masked_paths.iter().flatten().any(|listed| listed == path)
}

fn is_to_be_protected(v: &View<'_>, path: &str) -> bool {
    PROTECTED.contains(&path) || v.host.readonly_paths.iter().flatten().any(|listed| listed == path)
}

/// Whether a mount hides or protects one of the kernel's files that is to be so, and does nothing else.
pub(super) fn is_kernels(v: &View<'_>, m: &MountLine) -> bool {
    let of_kernel = m.at.starts_with("/proc/") || m.at.starts_with("/sys/");
    of_kernel && (is_to_be_hidden(v, &m.at) && is_hidden(v, m) || is_to_be_protected(v, &m.at) && is_protected(m))
}

/// Whether a mount puts something empty over a place: a file system in memory that nobody can write to, or the null
/// device of the container's own `/dev`.
fn is_hidden(v: &View<'_>, m: &MountLine) -> bool {
    let nothing = m.root == "/" && m.kind == "tmpfs" && !m.writable();
    let null = m.root == "/null" && v.mount("/dev").is_some_and(|dev| dev.kind == m.kind && dev.device == m.device);
    nothing || null
}

/// Whether a mount is a part of `/proc` over itself, read-only.
fn is_protected(m: &MountLine) -> bool {
    m.kind == "proc" && m.at.strip_prefix("/proc") == Some(m.root.as_str()) && !m.writable()
}
