//! One thing in the engine's report that is not as asked makes just its control not hold.

use std::collections::BTreeSet;

use serde_json::json;

use crate::compartment::testing::{GUARD, NAMESPACE};

use super::*;

/// Where, what it would be, and the control that is not to hold.
fn flips() -> Vec<(&'static str, Value, &'static str)> {
    let mount = |at: &str, source: &str| json!({ "Type": "bind", "Source": source, "Target": at });
    let with = |list: &str, more: Value| {
        let mut all = Case::captured().engine.pointer(list).unwrap().as_array().unwrap().clone();
        all.push(more);
        Value::Array(all)
    };
    let env = |from: &str, to: &str| {
        let text = Case::captured().engine["Config"]["Env"].to_string();
        assert!(text.contains(from), "{text}");
        serde_json::from_str::<Value>(&text.replace(from, to)).unwrap()
    };
    vec![
        ("/HostConfig/CapDrop", json!([]), "capabilities"),
        ("/HostConfig/CapDrop", json!(["NET_RAW"]), "capabilities"),
        ("/HostConfig/CapAdd", json!(["SYS_ADMIN"]), "capabilities"),
        ("/HostConfig/SecurityOpt", json!([]), "privilege escalation"),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges=false"]), "privilege escalation"),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "no-new-privileges:false"]), "privilege escalation"),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "seccomp=unconfined"]), "seccomp"),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "seccomp:unconfined"]), "seccomp"),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "seccomp={\"defaultAction\":\"ALLOW\"}"]), "seccomp"),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "apparmor=unconfined"]), "apparmor"),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "label=disable"]), "other settings"),
        ("/AppArmorProfile", json!("unconfined"), "apparmor"),
        ("/HostConfig/Privileged", json!(true), "privileged"),
        ("/HostConfig/UsernsMode", json!("host"), "privileged"),
        ("/Config/User", json!(""), "user"),
        ("/Config/User", json!("20001"), "user"),
        ("/Config/User", json!("root"), "user"),
        ("/HostConfig/GroupAdd", json!(["docker"]), "user"),
        ("/HostConfig/ReadonlyRootfs", json!(false), "root file system"),
        ("/HostConfig/Tmpfs", json!({}), "tmpfs"),
        ("/HostConfig/Tmpfs/~1tmp", json!("rw,exec"), "tmpfs"),
        ("/HostConfig/ShmSize", json!(1u64 << 40), "tmpfs"),
        (
            "/Mounts",
            with("/Mounts", json!({ "Type": "bind", "Source": "/etc", "Destination": "/x", "RW": true })),
            "mounts",
        ),
        ("/Mounts/0/RW", json!(true), "mounts"),
        ("/Mounts/3/RW", json!(true), "mounts"),
        ("/Mounts/3/Source", json!("/srv/other"), "mounts"),
        ("/Mounts/3/Source", json!("/evil/srv/notes"), "mounts"),
        ("/Mounts/3/Source", json!("/host_mnt/evil/srv/notes"), "mounts"),
        ("/Mounts/3/Propagation", json!("rshared"), "mounts"),
        ("/Mounts/3/Type", json!("volume"), "mounts"),
        ("/Mounts/1/Name", json!("evil-bulkhead-state-my-notes-230c19ec3d9e"), "mounts"),
        ("/Mounts/1/Name", json!("bulkhead-state-my-notes-000000000000"), "mounts"),
        ("/Mounts/1/Driver", json!("nfs"), "mounts"),
        ("/HostConfig/Mounts/3/Source", json!("/host_mnt/srv/notes"), "mounts"),
        ("/HostConfig/Mounts/3/ReadOnly", json!(false), "mounts"),
        ("/HostConfig/Mounts/3/BindOptions/Propagation", json!("rshared"), "mounts"),
        ("/HostConfig/Mounts/0/VolumeOptions", json!({}), "mounts"),
        ("/HostConfig/Mounts", with("/HostConfig/Mounts", mount("/host", "/")), "mounts"),
        ("/HostConfig/Binds", json!(["/:/host"]), "mounts"),
        ("/HostConfig/VolumesFrom", json!(["other"]), "mounts"),
        ("/HostConfig/MaskedPaths", json!([]), "kernel files"),
        ("/HostConfig/ReadonlyPaths", json!(["/proc/bus"]), "kernel files"),
        ("/HostConfig/Memory", json!(0), "memory"),
        ("/HostConfig/Memory", json!(1073741825), "memory"),
        ("/HostConfig/MemorySwap", json!(-1), "swap"),
        ("/HostConfig/NanoCpus", json!(0), "cpu"),
        ("/HostConfig/CpusetCpus", json!("0-1"), "processors"),
        ("/HostConfig/CpusetCpus", json!(""), "processors"),
        ("/HostConfig/PidsLimit", json!(-1), "pids"),
        ("/HostConfig/Ulimits/0/Hard", json!(1048576), "open files"),
        ("/HostConfig/Ulimits/0/Soft", json!(1048576), "open files"),
        ("/HostConfig/Ulimits/1/Hard", json!(-1), "core dumps"),
        ("/HostConfig/NetworkMode", json!("bridge"), "network"),
        ("/HostConfig/NetworkMode", json!("host"), "network"),
        ("/HostConfig/NetworkMode", json!("container:other"), "network"),
        ("/HostConfig/PortBindings", json!({ "80/tcp": [{ "HostPort": "80" }] }), "network"),
        ("/HostConfig/PublishAllPorts", json!(true), "network"),
        ("/NetworkSettings/Networks", json!({ "none": {}, "bridge": {} }), "network"),
        ("/Config/Env", with("/Config/Env", json!("LD_PRELOAD=/x.so")), "environment"),
        ("/Config/Env", env("TZ=UTC", "TZ=CET"), "environment"),
        ("/Config/Env", env("\"TZ=UTC\"", "\"TZ=UTC\",\"TZ=UTC\""), "environment"),
        ("/Config/Env", env("\"TZ=UTC\",", ""), "environment"),
        ("/HostConfig/PidMode", json!("host"), "namespaces"),
        ("/HostConfig/PidMode", json!("container:other"), "namespaces"),
        ("/HostConfig/UTSMode", json!("host"), "namespaces"),
        ("/HostConfig/IpcMode", json!("shareable"), "namespaces"),
        ("/HostConfig/IpcMode", json!("host"), "namespaces"),
        ("/HostConfig/CgroupnsMode", json!("host"), "namespaces"),
        ("/HostConfig/Devices", json!([{ "PathOnHost": "/dev/mem" }]), "devices"),
        ("/HostConfig/DeviceRequests", json!([{ "Driver": "nvidia", "Count": -1 }]), "devices"),
        ("/HostConfig/DeviceCgroupRules", json!(["a *:* rwm"]), "devices"),
        ("/Config/Hostname", json!("box"), "hostname"),
        ("/Config/Domainname", json!("example.org"), "hostname"),
        ("/HostConfig/Init", json!(false), "init"),
        ("/Image", json!("sha256:0123"), "program"),
        ("/Config/Entrypoint", json!(["/bin/sh"]), "program"),
        ("/Config/Cmd", json!(["--insecure"]), "program"),
        ("/Config/Healthcheck", json!({ "Test": ["CMD", "curl", "x"] }), "program"),
        ("/HostConfig/LogConfig/Type", json!("json-file"), "log driver"),
        ("/Config/StdinOnce", json!(false), "life"),
        ("/Config/OpenStdin", json!(false), "life"),
        ("/Config/Tty", json!(true), "life"),
        ("/HostConfig/AutoRemove", json!(false), "life"),
        ("/HostConfig/RestartPolicy/Name", json!("always"), "life"),
        ("/Config/Labels", json!({}), "labels"),
        ("/Config/Labels/org.bulkhead.server", json!("other"), "labels"),
        (
            "/HostConfig/Ulimits",
            with("/HostConfig/Ulimits", json!({ "Name": "nproc", "Soft": 9, "Hard": 9 })),
            "other settings",
        ),
        ("/HostConfig/OomScoreAdj", json!(-1000), "other settings"),
        ("/HostConfig/OomKillDisable", json!(true), "other settings"),
        ("/HostConfig/MemorySwappiness", json!(60), "other settings"),
        ("/HostConfig/CpuShares", json!(1 << 18), "other settings"),
        ("/HostConfig/CpuQuota", json!(-1), "other settings"),
        ("/HostConfig/CpusetMems", json!("0"), "other settings"),
        ("/HostConfig/CgroupParent", json!("/"), "other settings"),
        ("/HostConfig/Cgroup", json!("host"), "other settings"),
        ("/HostConfig/ExtraHosts", json!(["db:10.0.0.1"]), "other settings"),
        ("/HostConfig/Dns", json!(["10.0.0.1"]), "other settings"),
        ("/HostConfig/Links", json!(["other"]), "other settings"),
        ("/HostConfig/Runtime", json!("runsc-debug"), "other settings"),
        ("/HostConfig/Isolation", json!("process"), "other settings"),
        ("/HostConfig/VolumeDriver", json!("nfs"), "other settings"),
        ("/HostConfig/ConsoleSize", json!([24, 80]), "other settings"),
    ]
}

#[test]
fn each_flip_breaks_its_control_and_no_other() {
    for (pointer, value, control) in flips() {
        let case = Case::captured().engine(pointer, value.clone());
        assert_eq!(case.broken(), [control], "{pointer} {value}: {:#?}", case.control(control));
        let text = case.control(control).engine;
        assert_ne!(text, Case::captured().control(control).engine, "{pointer} {value} is not shown");
    }
}

#[test]
fn every_control_has_a_flip() {
    let flipped: BTreeSet<&str> = flips().into_iter().map(|(_, _, control)| control).collect();
    let controls: BTreeSet<&str> = Case::captured().evidence().controls.iter().map(|c| c.control).collect();
    assert_eq!(flipped, controls);
}

#[test]
fn settings_that_an_engine_may_add_do_not_pass_unseen() {
    for (pointer, value) in [
        ("/HostConfig/Sysctls", json!({ "kernel.shm_rmid_forced": "1" })),
        ("/HostConfig/StorageOpt", json!({ "size": "1G" })),
        ("/HostConfig/Annotations", json!({ "a": "b" })),
    ] {
        assert_eq!(Case::captured().with(pointer, value).broken(), ["other settings"], "{pointer}");
    }
}

#[test]
fn what_an_engine_does_not_report_does_not_hold() {
    for (pointer, control) in [
        ("/HostConfig/CapDrop", "capabilities"),
        ("/HostConfig/SecurityOpt", "privilege escalation"),
        ("/HostConfig/Privileged", "privileged"),
        ("/Config/User", "user"),
        ("/HostConfig/ReadonlyRootfs", "root file system"),
        ("/HostConfig/Tmpfs", "tmpfs"),
        ("/HostConfig/ShmSize", "tmpfs"),
        ("/Mounts", "mounts"),
        ("/HostConfig/Mounts", "mounts"),
        ("/HostConfig/ReadonlyPaths", "kernel files"),
        ("/HostConfig/Memory", "memory"),
        ("/HostConfig/MemorySwap", "swap"),
        ("/HostConfig/NanoCpus", "cpu"),
        ("/HostConfig/CpusetCpus", "processors"),
        ("/HostConfig/PidsLimit", "pids"),
        ("/HostConfig/NetworkMode", "network"),
        ("/Config/Env", "environment"),
        ("/HostConfig/IpcMode", "namespaces"),
        ("/HostConfig/CgroupnsMode", "namespaces"),
        ("/Config/Hostname", "hostname"),
        ("/HostConfig/Init", "init"),
        ("/Image", "program"),
        ("/Config/Entrypoint", "program"),
        ("/Config/Healthcheck", "program"),
        ("/HostConfig/LogConfig", "log driver"),
        ("/Config/StdinOnce", "life"),
        ("/Config/OpenStdin", "life"),
        ("/Config/Tty", "life"),
        ("/HostConfig/AutoRemove", "life"),
        ("/HostConfig/RestartPolicy", "life"),
        ("/Config/Labels", "labels"),
        ("/HostConfig/Runtime", "other settings"),
    ] {
        assert!(Case::captured().without(pointer).broken().contains(&control), "{pointer}");
    }
}

#[test]
fn an_engine_that_reports_nothing_proves_nothing() {
    let all = Case::captured().evidence().controls.len();
    for gone in ["/HostConfig", "/Config"] {
        assert_eq!(Case::captured().without(gone).broken().len(), all, "{gone}");
    }
    let mut nothing = Case::captured();
    nothing.engine = json!({});
    assert_eq!(nothing.broken().len(), all);
}

#[test]
fn lists_that_an_engine_leaves_out_are_empty() {
    let lists = ["CapAdd", "GroupAdd", "Binds", "VolumesFrom", "Devices", "DeviceRequests", "DeviceCgroupRules", "Dns"];
    for list in lists {
        assert_eq!(Case::captured().without(&format!("/HostConfig/{list}")).broken(), NONE, "{list}");
        assert_eq!(Case::captured().engine(&format!("/HostConfig/{list}"), json!([])).broken(), NONE, "{list}");
    }
}

#[test]
fn the_engines_own_defaults_are_held_against_what_they_are_to_be() {
    let with = |defaults: Defaults| Case { defaults, ..Case::captured() };
    let usual = Case::captured().defaults;
    for seccomp in [None, Some("unconfined"), Some("/etc/docker/loose.json"), Some("")] {
        let case = with(Defaults { seccomp: seccomp.map(str::to_owned), ..usual.clone() });
        assert_eq!(case.broken(), ["seccomp"], "{seccomp:?}");
    }
    assert_eq!(with(Defaults { seccomp: Some("builtin".into()), ..usual.clone() }).broken(), NONE);
    // An engine that has AppArmor and does not use it here.
    assert_eq!(with(Defaults { apparmor: true, ..usual.clone() }).broken(), ["apparmor"]);
    assert_eq!(with(Defaults { runtime: "crun".into(), ..usual }).broken(), ["other settings"]);
    for profile in ["", "unconfined", "other"] {
        assert_eq!(Case::on_v2().engine("/AppArmorProfile", profile).broken(), ["apparmor"], "{profile}");
    }
}

#[test]
fn only_docker_desktop_shows_host_paths_behind_a_prefix_of_its_own() {
    for source in ["/host_mnt/srv/notes", "/run/desktop/mnt/host/srv/notes"] {
        let mut case = Case::captured().engine("/Mounts/3/Source", source);
        assert_eq!(case.broken(), ["mounts"], "{source}");
        case.defaults.desktop = true;
        assert_eq!(case.broken(), NONE, "{source}");
        let case = case.engine("/HostConfig/Mounts/3/Source", source);
        assert_eq!(case.broken(), NONE, "{source}");
        assert_eq!(case.clone().engine("/Mounts/3/Source", "/host_mntsrv/notes").broken(), ["mounts"]);
        assert_eq!(case.engine("/Mounts/3/Source", "/host_mnt/evil/srv/notes").broken(), ["mounts"]);
    }
}

/// As captured, but that it may reach something and has its guard's network, with all that goes with that.
fn guarded() -> Case {
    let mut case = Case::captured();
    let lines = "image = \"notes\"\nhost_ports = [5432]";
    case.asked.way = planned(&server(lines)).way;
    case.engine["HostConfig"]["NetworkMode"] = format!("container:{GUARD}").into();
    case.engine["NetworkSettings"]["Networks"] = json!({});
    case.inside["namespaces"]["net"] = NAMESPACE.into();
    let own = case.engine["Id"].as_str().unwrap().to_owned();
    case.reworded("mountinfo", &own, GUARD)
}

#[test]
fn a_server_behind_its_guard_has_that_ones_network_and_no_other() {
    assert_eq!(guarded().broken(), [""; 0]);
    let control = guarded().control("network");
    assert_eq!(
        (control.asked.as_str(), control.engine.as_str()),
        ("none but through the guard 9a9a9a9a9a9a", &*control.asked)
    );
    let other = format!("container:{}", "8".repeat(64));
    for mode in ["none", "bridge", "host", "", &other, &other[..40], "container:9a9a9a9a9a9a"] {
        assert_eq!(guarded().engine("/HostConfig/NetworkMode", mode).broken(), ["network"], "{mode}");
    }
    let joined = guarded().engine("/NetworkSettings/Networks", json!({ "bridge": {} }));
    assert_eq!(joined.broken(), ["network"]);
    for namespace in [json!("net:[4026532999]"), json!(""), Value::Null] {
        let mut elsewhere = guarded();
        elsewhere.inside["namespaces"]["net"] = namespace.clone();
        assert_eq!(elsewhere.broken(), ["network"], "{namespace}");
    }
    // The files of another network would be those of another container.
    let own = Case::captured().engine["Id"].as_str().unwrap().to_owned();
    assert_eq!(guarded().reworded("mountinfo", GUARD, &own).broken(), ["mounts"]);
    assert_eq!(Case::captured().reworded("mountinfo", &own, GUARD).broken(), ["mounts"]);
}
