//! Evidence from captured reports, and from what each of them would be if one thing were not as asked.

use bollard::models::ContainerInspectResponse;
use serde_json::Value;

use crate::compartment::testing::{PROBE_VOLUME, bind, owner, planned, server};
use crate::compartment::{Compartment, Owner};
use crate::config::Server;
use crate::error::Class;

use super::*;

mod attacks;
mod engine;
mod fenced;
mod inside;

const ENTRY: &str = r#"
image = "notes"
env = { TZ = "UTC" }
secrets = { API_KEY = "env:TOKEN" }
state = "/data"
cache = true
memory = "1g"
cpus = 0.25
pids = 64
user = 20001
"#;

/// One container: what was asked, what its engine reports, and what its probe saw.
#[derive(Clone)]
struct Case {
    asked: Compartment,
    defaults: Defaults,
    engine: Value,
    network: Option<Value>,
    inside: Value,
}

impl Case {
    /// As captured from Docker 20.10 on control groups of the first version.
    fn captured() -> Self {
        let mounts = vec![bind("/srv/notes", "/notes", false), bind("/srv/out", "/out", true)];
        let mut asked = planned(&Server { mounts, ..server(ENTRY) });
        asked.command = ["python3", "-u", "/srv/server.py"].map(str::to_owned).to_vec();
        let defaults = Defaults { runtime: "runc".into(), seccomp: Some("default".into()), ..Defaults::default() };
        let engine = serde_json::from_str(include_str!("../../../tests/fixtures/inspect-20.10.json")).unwrap();
        let inside = serde_json::from_str(include_str!("../../../tests/fixtures/probe-v1.json")).unwrap();
        Case { asked, defaults, engine, network: None, inside }
    }

    /// As on a newer engine, with AppArmor and control groups of the second version, and another share of processors.
    fn on_v2() -> Self {
        let mut case = Case::captured();
        case.asked.server.resources.cpus = 0.5;
        case.defaults = Defaults { seccomp: Some("builtin".into()), apparmor: true, ..case.defaults };
        case.inside = serde_json::from_str(include_str!("../../../tests/fixtures/probe-v2.json")).unwrap();
        let masked = case.engine["HostConfig"]["MaskedPaths"].as_array_mut().unwrap();
        masked.push("/sys/devices/virtual/powercap".into());
        case.engine["HostConfig"]["NanoCpus"] = 500_000_000.into();
        case.engine["AppArmorProfile"] = "docker-default".into();
        case
    }

    fn evidence(&self) -> Evidence {
        let engine: ContainerInspectResponse = serde_json::from_value(self.engine.clone()).unwrap();
        let inside: Report = serde_json::from_value(self.inside.clone()).unwrap();
        let defaults = &self.defaults;
        let network = self.network.clone().map(|network| serde_json::from_value(network).unwrap());
        let network = network.as_ref();
        let readings = Readings { probe: PROBE_VOLUME, defaults, engine: &engine, network, inside: &inside };
        Evidence::gather(&self.asked, &readings)
    }

    /// The controls that do not hold.
    fn broken(&self) -> Vec<&'static str> {
        self.evidence().controls.into_iter().filter(|c| !c.holds).map(|c| c.control).collect()
    }

    fn control(&self, name: &str) -> Control {
        self.evidence().controls.into_iter().find(|c| c.control == name).unwrap()
    }

    /// With another value in the engine's report.
    fn engine(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        *self.engine.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value.into();
        self
    }

    /// With a member of the engine's report left out.
    fn without(mut self, pointer: &str) -> Self {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = self.engine.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
        assert!(parent.remove(name).is_some(), "no {pointer}");
        self
    }

    /// With a member of the engine's report added.
    fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = self.engine.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
        parent.insert(name.to_owned(), value.into());
        self
    }

    /// With another value in the probe's report.
    fn inside(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.inside[member] = value.into();
        self
    }

    /// With other words in a text of the probe's report.
    fn reworded(self, member: &str, from: &str, to: &str) -> Self {
        let text = self.inside[member].as_str().unwrap();
        assert!(text.contains(from), "no {from:?} in {member}: {text}");
        let text = text.replace(from, to);
        self.inside(member, text)
    }

    /// With one more mount inside, after all others.
    fn mounted(self, line: &str) -> Self {
        let text = format!("{}{line}\n", self.inside["mountinfo"].as_str().unwrap());
        self.inside("mountinfo", text)
    }

    /// With other words in the line of one mount.
    fn remounted(self, at: &str, from: &str, to: &str) -> Self {
        let mut found = false;
        let lines = self.inside["mountinfo"].as_str().unwrap().lines().map(|line| {
            if line.split(' ').nth(4) != Some(at) {
                return format!("{line}\n");
            }
            assert!(line.contains(from), "no {from:?} in {line}");
            found = true;
            format!("{}\n", line.replacen(from, to, 1))
        });
        let text: String = lines.collect();
        assert!(found, "nothing at {at}");
        self.inside("mountinfo", text)
    }

    /// Without the mount at a place.
    fn unmounted(self, at: &str) -> Self {
        let lines = self.inside["mountinfo"].as_str().unwrap().lines();
        let text: String = lines.filter(|l| l.split(' ').nth(4) != Some(at)).map(|l| format!("{l}\n")).collect();
        self.inside("mountinfo", text)
    }
}

const NONE: Vec<&'static str> = Vec::new();

#[test]
fn a_container_as_captured_holds_in_every_control() {
    let case = Case::captured();
    assert_eq!(case.broken(), NONE, "{:#?}", case.evidence().controls);
    let evidence = case.evidence().proven("notes").unwrap();
    assert_eq!(evidence.digest.len(), 64);
    assert_eq!(case.control("mounts").asked, "/data (rw), /home/mcp/.cache (rw), /notes (ro), /out (rw)");
}

#[test]
fn a_container_on_control_groups_of_the_second_version_holds_in_every_control() {
    let case = Case::on_v2();
    assert_eq!(case.broken(), NONE, "{:#?}", case.evidence().controls);
    assert_eq!(case.control("cpu").inside, "0.5");
    assert_eq!(case.control("swap").inside, "0");
    assert_eq!(case.control("apparmor").inside, "docker-default (enforce)");
}

#[test]
fn a_server_that_keeps_and_sees_nothing_holds_too() {
    let mut case = Case::captured();
    case.asked.server.mounts.clear();
    case.asked.volumes.clear();
    let probes = |list: &Value| Value::Array(list.as_array().unwrap()[..1].to_vec());
    case.engine["Mounts"] = probes(&case.engine["Mounts"]);
    case.engine["HostConfig"]["Mounts"] = probes(&case.engine["HostConfig"]["Mounts"]);
    let case = ["/data", "/home/mcp/.cache", "/notes", "/out"].into_iter().fold(case, Case::unmounted);
    assert_eq!(case.broken(), NONE, "{:#?}", case.evidence().controls);
    assert_eq!(case.control("mounts").asked, "none");
}

#[test]
fn a_writable_root_is_shown_and_one_that_was_not_asked_for_does_not_hold() {
    let mut case = Case::captured();
    case.asked.server.writable_root = true;
    // Less than asked on both sides, and the engine did not take the request as it was.
    assert_eq!(case.broken(), ["root file system"]);
    let case = case.engine("/HostConfig/ReadonlyRootfs", false);
    assert_eq!(case.broken(), NONE);
    let case = case.remounted("/", "ro,relatime", "rw,relatime").remounted("/etc/hosts", "ro,relatime", "rw,relatime");
    assert_eq!(case.broken(), NONE, "{:#?}", case.control("mounts"));
    assert_eq!(case.control("root file system").asked, "writable");
    assert_eq!(case.control("root file system").inside, "writable");
}

#[test]
fn what_does_not_hold_is_refused_by_name_and_told_in_full_only_to_the_operator() {
    let case = Case::captured().engine("/HostConfig/Memory", 0).remounted("/", "ro,", "rw,");
    let fault = case.evidence().proven("notes").unwrap_err();
    assert_eq!(fault.class, Class::Isolation);
    assert_eq!(fault.outward, "server notes is not served: not isolated as asked (root file system, memory)");
    assert_eq!(
        fault.inward,
        "server notes is not served: not isolated as asked: root file system: asked read-only, the engine reports \
         read-only, inside writable; memory: asked 1073741824, the engine reports 0, inside 1073741824"
    );
}

#[test]
fn the_digest_is_of_the_readings() {
    let case = Case::captured();
    assert_eq!(case.evidence().digest, case.clone().evidence().digest);
    let other = case.clone().engine("/HostConfig/Memory", 1);
    assert_ne!(case.evidence().digest, other.evidence().digest);
}

#[test]
fn no_value_of_the_environment_is_in_the_evidence() {
    let cases = [
        Case::captured(),
        Case::captured().engine("/Config/Env", serde_json::json!(["API_KEY=0ther-s3cr3t", "X=unasked-s3cr3t"])),
    ];
    for case in cases {
        let text = serde_json::to_string(&case.evidence()).unwrap();
        let fault = case.evidence().proven("notes").map(|_| String::new()).unwrap_or_else(|f| f.inward);
        assert!(!text.contains("s3cr3t") && !fault.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn another_gateways_labels_are_not_ours() {
    let mut case = Case::captured();
    case.asked.owner = Owner { gateway: "g2".into(), ..owner() };
    assert_eq!(case.broken(), ["labels"]);
    assert_eq!(case.control("labels").engine, "not as asked: org.bulkhead.gateway");
}
