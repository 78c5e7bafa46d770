//! The controls on what a server may use up. Pure.

use super::super::spec::{NOFILE, nano};
use super::Control;
use super::view::{View, control, or_unread, shown};

/// The kernel counts memory in pages, at most this large, and rounds a limit down to them.
const PAGE: u64 = 64 << 10;

pub(super) fn memory(v: &View<'_>) -> Control {
    let asked = v.asked.server.resources.memory;
    let inside = v.inside.cgroup("memory.limit_in_bytes").or(v.inside.cgroup("memory.max"));
    let holds = v.host.memory == i64::try_from(asked).ok() && inside.is_some_and(|text| is_limit(text, asked));
    control("memory", &asked.to_string(), shown(&v.host.memory), or_unread(inside), holds)
}

fn is_limit(text: &str, asked: u64) -> bool {
    text.parse().is_ok_and(|bytes: u64| bytes > 0 && bytes <= asked && asked - bytes < PAGE)
}

/// Swap equal to memory: no swap beyond it. The two versions of control groups count it differently.
pub(super) fn swap(v: &View<'_>) -> Control {
    let asked = v.asked.server.resources.memory;
    let v1 = v.inside.cgroup("memory.memsw.limit_in_bytes");
    let v2 = v.inside.cgroup("memory.swap.max");
    let inside = match (v1, v2) {
        (Some(both), _) => is_limit(both, asked),
        (None, Some(beyond)) => beyond == "0",
        (None, None) => false,
    };
    let holds = v.host.memory_swap == i64::try_from(asked).ok() && inside;
    control("swap", "no more than memory", shown(&v.host.memory_swap), or_unread(v1.or(v2)), holds)
}

pub(super) fn cpu(v: &View<'_>) -> Control {
    let asked = v.asked.server.resources.cpus;
    let v1 = v.inside.cgroup("cpu.cfs_quota_us").zip(v.inside.cgroup("cpu.cfs_period_us"));
    let v2 = v.inside.cgroup("cpu.max").and_then(|text| text.split_once(' '));
    let share = v1.or(v2).and_then(|(quota, period)| Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?));
    // Some engines set it in whole hundredths, and round up. A share of a small one may not grow by more than that.
    let most = (asked * 100.0 - 1e-6).ceil() / 100.0;
    let near = share.is_some_and(|s| s > 0.0 && s >= asked - 0.0005 && s <= most + 1e-9);
    let inside = share.map_or_else(|| or_unread(None), |s| s.to_string());
    control("cpu", &asked.to_string(), shown(&v.host.nano_cpus), inside, v.host.nano_cpus == Some(nano(asked)) && near)
}

/// Which processors it runs on. An engine that cannot keep it to any is asked for none, and it runs on all.
pub(super) fn processors(v: &View<'_>) -> Control {
    let inside = v.inside.status("Cpus_allowed_list");
    let engine = v.host.cpuset_cpus.clone().unwrap_or_default();
    let told = if engine.is_empty() { "any".to_owned() } else { engine.clone() };
    let (asked, holds) = match &v.asked.seat {
        Some(seat) => (seat.list(), seat.is(&engine) && inside.is_some_and(|list| seat.is(list))),
        None => ("any".to_owned(), engine.is_empty() && inside.is_some()),
    };
    control("processors", &asked, told, or_unread(inside), holds)
}

pub(super) fn pids(v: &View<'_>) -> Control {
    let asked = v.asked.server.resources.pids;
    let inside = v.inside.cgroup("pids.max");
    let holds = v.host.pids_limit == Some(i64::from(asked)) && inside == Some(asked.to_string().as_str());
    control("pids", &asked.to_string(), shown(&v.host.pids_limit), or_unread(inside), holds)
}

pub(super) fn open_files(v: &View<'_>) -> Control {
    limit(v, "open files", "nofile", "Max open files", NOFILE)
}

pub(super) fn core_dumps(v: &View<'_>) -> Control {
    limit(v, "core dumps", "core", "Max core file size", 0)
}

fn limit(v: &View<'_>, name: &'static str, engine: &str, inside: &str, asked: i64) -> Control {
    let limits = v.host.ulimits.iter().flatten();
    let set: Vec<_> = limits.filter(|u| u.name.as_deref() == Some(engine)).map(|u| (u.soft, u.hard)).collect();
    let text = asked.to_string();
    let seen = v.inside.limit(inside);
    let holds = set == [(Some(asked), Some(asked))] && seen == Some((text.as_str(), text.as_str()));
    let told: Vec<String> = set.iter().map(|(soft, hard)| format!("{} {}", shown(soft), shown(hard))).collect();
    let engine = if set == [(Some(asked), Some(asked))] { text.clone() } else { format!("[{}]", told.join("; ")) };
    let inside = match seen {
        Some((soft, hard)) if soft == hard => hard.to_owned(),
        other => or_unread(other.map(|(soft, hard)| format!("{soft} {hard}")).as_deref()),
    };
    control(name, &text, engine, inside, holds)
}
