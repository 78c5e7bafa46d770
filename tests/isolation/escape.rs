//! The escape matrix: every attempt that the canary knows, with real targets, out of the default compartment, where none
//! may succeed; and out of a container that is as loose as this engine makes one, where each must: an attempt that
//! succeeds nowhere proves nothing.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bollard::container::{AttachContainerResults, LogOutput};
use bollard::models::{ContainerCreateBody, DeviceMapping, HostConfig, HostConfigCgroupnsModeEnum, Mount, MountType};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptions, RemoveContainerOptionsBuilder, StartContainerOptions,
};
use bulkhead::compartment::canary::{self, Attempt, Tried};
use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use super::support::{FIXTURE, Gateway, LONG, Talk, docker, fixture, server, socket};

pub const IMAGE: &str = "bulkhead/probe";
/// At least so many attempts, or the canary has lost some.
const LEAST: usize = 100;
const SERVER: &str = r#"
import socket
listener = socket.create_server(("", 7007))
listener.settimeout(120)
while True: listener.accept()
"#;

/// What is to be reached: all of it is there while it is tried.
struct Surroundings {
    targets: Vec<String>,
    sockets: Vec<String>,
    neighbour: String,
    process: Child,
    gateway: Child,
    _listeners: (TcpListener, TcpListener, UnixListener),
    _dir: tempfile::TempDir,
}

impl Surroundings {
    async fn new() -> Self {
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, inner) = (everywhere.local_addr().unwrap().port(), loopback.local_addr().unwrap());
        let name = format!("bulkhead-{}", uuid::Uuid::new_v4().simple());
        let named = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (gateway, control) = gateway(dir.path()).await;
        let process = Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        let pid = process.id().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let started = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
        let (neighbour, address) = neighbour().await;
        let bridge = bridge().await;
        let targets = vec![
            format!("tcp=a listener of the host on all addresses@127.0.0.1:{port}"),
            format!("tcp=the host by its bridge@{bridge}:{port}"),
            format!("tcp=a listener of the host on its loopback@{inner}"),
            format!("tcp=another container@{address}:7007"),
            format!("abstract={name}"),
            format!("pid={pid}:{started}"),
        ];
        let sockets = vec![control.display().to_string(), socket().display().to_string()];
        let _listeners = (everywhere, loopback, named);
        Surroundings { targets, sockets, neighbour, process, gateway, _listeners, _dir: dir }
    }

    async fn end(mut self) {
        for process in [&mut self.process, &mut self.gateway] {
            process.kill().await.unwrap();
        }
        remove(&self.neighbour).await;
    }
}

/// A gateway that serves, and its control socket.
async fn gateway(dir: &Path) -> (Child, PathBuf) {
    let config = dir.join("bulkhead.toml");
    std::fs::write(&config, format!("[servers.fx]\nimage = {FIXTURE:?}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bulkhead"));
    command.arg("--config").arg(config).arg("--state").arg(dir).arg("serve");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let gateway = command.spawn().unwrap();
    let began = Instant::now();
    loop {
        let sockets = std::fs::read_dir(dir.join("control")).into_iter().flatten().flatten();
        if let Some(socket) = sockets.map(|entry| entry.path()).find(|path| UnixStream::connect(path).is_ok()) {
            return (gateway, socket);
        }
        assert!(began.elapsed() < LONG, "it does not serve");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The address of the host on the engine's bridge.
async fn bridge() -> String {
    let bridge = docker().await.inspect_network("bridge", None).await.unwrap();
    let config = bridge.ipam.unwrap_or_default().config.unwrap_or_default();
    let gateway = config.iter().find_map(|config| config.gateway.clone());
    gateway.or_else(|| Some(config.first()?.subnet.as_ref()?.replace(".0/16", ".1"))).expect("the bridge's address")
}

/// Another container, on the engine's bridge, that listens; its id and its address.
async fn neighbour() -> (String, String) {
    let docker = docker().await;
    let body = ContainerCreateBody {
        image: Some(FIXTURE.to_owned()),
        entrypoint: Some(vec!["python3".to_owned(), "-c".to_owned(), SERVER.to_owned()]),
        // It ends by itself where a test does not come to its end.
        host_config: Some(HostConfig { auto_remove: Some(true), ..Default::default() }),
        ..Default::default()
    };
    let id = docker.create_container(None::<CreateContainerOptions>, body).await.unwrap().id;
    docker.start_container(&id, None::<StartContainerOptions>).await.unwrap();
    let settings = docker.inspect_container(&id, None).await.unwrap().network_settings.unwrap();
    let address = settings.networks.unwrap()["bridge"].ip_address.clone().unwrap();
    let began = Instant::now();
    while std::net::TcpStream::connect((address.as_str(), 7007)).is_err() {
        assert!(began.elapsed() < LONG, "it does not listen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (id, address)
}

async fn remove(id: &str) {
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    // The engine may be at it already.
    let _ = docker().await.remove_container(id, Some(options)).await;
}

#[expect(clippy::print_stdout, reason = "the list is for whoever runs this test to see")]
fn say(text: &str) {
    println!("{text}");
}

pub fn shown(attempts: &[Attempt]) -> String {
    let row = |a: &Attempt| {
        let mark = if a.broke { "BROKE" } else { "held" };
        format!("{mark:<6} {:<22} {}: {}", a.rule, a.name, a.how)
    };
    attempts.iter().map(row).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_breaks_out_of_the_default_compartment() {
    let around = Surroundings::new().await;
    let gateway = Gateway::new();
    let tried = canary::try_out(&gateway.engine, &gateway.owner, &around.sockets, &around.targets).await;
    around.end().await;
    let Tried { attempts, controls } = tried.unwrap_or_else(|fault| panic!("{}", fault.inward));
    say(&shown(&attempts));
    say(&format!("{} attempts, {controls} controls proven before", attempts.len()));
    assert!(attempts.len() >= LEAST, "only {} attempts", attempts.len());
    let broken: Vec<_> = attempts.iter().filter(|attempt| attempt.broke || !attempt.tried).cloned().collect();
    assert!(broken.is_empty(), "\n{}", shown(&broken));
    gateway.is_clean().await;
}

/// Also one that shares the network of a guard: that opens the guard's ports, and nothing that is tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_breaks_out_of_a_compartment_behind_its_guard() {
    let around = Surroundings::new().await;
    let gateway = Gateway::new();
    let granted = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command: Vec<String> =
        ["/canary", "tmp=67108864", "memory=134217728", "files=1024", "pids=64", "cpus=1"].map(str::to_owned).into();
    command.extend(around.targets.iter().cloned());
    command.extend(around.sockets.iter().map(|path| format!("unix=the socket {path}@{path}")));
    command.push(format!("tcp=its own port@127.0.0.1:{granted}"));
    let limits = "memory = \"128m\"\npids = 64";
    let entry = server(&format!("image = {IMAGE:?}\ncommand = {command:?}\n{limits}\nhost_ports = [{granted}]"));
    let (guard, link) = gateway.guard(&entry).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
    let confined = gateway.start_behind(&entry, &guard).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
    let mut talk = Talk::new(confined);
    talk.send(serde_json::json!({})).await;
    let mut said = String::new();
    while let Some(line) = talk.line().await {
        said += &format!("{line}\n");
    }
    talk.end(LONG).await;
    link.process.end(Duration::ZERO).await;
    around.end().await;
    let attempts = canary::read(said.as_bytes()).unwrap();
    assert!(attempts.len() >= LEAST, "only {} attempts", attempts.len());
    let broken: Vec<_> = attempts.iter().filter(|attempt| attempt.broke || !attempt.tried).cloned().collect();
    // What was granted is reached, which also shows that the others could be.
    let names: Vec<_> = broken.iter().map(|attempt| attempt.name.as_str()).collect();
    assert_eq!(names, ["reach its own port"], "\n{}", shown(&broken));
    gateway.is_clean().await;
}

/// Every rule that is tried is one that the evidence has, and the other way round but for those that are no more than
/// bookkeeping, or that only the engine can tell of.
#[tokio::test]
async fn the_rules_that_are_tried_are_the_controls_that_are_proven() {
    let gateway = Gateway::new();
    let confined = gateway.start(&fixture(&[])).await.unwrap_or_else(|fault| panic!("{}", fault.inward));
    let controls: Vec<_> = confined.evidence.controls.iter().map(|control| control.control).collect();
    confined.link.process.end(Duration::ZERO).await;
    let tried = canary::try_out(&gateway.engine, &gateway.owner, &[], &[]).await.unwrap();
    let rules: Vec<_> = tried.attempts.iter().map(|attempt| attempt.rule.as_str()).collect();
    assert!(rules.iter().all(|rule| controls.contains(rule)), "{rules:?}");
    let untried: Vec<_> = controls.into_iter().filter(|control| !rules.contains(control)).collect();
    let told =
        ["privileged", "apparmor", "hostname", "init", "program", "log driver", "life", "labels", "other settings"];
    assert_eq!(untried, told);
}

// === the counter-proof ===

/// What no container can do here, however loose: by name, with what the kernel then says, and why.
const NOWHERE: [(&str, &str, &str); 19] = [
    ("load a kernel module", "not implemented", "a kernel without modules"),
    ("load a kernel module from a file", "not implemented", "a kernel without modules"),
    ("unload a kernel module", "not implemented", "a kernel without modules"),
    ("set what programs may ask of the kernel", "No such file", "a kernel without modules has no such program"),
    ("load another kernel", "not implemented", "a kernel that cannot be replaced (CONFIG_KEXEC)"),
    ("reach the ports of the hardware", "not implemented", "a kernel that gives nobody the ports"),
    ("keep account of processes", "not implemented", "a kernel that keeps no accounts"),
    ("write quotas to the disks", "not implemented", "a kernel without quotas"),
    ("read the kernel's memory", "No such file", "a kernel that shows its memory to nobody (CONFIG_PROC_KCORE)"),
    ("read the kernel's memory", "not permitted", "a kernel in lockdown shows its memory to nobody"),
    ("read the machine's memory", "No such file", "a kernel without such a device (CONFIG_DEVMEM)"),
    ("read the machine's memory", "not permitted", "a kernel that shows no memory in use (CONFIG_STRICT_DEVMEM)"),
    ("press the kernel's emergency keys", "No such file", "a kernel without them (CONFIG_MAGIC_SYSRQ)"),
    (
        "type into the terminal it was started from",
        "Input/output",
        "a kernel that lets nobody (dev.tty.legacy_tiocsti)",
    ),
    ("find a way to the internet", "unreachable", "this host has none either"),
    ("find a way to the internet by IPv6", "unreachable", "this host has none either"),
    ("find a way to a cloud's metadata", "unreachable", "this host has none either"),
    ("allow itself a device", "No such file", "the second version of control groups has no such file"),
    ("have the kernel start a program as root", "", "the second version of control groups has no such program"),
];

/// What needs a capability that the engine itself does not have on some machines.
const NEEDS_RESOURCE: &str = "never be killed for want of memory";

/// The names of the capabilities, in the order of their numbers, as far as every engine that we support knows them.
const CAPABILITIES: [&str; 38] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
];

/// Those that this machine has to give: one that its first process lacks keeps an engine from making a privileged
/// container at all, so each is asked for by its name.
fn capabilities() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let bounds = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
    let bounds = u64::from_str_radix(bounds.trim(), 16).unwrap();
    let given = CAPABILITIES.iter().enumerate().filter(|(number, _)| bounds >> number & 1 == 1);
    given.map(|(_, name)| (*name).to_owned()).collect()
}

/// A container with nothing left of a compartment. The attempts do no harm where they succeed.
fn loose(around: &Surroundings) -> ContainerCreateBody {
    let text = str::to_owned;
    let devices =
        ["/dev/kmsg", "/dev/fuse", "/dev/net/tun", "/dev/mem"].into_iter().filter(|path| Path::new(path).exists());
    let device = |path: &str| DeviceMapping {
        path_on_host: Some(path.to_owned()),
        path_in_container: Some(path.to_owned()),
        cgroup_permissions: Some("rwm".to_owned()),
    };
    let bind = |from: &str, to: &str| Mount {
        source: Some(from.to_owned()),
        target: Some(to.to_owned()),
        typ: Some(MountType::BIND),
        ..Default::default()
    };
    let mut mounts = vec![bind("/sys", "/sys"), bind(&socket().display().to_string(), "/var/run/docker.sock")];
    mounts.extend(around.sockets.iter().filter(|at| *at != "/var/run/docker.sock").map(|at| bind(at, at)));
    let mut command: Vec<String> =
        ["/canary", "tmp=67108864", "memory=134217728", "files=1024", "pids=64", "cpus=1"].map(text).into();
    command.extend(around.targets.iter().cloned());
    command.extend(around.sockets.iter().map(|path| format!("unix=the socket {path}@{path}")));
    let host_config = HostConfig {
        cap_add: Some(capabilities()),
        security_opt: Some(["seccomp=unconfined", "apparmor=unconfined", "label=disable"].map(text).into()),
        network_mode: Some(text("host")),
        pid_mode: Some(text("host")),
        ipc_mode: Some(text("host")),
        uts_mode: Some(text("host")),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::HOST),
        masked_paths: Some(Vec::new()),
        readonly_paths: Some(Vec::new()),
        devices: Some(devices.map(device).collect()),
        device_cgroup_rules: Some(vec![text("a *:* rwm")]),
        mounts: Some(mounts),
        tmpfs: Some(HashMap::from([(text("/tmp"), text("rw,exec,suid,dev")), (text("/.bulkhead-loose"), text("rw"))])),
        ..Default::default()
    };
    ContainerCreateBody {
        image: Some(text(IMAGE)),
        user: Some(text("0:0")),
        entrypoint: Some(command),
        cmd: Some(Vec::new()),
        env: Some(vec![text("AWS_SECRET_ACCESS_KEY=x")]),
        tty: Some(true),
        open_stdin: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        host_config: Some(host_config),
        ..Default::default()
    }
}

/// Everything that a container of this kind says on its output; made by nothing but the engine's API.
pub async fn run(body: ContainerCreateBody) -> Vec<u8> {
    let docker = docker().await;
    let id = docker.create_container(None::<CreateContainerOptions>, body).await.unwrap().id;
    let options = AttachContainerOptionsBuilder::new().stream(true).stdin(true).stdout(true).stderr(true).build();
    let AttachContainerResults { mut output, mut input } = docker.attach_container(&id, Some(options)).await.unwrap();
    docker.start_container(&id, None::<StartContainerOptions>).await.unwrap();
    input.write_all(b"\n").await.unwrap();
    let mut said = Vec::new();
    let all = async {
        while let Some(Ok(piece)) = output.next().await {
            if let LogOutput::StdOut { message } | LogOutput::Console { message } = piece {
                said.extend_from_slice(&message);
            }
        }
    };
    let ended = tokio::time::timeout(LONG, all).await;
    remove(&id).await;
    ended.expect("the canary ends");
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_succeeds_where_nothing_holds_it() {
    let around = Surroundings::new().await;
    let said = run(loose(&around)).await;
    around.end().await;
    let attempts = canary::read(&said).unwrap_or_else(|why| panic!("it {why}: {}", String::from_utf8_lossy(&said)));
    say(&shown(&attempts));
    let has_resource = capabilities().iter().any(|name| name == "SYS_RESOURCE");
    let mut excused = Vec::new();
    let mut proves_nothing = Vec::new();
    for attempt in attempts.iter().filter(|attempt| !attempt.broke) {
        let mut reasons = NOWHERE.iter().filter(|(name, how, _)| *name == attempt.name && attempt.how.contains(how));
        let reason = match reasons.next() {
            Some((_, _, reason)) => Some(*reason),
            None if attempt.name == NEEDS_RESOURCE && !has_resource => Some("the engine lacks CAP_SYS_RESOURCE itself"),
            None => None,
        };
        match reason {
            Some(reason) if attempt.tried => excused.push(format!("{}: {reason}", attempt.name)),
            _ => proves_nothing.push(attempt.clone()),
        }
    }
    let succeed = attempts.iter().filter(|attempt| attempt.broke).count();
    say(&format!("{succeed} of {} succeed; not here:\n{}", attempts.len(), excused.join("\n")));
    assert!(proves_nothing.is_empty(), "\n{}", shown(&proves_nothing));
    assert!(attempts.len() >= LEAST);
    // The same attempts as in a compartment, told as what they are: broken.
    let tried = Tried { attempts, controls: 0 };
    assert!(tried.not_held().count() >= 90, "a loose container reads as broken");
}

/// A compartment's own reading of one that is opened a little: what it lets through is named.
#[tokio::test]
async fn the_attempts_tell_what_a_configuration_opens() {
    let gateway = Gateway::new();
    let entry = format!("image = {IMAGE:?}\ncommand = [\"/canary\", \"pids=64\"]\nenv = {{ TZ = \"UTC\" }}");
    let mut talk = gateway.talk(&server(&entry)).await;
    talk.send(serde_json::json!({})).await;
    let mut said = String::new();
    while let Some(line) = talk.line().await {
        said += &format!("{line}\n");
    }
    talk.end(LONG).await;
    let attempts = canary::read(said.as_bytes()).unwrap();
    let broken: Vec<_> = attempts.iter().filter(|attempt| attempt.broke).map(|attempt| attempt.name.as_str()).collect();
    assert_eq!(broken, ["find a variable that nobody declared", "start more processes than it may"]);
}
