//! `bulkhead check` before engines in every state: it says what is wrong in plain words and what to do, and ends with the
//! code of the gravest thing.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use bulkhead::compartment::Owner;
use bulkhead::compartment::lease::{Lease, Terms};
use serde_json::{Value, json};

use super::proxy::Proxy;
use super::support::{addresses, docker, remove_volume};

/// What a check found.
struct Checked {
    code: Option<i32>,
    findings: Vec<Value>,
    attempts: usize,
}

impl Checked {
    /// The finding on something.
    fn on(&self, what: &str) -> &Value {
        let found = self.findings.iter().find(|finding| finding["what"] == *what);
        found.unwrap_or_else(|| panic!("nothing on {what}: {:?}", self.findings))
    }

    /// That it is wrong, in these words, and what to do in those.
    fn is_wrong(&self, what: &str, says: &str, mend: &str) {
        let finding = self.on(what);
        assert_eq!((&finding["fine"], &finding["grade"]), (&json!(false), &json!("wrong")), "{finding}");
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        assert!(text("says").contains(says) && text("mend").contains(mend), "{finding}");
        assert_eq!(self.code, Some(6), "{:?}", self.findings);
    }
}

/// Runs a check with a configuration, with the engine at an address.
async fn check_with(config: &str, address: &str) -> Checked {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bulkhead.toml"), config).unwrap();
    let (code, text) = run(dir.path(), address, &["--json"]).await;
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let attempts = found["attempts"].as_array().unwrap().len();
    Checked { code, findings: found["findings"].as_array().unwrap().clone(), attempts }
}

async fn run(dir: &Path, address: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_bulkhead"));
    command.arg("check").args(arguments).arg("--config").arg(dir.join("bulkhead.toml")).arg("--state").arg(dir);
    command.env_clear().env("DOCKER_HOST", address).env("HOME", dir).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

async fn check(address: &str) -> Checked {
    check_with("", address).await
}

async fn before(proxy: &Proxy) -> Checked {
    check(&proxy.addresses()[0]).await
}

/// The engine of the tests, which a check is right to find fine.
fn real() -> String {
    addresses().into_iter().find(|address| Path::new(address.trim_start_matches("unix://")).exists()).unwrap()
}

#[tokio::test]
async fn a_default_compartment_holds_and_the_numbers_are_told() {
    let checked = check(&real()).await;
    let isolation = checked.on("isolation");
    assert_eq!(isolation["grade"], "fine", "{isolation}");
    let said = format!("{} attempts to break out of a default compartment, none succeeded", checked.attempts);
    assert!(checked.attempts >= 100 && isolation["says"].as_str().unwrap().starts_with(&said), "{isolation}");
    assert!(isolation["says"].as_str().unwrap().contains("28 controls proven"), "{isolation}");
}

/// The same that makes a server unroutable makes the check red, and is named.
#[tokio::test]
async fn a_control_that_the_engine_leaves_out_is_named() {
    for (control, change) in [
        ("capabilities", (|body| body["HostConfig"]["CapAdd"] = json!(["NET_RAW"])) as fn(&mut Value)),
        ("network", |body| body["HostConfig"]["NetworkMode"] = json!("bridge")),
        ("root file system", |body| body["HostConfig"]["ReadonlyRootfs"] = json!(false)),
    ] {
        let checked = before(&Proxy::changing(change)).await;
        checked.is_wrong(
            "isolation",
            &format!("not isolated as asked: {control}: asked"),
            "until this holds nothing runs",
        );
        assert_eq!(checked.attempts, 0, "nothing is tried in a container that is not proven");
    }
}

// === engines ===

#[tokio::test]
async fn an_engine_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let checked = check(&format!("unix://{}", dir.path().join("absent").display())).await;
    checked.is_wrong("engine", "does not answer", "start Docker, Colima or Podman's socket");
    checked.is_wrong("isolation", "not tried", "first mend the engine");
    // A socket that nobody listens on any more.
    let left = dir.path().join("left");
    drop(UnixListener::bind(&left).unwrap());
    let checked = check(&format!("unix://{}", left.display())).await;
    checked.is_wrong("engine", "Connection refused", "start Docker, Colima or Podman's socket");
}

#[tokio::test]
async fn an_engine_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let _silent = UnixListener::bind(dir.path().join("s")).unwrap();
    let checked = check(&format!("unix://{}", dir.path().join("s").display())).await;
    checked.is_wrong("engine", "no answer within 2s", "restart it");
}

/// As nobody, since to root no socket is closed.
#[tokio::test]
async fn an_engine_that_may_not_be_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let socket = dir.path().join("s");
    let _closed = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).unwrap();
    // Where the tests do not run as root either, nobody else's socket is at hand: one that even its owner may not use.
    let root = rustix::process::geteuid().is_root();
    if !root {
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    let state = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o777)).tempdir().unwrap();
    let program = state.path().join("bulkhead");
    std::fs::copy(env!("CARGO_BIN_EXE_bulkhead"), &program).unwrap();
    let mut command = tokio::process::Command::new(&program);
    command.args(["check", "--json", "--config", "none.toml", "--state"]).arg(state.path().join("state"));
    command
        .env_clear()
        .env("DOCKER_HOST", format!("unix://{}", socket.display()))
        .current_dir("/")
        .stdin(Stdio::null());
    if root {
        command.uid(65534).gid(65534);
    }
    let output = command.output().await.unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = found["findings"].as_array().unwrap().clone();
    let checked = Checked { code: output.status.code(), findings, attempts: 0 };
    checked.is_wrong("engine", "permission denied", "add this user to the group");
    assert_eq!(checked.on("configuration")["fine"], false);
    assert_eq!(checked.code, Some(6), "the engine is graver than the configuration");
}

#[tokio::test]
async fn an_engine_that_is_too_old() {
    let checked = before(&Proxy::answering("/version", |version| version["ApiVersion"] = json!("1.40"))).await;
    checked.is_wrong(
        "engine",
        r#"too old: it speaks API "1.40"; at least 1.41"#,
        "install Docker Engine 20.10 or newer",
    );
}

#[tokio::test]
async fn an_engine_without_a_limit() {
    let without = |name: &'static str| Proxy::answering("/info", move |info| info[name] = json!(false));
    let checked = before(&without("SwapLimit")).await;
    checked.is_wrong("limits", "swap cannot be limited", "swapaccount=1");
    let checked = before(&without("PidsLimit")).await;
    checked.is_wrong("limits", "processes cannot be limited", "enable these control groups");
}

#[tokio::test]
async fn an_engine_that_filters_nothing_or_by_a_profile_of_somebody() {
    let with = |options: Value| Proxy::answering("/info", move |info| info["SecurityOptions"] = options.clone());
    let checked = before(&with(json!([]))).await;
    checked.is_wrong("seccomp", "does not filter system calls", "with seccomp");
    // The check of what runs agrees, since it reads the same.
    checked.is_wrong("isolation", "seccomp", "until this holds");
    let checked = before(&with(json!(["name=seccomp,profile=/etc/loose.json"]))).await;
    checked.is_wrong("seccomp", "/etc/loose.json", "seccomp-profile");
    let checked = before(&with(json!(["name=seccomp,profile=unconfined"]))).await;
    checked.is_wrong("seccomp", "unconfined", "seccomp-profile");
}

#[tokio::test]
async fn engines_without_root_and_with_shifted_users_are_told_and_fine() {
    for (option, what, says) in
        [("name=rootless", "rootless engine", "without root"), ("name=userns", "user ids", "userns-remap")]
    {
        let checked = before(&Proxy::answering("/info", move |info| {
            info["SecurityOptions"].as_array_mut().unwrap().push(json!(option));
        }))
        .await;
        let finding = checked.on(what);
        assert_eq!((&finding["fine"], &finding["grade"]), (&json!(true), &json!("note")), "{finding}");
        assert!(finding["says"].as_str().unwrap().contains(says), "{finding}");
        assert_eq!(checked.on("isolation")["fine"], true);
    }
}

#[tokio::test]
async fn containers_of_a_gateway_that_is_gone() {
    let gone = Owner { pid: 4_000_000_000, ..Owner::this_process("gone") };
    let mut labels = gone.labels(Lease::from_now(Terms::default().instance));
    labels
        .extend([("org.bulkhead.role", "server"), ("org.bulkhead.server", "notes")].map(|(k, v)| (k.into(), v.into())));
    let left = json!({ "Id": "feedfacefeedface", "State": "running", "Labels": labels });
    let proxy = Proxy::answering("/containers/json", move |list| list.as_array_mut().unwrap().push(left.clone()));
    let checked = before(&proxy).await;
    checked.is_wrong("leftovers", "feedfacefeed (notes)", "bulkhead reap");
}

// === images ===

#[tokio::test]
async fn an_image_that_is_not_there() {
    let checked = check_with("[servers.x]\nimage = \"bulkhead/no-such-image\"\n", &real()).await;
    checked.is_wrong("server x", "is not on the engine", "build or pull bulkhead/no-such-image");
}

/// An engine that has another image where ours is to be: with no canary in it, and with no probe.
#[tokio::test]
async fn a_probe_of_another_version() {
    let docker = docker().await;
    let other = docker.inspect_image("bulkhead/fixture-server").await.unwrap().id.unwrap();
    let instead = other.clone();
    let proxy = Proxy::answering("/images/bulkhead/probe/json", move |image| image["Id"] = json!(instead));
    let checked = before(&proxy).await;
    checked.is_wrong("isolation", "does not hold the probe of image", "run scripts/setup");
    remove_volume(&format!("bulkhead-probe-{:.12}", other.trim_start_matches("sha256:"))).await;
}

/// What was locked is all that runs: that its name stands for something else by now is told.
#[tokio::test]
async fn an_image_whose_name_stands_for_another_one_now() {
    let docker = docker().await;
    let dir = tempfile::tempdir().unwrap();
    let tag = format!("bulkhead-test-{:.12}", uuid::Uuid::new_v4().simple().to_string());
    let name = |image: &'static str| {
        let options = bollard::query_parameters::TagImageOptionsBuilder::new().repo(&tag).tag("latest").build();
        docker.tag_image(image, Some(options))
    };
    name("bulkhead/fixture-server").await.unwrap();
    std::fs::write(dir.path().join("bulkhead.toml"), format!("[servers.x]\nimage = {tag:?}\n")).unwrap();
    let mut lock = tokio::process::Command::new(env!("CARGO_BIN_EXE_bulkhead"));
    lock.args(["lock", "--yes", "--config"]).arg(dir.path().join("bulkhead.toml")).arg("--state").arg(dir.path());
    let locked = lock.env("DOCKER_HOST", real()).stdin(Stdio::null()).output().await.unwrap();
    assert!(locked.status.success(), "{locked:?}");
    name("bulkhead/runtime").await.unwrap();
    let (_, text) = run(dir.path(), &real(), &["--json"]).await;
    let (_, plain) = run(dir.path(), &real(), &[]).await;
    docker.remove_image(&tag, None::<bollard::query_parameters::RemoveImageOptions>, None).await.unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    let checked = Checked { code: None, findings: found["findings"].as_array().unwrap().clone(), attempts: 0 };
    let finding = checked.on("server x");
    assert_eq!((&finding["fine"], &finding["grade"]), (&json!(false), &json!("wrong")), "{finding}");
    assert!(finding["says"].as_str().unwrap().contains("when it was approved, and is sha256:"), "{finding}");
    assert_eq!(finding["mend"], "run: bulkhead approve x");
    // What people read fits a terminal, and says the same.
    assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
    assert!(plain.contains("wrong") && plain.contains("isolation"), "{plain}");
}
