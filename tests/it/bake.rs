//! Packages of the real registries, baked by the real engine. Needs both, and the runtime image.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{
    BuildImageOptionsBuilder, ListContainersOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder,
};
use bulkhead::compartment::bake::{Baked, Locked, Order, bake};
use bulkhead::config::{Package, Registry, Runner};
use bulkhead::error::{Class, Fault};
use bulkhead::name::ServerName;
use futures_util::StreamExt as _;
use tokio::sync::Notify;

use crate::support::Turn;
use crate::support::engine::docker as docker_says;

pub const RUNTIME: &str = "bulkhead/runtime";

pub fn docker() -> Docker {
    Docker::connect_with_local_defaults().expect("an engine")
}

/// Writes a wheel whose start-up file ends every Python that reads it.
const HOSTILE_WHEEL: &str = r#"
import zipfile
info = "hostile-1.0.dist-info"
files = {
    "hostile.pth": "import os; os._exit(3)\n",
    f"{info}/METADATA": "Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
with zipfile.ZipFile("/opt/hostile-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
"#;

/// A runtime image of this test alone: nothing was ever baked onto it, and all that is goes with it.
pub struct Runtime {
    pub id: String,
    label: String,
}

impl Runtime {
    pub async fn new() -> Self {
        let label = format!("org.bulkhead.test={}", uuid::Uuid::new_v4().simple());
        let dockerfile = format!(
            "FROM {RUNTIME}\nLABEL {label}\nUSER 0\nCOPY wheel.py /opt/\nRUN [\"python3\", \"/opt/wheel.py\"]\n"
        );
        let mut context = tar::Builder::new(Vec::new());
        for (path, content) in [("Dockerfile", dockerfile.as_str()), ("wheel.py", HOSTILE_WHEEL)] {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            context.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        let context = bollard::body_full(context.into_inner().unwrap().into());
        let built = docker();
        let events = built.build_image(BuildImageOptionsBuilder::new().build(), None, Some(context));
        events.map(Result::unwrap).collect::<Vec<_>>().await;
        let id = images(&label).await.pop().unwrap();
        Runtime { id, label }
    }

    /// How many images were baked onto it.
    pub fn baked(&self) -> usize {
        let filters = [format!("label={}", self.label), "label=org.bulkhead.content".to_owned()];
        let args = filters.iter().flat_map(|filter| ["--filter", filter]);
        docker_says(&["images", "--quiet"].into_iter().chain(args).collect::<Vec<_>>()).lines().count()
    }

    pub async fn clear(self) {
        let force = RemoveImageOptionsBuilder::new().force(true).build();
        for image in images(&self.label).await {
            docker().remove_image(&image, Some(force.clone()), None).await.unwrap();
        }
    }
}

async fn images(label: &str) -> Vec<String> {
    let filters = HashMap::from([("label", vec![label])]);
    let options = ListImagesOptionsBuilder::new().filters(&filters).build();
    let listed = docker().list_images(Some(options)).await.unwrap();
    listed.into_iter().map(|image| image.id).collect()
}

pub fn package(runner: Runner, name: &str, version: Option<&str>) -> Package {
    let version = version.map(str::to_owned);
    Package { runner, name: name.to_owned(), version, with: vec![], args: vec![], executable: None }
}

async fn bake_on(runtime: &str, server: &str, package: &Package) -> (Result<Baked, Fault>, Vec<String>) {
    bake_from(&Registry::default(), None, runtime, server, package).await
}

/// A bake with what it said.
pub async fn bake_from(
    registry: &Registry,
    locked: Option<Locked<'_>>,
    runtime: &str,
    server: &str,
    package: &Package,
) -> (Result<Baked, Fault>, Vec<String>) {
    // The test that counts the containers of bakes is alone while it does.
    let _turn = Turn::shared();
    let lines = Mutex::new(Vec::new());
    let server = ServerName::parse(server).unwrap();
    let order = Order { server: &server, package, registry, locked };
    let baked = bake(&docker(), &order, runtime, &|line| lines.lock().unwrap().push(line.to_owned())).await;
    (baked, lines.into_inner().unwrap())
}

/// What a lock keeps of a bake.
pub fn locked(baked: &Baked) -> Locked<'_> {
    let (version, integrity) = (&*baked.version, baked.integrity.as_deref());
    Locked { version, integrity, tree: &baked.tree, content: Some(&baked.content) }
}

#[tokio::test]
async fn a_pypi_package_becomes_an_image_that_is_found_again() {
    let runtime = Runtime::new().await;
    let mut package = package(Runner::Uvx, "mcp-python", Some("0.1.4"));
    package.with = vec!["mcp<2".to_owned()];
    let (first, _) = bake_on(&runtime.id, "Repl (dev)", &package).await;
    let first = first.unwrap();
    assert!(!first.reused);
    assert_eq!((first.version.as_str(), first.executable.as_str()), ("0.1.4", "mcp-python"));
    assert!(first.integrity.as_ref().unwrap().starts_with("sha256:"), "{first:?}");

    let (second, _) = bake_on(&runtime.id, "other", &package).await;
    assert_eq!(second.unwrap(), Baked { reused: true, ..first.clone() });
    let image = docker().inspect_image(&first.image).await.unwrap();
    let tags = image.repo_tags.unwrap();
    for name in ["bulkhead/server-repl-dev:0.1.4-", "bulkhead/server-other:0.1.4-"] {
        assert!(tags.iter().any(|tag| tag.starts_with(name)), "{tags:?}");
    }
    let config = image.config.unwrap();
    assert_eq!(config.entrypoint.unwrap(), ["/opt/server/bin/mcp-python"]);
    assert_eq!(config.cmd.unwrap_or_default(), [] as [&str; 0]);
    assert_eq!(config.user.unwrap(), "10001:10001");
    runtime.clear().await;
}

#[tokio::test]
async fn no_code_of_a_package_runs_while_it_is_baked() {
    let runtime = Runtime::new().await;
    let mut package = package(Runner::Uvx, "idna", Some("3.10"));
    package.with = vec!["hostile @ file:///opt/hostile-1.0-py3-none-any.whl".to_owned()];
    package.executable = Some("python".to_owned());
    let (baked, _) = bake_on(&runtime.id, "hostile", &package).await;
    assert_eq!(baked.unwrap().executable, "python");
    runtime.clear().await;
}

#[tokio::test]
async fn an_npm_package_becomes_an_image_and_the_newest_version_is_written_down() {
    let runtime = Runtime::new().await;
    let (baked, lines) =
        bake_on(&runtime.id, "memory", &package(Runner::Npx, "@modelcontextprotocol/server-memory", None)).await;
    let baked = baked.unwrap();
    assert!(lines[0].contains("resolving"), "{lines:?}");
    assert_eq!(baked.executable, "mcp-server-memory");
    assert!(baked.integrity.unwrap().starts_with("sha512-"));
    let pinned = package(Runner::Npx, "@modelcontextprotocol/server-memory", Some(&baked.version));
    let (again, lines) = bake_on(&runtime.id, "memory", &pinned).await;
    assert!(again.unwrap().reused);
    assert!(lines.iter().any(|line| line.contains("already baked")), "{lines:?}");

    let image = docker().inspect_image(&baked.image).await.unwrap();
    let entry = image.config.unwrap().entrypoint.unwrap();
    assert!(entry[0].ends_with("/node") && entry[1].starts_with("/opt/server/node_modules/"), "{entry:?}");
    runtime.clear().await;
}

#[tokio::test]
async fn the_same_lock_is_the_same_content_wherever_and_whenever_it_is_baked() {
    let mut python = package(Runner::Uvx, "mcp-python", Some("0.1.4"));
    python.with = vec!["mcp<2".to_owned()];
    let node = package(Runner::Npx, "@modelcontextprotocol/server-memory", None);
    for package in [python, node] {
        let (one, other) = (Runtime::new().await, Runtime::new().await);
        let (first, _) = bake_on(&one.id, "first", &package).await;
        let first = first.unwrap();
        assert!(first.tree.len() > 10 && first.tree.iter().all(|line| !line.contains(['\n', '\r'])), "{first:?}");
        assert_eq!(first.content.len(), 64);
        let (second, lines) =
            bake_from(&Registry::default(), Some(locked(&first)), &other.id, "second", &package).await;
        let second = second.unwrap();
        assert!(!second.reused && !lines.iter().any(|line| line.contains("resolving")), "{lines:?}");
        assert_eq!((&second.content, &second.tree), (&first.content, &first.tree));
        assert_eq!(second.integrity, first.integrity);
        // What was done is found by the lock, without asking any registry.
        let (again, lines) = bake_from(&Registry::default(), Some(locked(&first)), &other.id, "second", &package).await;
        assert_eq!(again.unwrap(), Baked { reused: true, ..second });
        assert!(lines.iter().all(|line| line.ends_with("already baked")), "{lines:?}");
        one.clear().await;
        other.clear().await;
    }
}

#[tokio::test]
async fn what_no_registry_has_is_a_fault_that_says_so() {
    let absent = "bulkhead-test-of-a-package-that-is-absent";
    for (runner, name, version, says) in [
        (Runner::Npx, absent, None, "Not Found"),
        (Runner::Npx, absent, Some("1.0.0"), "Not Found"),
        (Runner::Npx, "@modelcontextprotocol/server-memory", Some("0.0.99"), "No matching version"),
        (Runner::Uvx, absent, None, "not found in the package registry"),
        (Runner::Uvx, "mcp-server-time", Some("0.0.99"), "there is no version of mcp-server-time==0.0.99"),
    ] {
        let (baked, _) = bake_on(RUNTIME, "absent", &package(runner, name, version)).await;
        let fault = baked.unwrap_err();
        assert_eq!(fault.class, Class::Unavailable, "{fault:?}");
        assert!(fault.outward.starts_with("cannot bake \"") && fault.outward.contains(says), "{fault:?}");
        assert!(!fault.inward.contains('\u{1b}'), "{fault:?}");
    }
    let mut hostile = package(Runner::Uvx, "mcp-server-time", Some("2026.10.19"));
    hostile.with =
        vec!["mcp<2\"]\\ndependencies = [\"idna $(touch /opt/server/x) `id` ; --index-url=http://h".to_owned()];
    let (baked, _) = bake_on(RUNTIME, "hostile", &hostile).await;
    assert_eq!(baked.unwrap_err().class, Class::Unavailable);
}

#[tokio::test]
async fn a_runtime_image_that_is_absent_is_named() {
    let server = ServerName::parse("s").unwrap();
    let package = package(Runner::Npx, "x", Some("1.0.0"));
    let (registry, locked) = (Registry::default(), None);
    let order = Order { server: &server, package: &package, registry: &registry, locked };
    let fault = bake(&docker(), &order, "bulkhead/absent", &|_| ()).await.unwrap_err();
    assert_eq!(fault.class, Class::Engine);
    assert!(fault.outward.contains("\"bulkhead/absent\""), "{fault:?}");
}

#[tokio::test]
async fn a_bake_that_is_dropped_leaves_no_container() {
    let _turn = Turn::alone();
    let docker = docker();
    let installing = Notify::new();
    let server = ServerName::parse("dropped").unwrap();
    let package = package(Runner::Npx, "@modelcontextprotocol/server-memory", None);
    let (registry, locked) = (Registry::default(), None);
    let order = Order { server: &server, package: &package, registry: &registry, locked };
    let note = |_: &str| installing.notify_one();
    tokio::select! {
        _ = bake(&docker, &order, RUNTIME, &note) => panic!("it ended before it was dropped"),
        () = async { installing.notified().await; container(&docker, true).await } => (),
    }
    container(&docker, false).await;
    for image in images(&own()).await {
        let force = RemoveImageOptionsBuilder::new().force(true).build();
        docker.remove_image(&image, Some(force), None).await.unwrap();
    }
}

/// What this process bakes, and nobody else.
fn own() -> String {
    format!("org.bulkhead.owner.pid={}", std::process::id())
}

/// Waits until a container of a bake is there, or none is.
async fn container(docker: &Docker, there: bool) {
    let filters = HashMap::from([("label", vec![own()])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    for _ in 0..200 {
        if docker.list_containers(Some(options.clone())).await.unwrap().is_empty() != there {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no container of a bake is {}", if there { "there" } else { "gone" });
}
