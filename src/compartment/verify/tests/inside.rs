//! One thing in the probe's report that is not as asked makes just its control not hold.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::view::UNSEEN;
use super::*;

type Flip = (&'static str, &'static str, Box<dyn Fn(Case) -> Case>);

/// What it is, the control that is not to hold, and how.
fn flips() -> Vec<Flip> {
    let mut all: Vec<Flip> = Vec::new();
    let mut status = |control, from: &'static str, to: &'static str| {
        all.push((to, control, Box::new(move |case| case.reworded("status", from, to))));
    };
    status("capabilities", "CapEff:\t0000000000000000", "CapEff:\t0000000000000001");
    status("capabilities", "CapBnd:\t0000000000000000", "CapBnd:\t000001ffffffffff");
    status("capabilities", "CapPrm:\t0000000000000000", "CapPrm:\t0000000000002000");
    status("capabilities", "CapInh:\t0000000000000000", "CapInh:\t0000000000002000");
    status("capabilities", "CapAmb:\t0000000000000000", "CapAmb:\t0000000000002000");
    status("capabilities", "CapBnd:\t0000000000000000", "CapBnd:\t");
    status("privilege escalation", "NoNewPrivs:\t1", "NoNewPrivs:\t0");
    status("seccomp", "Seccomp:\t2", "Seccomp:\t0");
    status("seccomp", "Seccomp:\t2", "Seccomp:\t1");
    status("user", "Uid:\t20001\t20001\t20001\t20001", "Uid:\t20001\t0\t20001\t20001");
    status("user", "Uid:\t20001\t20001\t20001\t20001", "Uid:\t20001\t20001\t20001\t0");
    status("user", "Gid:\t20001\t20001\t20001\t20001", "Gid:\t0\t0\t0\t0");
    status("user", "Groups:\t20001 ", "Groups:\t20001 999 ");
    status("processors", "Cpus_allowed_list:\t1", "Cpus_allowed_list:\t0-1");
    status("processors", "Cpus_allowed_list:\t1", "Cpus_allowed_list:\t");
    status("init", "PPid:\t1", "PPid:\t0");
    let mut limits = |control, from: &'static str, to: &'static str| {
        all.push((to, control, Box::new(move |case| case.reworded("limits", from, to))));
    };
    limits("open files", "1024                 1024 ", "1024                 1048576 ");
    limits("open files", "1024                 1024 ", "1048576 1048576 ");
    limits("core dumps", "Max core file size        0                    0", "Max core file size        0   unlimited");
    let mut groups = |control, file: &'static str, to: &'static str| {
        all.push((
            to,
            control,
            Box::new(move |mut case| {
                let files = case.inside["cgroup_files"].as_object_mut().unwrap();
                let text = files.iter_mut().find(|(path, _)| path.ends_with(&format!("/{file}"))).unwrap().1;
                *text = to.into();
                case
            }),
        ));
    };
    groups("memory", "memory.limit_in_bytes", "9223372036854771712\n");
    groups("memory", "memory.limit_in_bytes", "1073741825\n");
    groups("memory", "memory.limit_in_bytes", "0\n");
    groups("memory", "memory.limit_in_bytes", "-1\n");
    groups("swap", "memory.memsw.limit_in_bytes", "2147483648\n");
    groups("swap", "memory.memsw.limit_in_bytes", "max\n");
    groups("cpu", "cpu.cfs_quota_us", "-1\n");
    groups("cpu", "cpu.cfs_quota_us", "50000\n");
    groups("cpu", "cpu.cfs_period_us", "0\n");
    groups("pids", "pids.max", "max\n");
    groups("pids", "pids.max", "65\n");
    groups("devices", "devices.list", "a *:* rwm\n");
    groups("devices", "devices.list", "c 1:3 rwm\nb 254:0 rwm\n");
    groups("devices", "devices.list", "c 1:1 r\n");
    let mut other = |control, what: &'static str, how: fn(Case) -> Case| all.push((what, control, Box::new(how)));
    other("apparmor", "AppArmor that complains only", |_| {
        Case::on_v2().inside("apparmor", "docker-default (complain)")
    });
    other("root file system", "a writable root", |c| c.remounted("/", "ro,relatime", "rw,relatime"));
    other("tmpfs", "a larger /tmp", |c| c.remounted("/tmp", "size=65536k", "size=6553600k"));
    other("tmpfs", "no limit on /tmp", |c| c.remounted("/tmp", ",size=65536k", ""));
    other("tmpfs", "programs in /tmp", |c| c.remounted("/tmp", "noexec,", ""));
    other("tmpfs", "devices in /run", |c| c.remounted("/run", "nodev,", ""));
    other("tmpfs", "no /run", |c| c.unmounted("/run"));
    other("tmpfs", "a disk at /tmp", |c| c.remounted("/tmp", "- tmpfs", "- ext4"));
    other("tmpfs", "another's home", |c| c.remounted("/home/mcp", "uid=20001", "uid=1000"));
    other("tmpfs", "an open home", |c| c.remounted("/home/mcp", "mode=700,", ""));
    other("tmpfs", "a large /dev/shm", |c| c.remounted("/dev/shm", "size=65536k", "size=6553600k"));
    other("mounts", "one mount more", |c| c.mounted("1 2 254:0 /etc /x ro - ext4 /dev/vda rw"));
    other("mounts", "a mount that is not there", |c| c.unmounted("/notes"));
    other("mounts", "a writable mount", |c| c.remounted("/notes", "ro,relatime", "rw,relatime"));
    other("kernel files", "keys that are seen", |c| c.unmounted("/proc/keys"));
    other("kernel files", "/proc/sys as it is", |c| c.unmounted("/proc/sys"));
    other("kernel files", "one that no engine forgets", |c| c.inside("kernel_files", json!(["/proc/keys"])));
    other("kernel files", "one that is here and in the open", |mut c| {
        c.inside["kernel_files"].as_array_mut().unwrap().push("/proc/kcore".into());
        c
    });
    other("network", "no interface at all", |c| c.inside("net_dev", ""));
    other("network", "a list of interfaces that is none", |c| c.inside("net_dev", "Inter-|\n face |\n"));
    other("network", "a list of routes that is none", |c| c.inside("route", ""));
    other("network", "an interface", |c| c.reworded("net_dev", "    lo:", "  eth0: 0\n    lo:"));
    other("network", "a tunnel that is used", |c| c.reworded("net_dev", "    lo:", " tunl0: 1 0\n    lo:"));
    other("network", "a route", |c| {
        let text = format!("{}eth0 00000000 010011AC 0003\n", c.inside["route"].as_str().unwrap());
        c.inside("route", text)
    });
    other("network", "a route of the newer family", |c| c.inside("ipv6_route", "00 00 00 00 00 0 0 0 0     eth0\n"));
    other("environment", "a variable more", |mut c| {
        c.inside["env"].as_array_mut().unwrap().push("AWS_SECRET".into());
        c
    });
    other("environment", "a variable less", |mut c| {
        c.inside["env"].as_array_mut().unwrap().pop();
        c
    });
    other("namespaces", "the host's processes", |c| namespace(c, "pid", "pid:[4026531836]"));
    other("namespaces", "the host's shared memory", |c| namespace(c, "ipc", "ipc:[4026531839]"));
    other("namespaces", "the host's name", |c| namespace(c, "uts", "uts:[4026531838]"));
    other("namespaces", "the host's control groups", |c| namespace(c, "cgroup", "cgroup:[4026531835]"));
    other("namespaces", "another word", |c| namespace(c, "ipc", "pid:[1]"));
    other("devices", "a disk", |c| device(c, "b 254:0 /dev/vda"));
    other("devices", "the host's memory", |c| device(c, "c 1:1 /dev/mem"));
    other("devices", "the kernel's log", |c| device(c, "c 1:11 /dev/kmsg"));
    other("devices", "a place that cannot be looked into", |c| device(c, "? /dev/deep"));
    other("hostname", "the host's name", |c| c.inside("hostname", "vm"));
    other("init", "the probe as the first process", |c| c.reworded("init", "Name:\tdocker-init", "Name:\tprobe"));
    all
}

fn namespace(mut case: Case, name: &str, to: &str) -> Case {
    case.inside["namespaces"][name] = to.into();
    case
}

fn device(mut case: Case, device: &str) -> Case {
    case.inside["devices"].as_array_mut().unwrap().push(device.into());
    case
}

#[test]
fn each_flip_breaks_its_control_and_no_other() {
    for (what, control, flip) in flips() {
        let case = flip(Case::captured());
        assert_eq!(case.broken(), [control], "{what:?}: {:#?}", case.control(control));
        assert_ne!(case.control(control).inside, Case::captured().control(control).inside, "{what:?} is not shown");
    }
}

#[test]
fn every_control_that_can_be_seen_from_inside_has_a_flip() {
    let flipped: BTreeSet<&str> = flips().into_iter().map(|(_, control, _)| control).collect();
    let controls = Case::captured().evidence().controls;
    let seen: BTreeSet<&str> = controls.iter().filter(|c| c.inside != UNSEEN).map(|c| c.control).collect();
    assert_eq!(flipped, seen);
}

#[test]
fn what_cannot_be_read_does_not_hold() {
    for (member, controls) in [
        ("status", vec!["capabilities", "privilege escalation", "seccomp", "user", "processors", "init"]),
        ("mountinfo", vec!["root file system", "tmpfs", "mounts", "kernel files"]),
        ("net_dev", vec!["network"]),
        ("route", vec!["network"]),
        ("limits", vec!["open files", "core dumps"]),
        ("hostname", vec!["hostname"]),
        ("init", vec!["init"]),
        ("kernel_files", vec!["kernel files"]),
        ("devices", vec!["devices"]),
    ] {
        assert_eq!(Case::captured().inside(member, Value::Null).broken(), controls, "{member}");
    }
    let of = |member: &str, empty: Value| Case::captured().inside(member, empty).broken();
    assert_eq!(of("cgroup_files", json!({})), ["memory", "swap", "cpu", "pids"]);
    assert_eq!(of("namespaces", json!({})), ["namespaces"]);
    assert_eq!(of("env", json!([])), ["environment"]);
    assert_eq!(Case::on_v2().inside("apparmor", Value::Null).broken(), ["apparmor"]);
}

#[test]
fn a_kernel_without_the_newer_family_of_addresses_has_no_routes_of_it() {
    assert_eq!(Case::captured().inside("ipv6_route", Value::Null).broken(), NONE);
}

#[test]
fn a_share_of_a_processor_is_at_most_a_hundredth_more_and_never_a_whole_one() {
    let of = |asked: f64, quota: i64| {
        let mut case = Case::captured().engine("/HostConfig/NanoCpus", (asked * 1e9).round() as i64);
        case.asked.server.resources.cpus = asked;
        case.inside["cgroup_files"]["/sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = format!("{quota}\n").into();
        case.broken().is_empty()
    };
    assert!(of(0.01, 1000) && of(0.5, 50_000) && of(2.0, 200_000) && of(0.07, 7000) && of(0.29, 29_000));
    // As an engine has it that rounds up to a hundredth.
    assert!(of(0.123, 13_000) && of(0.123, 12_300));
    for (asked, quota) in
        [(0.01, 1100), (0.01, 1990), (0.5, 51_000), (0.123, 13_100), (1.0, 100_500), (1.0, -1), (1.0, 0)]
    {
        assert!(!of(asked, quota), "{asked} {quota}");
    }
}

#[test]
fn tunnels_that_the_kernel_puts_everywhere_lead_nowhere() {
    let case = Case::captured().reworded("net_dev", "    lo:", " tunl0: 0 0 0\nip6tnl0: 0 0 0\n    lo:");
    assert_eq!(case.broken(), NONE);
    assert_eq!(case.control("network").inside, "tunl0,ip6tnl0,lo, 0 routes out");
}

#[test]
fn a_report_cut_in_the_middle_does_not_hold() {
    let text = Case::captured().inside["mountinfo"].as_str().unwrap().to_owned();
    let cut = text[..text.find("/sys/firmware").unwrap()].to_owned();
    let broken = Case::captured().inside("mountinfo", cut).broken();
    assert_eq!(broken, ["root file system", "tmpfs", "mounts", "kernel files"]);
}

#[test]
fn a_report_that_says_nothing_proves_nothing_that_is_to_be_seen() {
    let mut case = Case::captured();
    case.inside = json!({ "bulkhead_probe": 1, "nonce": "n", "cgroup_files": {}, "env": [] });
    let seen = Case::captured().evidence().controls.into_iter().filter(|c| c.inside != UNSEEN);
    // On this engine there is no AppArmor to see.
    let seen: Vec<&str> = seen.map(|c| c.control).filter(|name| *name != "apparmor").collect();
    assert_eq!(case.broken(), seen);
}

#[test]
fn memory_is_counted_in_pages_and_processors_in_steps() {
    let with = |memory: u64, cpus: f64, files: Value| {
        let mut case = Case::captured().inside("cgroup_files", files);
        case.asked.server.resources.memory = memory;
        case.asked.server.resources.cpus = cpus;
        case.engine("/HostConfig/Memory", memory)
            .engine("/HostConfig/MemorySwap", memory)
            .engine("/HostConfig/NanoCpus", (cpus * 1e9) as u64)
            .broken()
    };
    let files = |memory: &str, cpu: &str| json!({ "/m/memory.max": memory, "/m/memory.swap.max": "0", "/m/pids.max": "64", "/m/cpu.max": cpu });
    assert_eq!(with(500_000_000, 0.333, files("499998720", "33300 100000")), NONE);
    assert_eq!(with(500_000_000, 0.333, files("499998720", "34000 100000")), NONE);
    assert_eq!(with(500_000_000, 0.333, files("499998720", "36000 100000")), ["cpu"]);
    assert_eq!(with(500_000_000, 0.333, files("499998720", "30000 100000")), ["cpu"]);
    assert_eq!(with(500_000_000, 0.333, files("499998720", "max 100000")), ["cpu"]);
    assert_eq!(with(500_000_000, 0.333, files("499000000", "33300 100000")), ["memory"]);
    assert_eq!(with(500_000_000, 0.333, files("max", "33300 100000")), ["memory"]);
}
