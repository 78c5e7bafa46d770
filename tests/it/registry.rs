//! Registries that ask who is there, that lie, and that are reached by other ways, before bakes by the real engine.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead::compartment::bake::{Baked, Locked};
use bulkhead::config::registry::{Index, Login, Npm, Proxy};
use bulkhead::config::{Package, Registry, Runner, Sensitive};
use bulkhead::error::{Class, Fault};
use serde_json::{Value, json};

use crate::bake::{RUNTIME, Runtime, bake_from, locked, package};
use crate::support::Site;
use crate::support::engine::{docker, try_docker};
use crate::support::registry::FakeRegistry;

const TOKEN: &str = "tok-9f8e7d6c5b4a-npm";
const PASSWORD: &str = "pw-1a2b3c4d5e6f-pypi";

fn index(url: String, login: Option<Login>) -> Index {
    Index { url, login, lacks: None }
}

fn token() -> Option<Login> {
    Some(Login::Token(Sensitive::new(TOKEN)))
}

fn password() -> Option<Login> {
    Some(Login::Password { user: "ci".to_owned(), password: Sensitive::new(PASSWORD) })
}

/// What leads to those registries.
fn leading(npm: &FakeRegistry, npm_login: Option<Login>, pypi: &FakeRegistry, login: Option<Login>) -> Registry {
    Registry {
        npm: Npm { index: Some(index(npm.npm(), npm_login)), scopes: BTreeMap::new() },
        pypi: Some(index(pypi.pypi(), login)),
        ..Registry::default()
    }
}

/// A registry with a package of either kind that needs another one.
fn with_packages(registry: FakeRegistry) -> FakeRegistry {
    registry.publish_npm("top", "1.0.0", "top", &[("below", "^1.0.0")]);
    registry.publish_npm("below", "1.0.0", "below", &[]);
    registry.publish_pypi("top", "1.0", "top", &["below>=1"]);
    registry.publish_pypi("below", "1.0", "below", &[]);
    registry
}

async fn bake(registry: &Registry, runtime: &Runtime, package: &Package) -> (Result<Baked, Fault>, Vec<String>) {
    bake_from(registry, None, &runtime.id, "registry", package).await
}

/// A bake of a lock onto an image that nothing of that lock was baked onto.
async fn rebake(registry: &Registry, runtime: &Runtime, lock: Locked<'_>, package: &Package) -> Result<Baked, Fault> {
    bake_from(registry, Some(lock), &runtime.id, "registry", package).await.0
}

fn both() -> [Package; 2] {
    [package(Runner::Npx, "top", None), package(Runner::Uvx, "top", None)]
}

/// What a secret may look like.
fn spellings() -> Vec<String> {
    let plain = [TOKEN.to_owned(), PASSWORD.to_owned(), format!("ci:{PASSWORD}")];
    let encoded = plain.iter().map(|text| STANDARD.encode(text).trim_end_matches('=').to_owned());
    encoded.chain(plain.clone()).collect()
}

#[track_caller]
fn assert_without_secrets(what: &str, bytes: &[u8]) {
    for secret in spellings() {
        let found = memchr::memmem::find(bytes, secret.as_bytes());
        assert!(found.is_none(), "{what} holds {secret}: {:?}", String::from_utf8_lossy(bytes).get(..2000));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_shown_to_the_registry_and_stays_nowhere() {
    let npm = with_packages(FakeRegistry::asking(&format!("Bearer {TOKEN}")));
    let basic = format!("Basic {}", STANDARD.encode(format!("ci:{PASSWORD}")));
    let pypi = with_packages(FakeRegistry::asking(&basic));
    let runtime = Runtime::new().await;
    let registry = leading(&npm, token(), &pypi, password());
    for package in both() {
        let watch = std::thread::spawn(containers_of_bakes);
        let (baked, lines) = bake(&registry, &runtime, &package).await;
        let baked = baked.unwrap();
        let seen = watch.join().unwrap();
        assert!(!seen.is_empty(), "no container was seen");
        seen.iter().for_each(assert_hardened);
        let seen = json!(seen).to_string();
        assert_eq!(baked.tree.len(), 2);
        assert_without_secrets("the configuration of a container", seen.as_bytes());
        assert_without_secrets("what was said", lines.join("\n").as_bytes());
        assert_without_secrets("what a lock would keep", format!("{baked:?}").as_bytes());
        assert_without_secrets("the history", docker(&["history", "--no-trunc", &baked.image]).as_bytes());
        assert_without_secrets("the image's configuration", docker(&["inspect", &baked.image]).as_bytes());
        let saved = std::process::Command::new("docker").args(["save", &baked.image]).output().unwrap();
        assert!(saved.stdout.len() > 1 << 20, "an image");
        assert_without_secrets("the image", &saved.stdout);
    }
    assert!(npm.asked().iter().any(|asked| asked.login.is_some()) && npm.was_asked_for("below"));
    assert!(pypi.was_asked_for("below"));
    runtime.clear().await;
}

/// All that the engine tells of this process's containers of bakes, while there is one.
fn containers_of_bakes() -> Vec<Value> {
    let owner = format!("label=org.bulkhead.owner.pid={}", std::process::id());
    let mut told: Vec<Value> = Vec::new();
    for _ in 0..400 {
        let ids = docker(&["ps", "--all", "--quiet", "--filter", &owner, "--filter", "name=bulkhead-bake-"]);
        for id in ids.lines() {
            // It may be gone by now.
            let inspected = try_docker(&["inspect", id]).unwrap_or_default();
            told.extend(serde_json::from_str::<Vec<Value>>(&inspected).unwrap_or_default());
        }
        if ids.is_empty() && !told.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    told
}

fn assert_hardened(container: &Value) {
    let (config, host) = (&container["Config"], &container["HostConfig"]);
    assert_eq!((&config["User"], &host["CapDrop"]), (&json!("10001:10001"), &json!(["ALL"])));
    assert_eq!((&host["CapAdd"], &host["Privileged"]), (&Value::Null, &json!(false)));
    assert_eq!((&host["SecurityOpt"], &host["LogConfig"]["Type"]), (&json!(["no-new-privileges"]), &json!("none")));
    assert!(host["Memory"].as_i64().unwrap() > 0 && host["Memory"] == host["MemorySwap"], "{host}");
    assert!(host["PidsLimit"].as_i64().unwrap() > 0, "{host}");
    assert_eq!((&host["Binds"], &container["Mounts"]), (&Value::Null, &json!([])));
    let memory = host["Tmpfs"].as_object().unwrap();
    assert!(["/bake", "/tmp", "/cache", "/home/mcp"].iter().all(|place| memory.contains_key(*place)), "{host}");
}

#[tokio::test]
async fn a_registry_that_asks_who_is_there_is_told_with_what_to_do() {
    let asking = with_packages(FakeRegistry::asking("Bearer something-else"));
    for (login, npm, pypi) in [
        (None, "set \"token\" in [registry.npm]", "set \"username\" and \"password\" in [registry.pypi]"),
        (token(), "the login in [registry.npm]: correct it", "the login in [registry.pypi]: correct it"),
    ] {
        let registry = leading(&asking, login.clone(), &asking, login.and(password()));
        for (package, says) in both().iter().zip([npm, pypi]) {
            let (baked, lines) = bake_from(&registry, None, RUNTIME, "registry", package).await;
            let fault = baked.unwrap_err();
            assert!(fault.outward.starts_with("cannot bake \"") && fault.outward.contains(says), "{fault:?}");
            assert_without_secrets("a failure", format!("{fault:?} {lines:?}").as_bytes());
        }
    }
    let lacking = Registry { lacks: vec!["it lacks this".to_owned()], ..Registry::default() };
    let fault = bake_from(&lacking, None, RUNTIME, "registry", &both()[0]).await.0.unwrap_err();
    assert_eq!((fault.class, fault.outward.as_str()), (Class::Usage, "cannot bake \"npx:top\": it lacks this"));
}

#[tokio::test]
async fn a_scope_is_asked_for_at_its_own_registry_and_nothing_else_is() {
    let all = with_packages(FakeRegistry::open());
    let acme = FakeRegistry::asking(&format!("Bearer {TOKEN}"));
    acme.publish_npm("@acme/tool", "1.0.0", "acme", &[("below", "1")]);
    // The name of somebody else's package on the public registry, and the other way round.
    all.publish_npm("@acme/tool", "9.9.9", "not acme's", &[]);
    acme.publish_npm("below", "9.9.9", "not below", &[]);
    let scopes = [("@acme".to_owned(), index(acme.npm(), token()))].into();
    let npm = Npm { index: Some(index(all.npm(), None)), scopes };
    let registry = Registry { npm, ..Registry::default() };
    let runtime = Runtime::new().await;
    let (baked, _) = bake(&registry, &runtime, &package(Runner::Npx, "@acme/tool", None)).await;
    assert_eq!(baked.unwrap().version, "1.0.0");
    assert!(!all.was_asked_for("acme") && !acme.was_asked_for("below"));
    assert!(all.was_asked_for("below") && all.asked().iter().all(|asked| asked.login.is_none()));
    runtime.clear().await;
}

#[tokio::test]
async fn a_proxy_is_the_way_where_one_is_set() {
    let behind = with_packages(FakeRegistry::open());
    let address = Some(Sensitive::new(format!("http://{}", behind.address())));
    let proxy = Proxy { https: address.clone(), http: address, except: Vec::new() };
    // A name that is known to nobody: only a proxy can lead there.
    let npm = Npm { index: Some(index("http://packages.invalid/".to_owned(), None)), scopes: BTreeMap::new() };
    let pypi = Some(index("http://packages.invalid/simple".to_owned(), None));
    let registry = Registry { proxy, npm, pypi, ..Registry::default() };
    behind
        .retell_npm("top", "1.0.0", |told| told["dist"]["tarball"] = json!("http://packages.invalid/-/top-1.0.0.tgz"));
    let runtime = Runtime::new().await;
    for package in both() {
        bake(&registry, &runtime, &package).await.0.unwrap();
    }
    let past =
        Registry { proxy: Proxy { except: vec!["packages.invalid".to_owned()], ..registry.proxy.clone() }, ..registry };
    for package in both() {
        assert!(bake(&past, &runtime, &package).await.0.is_err(), "{package:?}");
    }
    runtime.clear().await;
    assert!(behind.asked().iter().all(|asked| asked.target.starts_with("http://packages.invalid/")));
    assert!(behind.was_asked_for("/-/below-1.0.0.tgz") && behind.was_asked_for("/files/below-1.0-py3-none-any.whl"));
}

#[tokio::test]
async fn a_certificate_is_trusted_where_it_is_named_and_only_there() {
    let fake = with_packages(FakeRegistry::open());
    let tls = fake.behind_tls();
    let npm = Npm { index: Some(index(format!("{}/", tls.url), None)), scopes: BTreeMap::new() };
    let pypi = Some(index(format!("{}/simple", tls.url), None));
    let unknown = Registry { npm, pypi, ..Registry::default() };
    let ca = Some(std::fs::read_to_string(&tls.ca).unwrap());
    let trusted = Registry { ca, ..unknown.clone() };
    let runtime = Runtime::new().await;
    for package in both() {
        let fault = bake(&unknown, &runtime, &package).await.0.unwrap_err();
        assert!(fault.outward.to_lowercase().contains("certificate"), "{fault:?}");
        assert!(!fake.was_asked_for("top"));
    }
    for package in both() {
        bake(&trusted, &runtime, &package).await.0.unwrap();
    }
    assert!(fake.was_asked_for("/-/below-1.0.0.tgz") && fake.was_asked_for("/files/below-1.0-py3-none-any.whl"));
    runtime.clear().await;
}

#[tokio::test]
async fn a_lock_is_installed_as_it_is_whatever_is_newer_or_asked_for_by_now() {
    let fake = with_packages(FakeRegistry::open());
    let registry = leading(&fake, None, &fake, None);
    let runtime = Runtime::new().await;
    let mut first = Vec::new();
    for package in both() {
        first.push((bake(&registry, &runtime, &package).await.0.unwrap(), package));
    }
    runtime.clear().await;
    fake.publish_npm("top", "1.1.0", "newer", &[]);
    fake.publish_npm("below", "1.1.0", "newer", &[]);
    fake.publish_pypi("top", "1.1", "newer", &[]);
    fake.publish_pypi("below", "1.1", "newer", &[]);
    fake.publish_npm("evil", "1.0.0", "evil", &[]);
    fake.retell_npm("below", "1.0.0", |told| told["dependencies"] = json!({"evil": "1.0.0"}));
    for (baked, package) in &first {
        let runtime = Runtime::new().await;
        let other = "0".repeat(64);
        let wrong = Locked { content: Some(&other), ..locked(baked) };
        let fault = rebake(&registry, &runtime, wrong, package).await.unwrap_err();
        assert!(fault.outward.contains(&format!("{}, not the locked {other}", baked.content)), "{fault:?}");
        assert_eq!(runtime.baked(), 0);
        let again = rebake(&registry, &runtime, locked(baked), package).await.unwrap();
        assert_eq!((&again.content, &again.version, &again.tree), (&baked.content, &baked.version, &baked.tree));
        assert_eq!((again.reused, runtime.baked()), (false, 1));
        // An image with other content is not taken for it.
        assert!(rebake(&registry, &runtime, wrong, package).await.is_err());
        let free = Locked { content: None, ..locked(baked) };
        assert!(rebake(&registry, &runtime, free, package).await.unwrap().reused);
        runtime.clear().await;
    }
    assert!(!fake.was_asked_for("evil"));
}

/// Makes a registry serve other bytes for a package.
type Poison = fn(&FakeRegistry, &str);

/// Locks with an honest registry, and bakes with one that has been poisoned in either way: of a package that it tells of
/// as before, and of one of which it tells what it now has.
async fn refused_once_poisoned(package: Package, version: &str, ways: [Poison; 2]) {
    let honest = with_packages(FakeRegistry::open());
    let runtime = Runtime::new().await;
    let (baked, _) = bake(&leading(&honest, None, &honest, None), &runtime, &package).await;
    let baked = baked.unwrap();
    runtime.clear().await;
    let runtime = Runtime::new().await;
    for poisoned in ["top", "below"] {
        for poison in ways {
            let fake = with_packages(FakeRegistry::open());
            poison(&fake, poisoned);
            let lock = Locked { content: None, ..locked(&baked) };
            let outcome = rebake(&leading(&fake, None, &fake, None), &runtime, lock, &package).await;
            let fault = outcome.unwrap_err();
            let says = format!("the bytes of {poisoned} {version} from the ");
            assert!(fault.class == Class::Unavailable && fault.outward.contains(&says), "{fault:?}");
            assert!(fault.outward.contains(" are not the locked ones: "), "{fault:?}");
            assert_eq!(runtime.baked(), 0, "an image was made");
            assert!(fake.was_asked_for(poisoned));
        }
    }
    runtime.clear().await;
}

#[tokio::test]
async fn an_npm_registry_that_serves_other_bytes_for_what_is_locked_is_refused() {
    let ways: [Poison; 2] =
        [|fake, name| fake.swap_npm(name, "1.0.0", "evil"), |fake, name| fake.publish_npm(name, "1.0.0", "evil", &[])];
    refused_once_poisoned(package(Runner::Npx, "top", None), "1.0.0", ways).await;
}

#[tokio::test]
async fn an_index_that_serves_other_bytes_for_what_is_locked_is_refused() {
    let ways: [Poison; 2] =
        [|fake, name| fake.swap_pypi(name, "1.0", "evil"), |fake, name| fake.publish_pypi(name, "1.0", "evil", &[])];
    refused_once_poisoned(package(Runner::Uvx, "top", None), "1.0", ways).await;
}

#[tokio::test]
async fn a_lock_that_npm_or_uv_could_not_hold_anything_to_is_refused() {
    let fake = with_packages(FakeRegistry::open());
    let registry = leading(&fake, None, &fake, None);
    let runtime = Runtime::new().await;
    for package in both() {
        let baked = bake(&registry, &runtime, &package).await.0.unwrap();
        let edited = |edit: &dyn Fn(&mut Value)| -> Vec<String> {
            let all = baked.tree.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
            all.map(|mut value| {
                edit(&mut value);
                value.to_string()
            })
            .collect()
        };
        let without = edited(&|value| {
            value.as_object_mut().unwrap().retain(|member, _| member != "integrity" && member != "sha256");
        });
        let renumbered = edited(&|value| value["version"] = json!("2.0.0"));
        let (lock, asked) = (locked(&baked), fake.asked().len());
        for (lock, says) in [
            (Locked { tree: &without, ..lock }, "below 1.0"),
            (Locked { tree: &renumbered, ..lock }, "its tree has version \"2.0.0\""),
            (Locked { tree: &baked.tree[..1], ..lock }, "the package is not in its tree"),
            (Locked { integrity: Some("sha512-other"), ..lock }, "its tree has another hash for top"),
        ] {
            let fault = bake_from(&registry, Some(lock), RUNTIME, "registry", &package).await.0.unwrap_err();
            assert!(fault.class == Class::Usage && fault.outward.contains(says), "{fault:?}");
        }
        assert_eq!(fake.asked().len(), asked, "nothing was asked for");
    }
    runtime.clear().await;
}

/// A server that lists one tool.
const SERVER: &str = r#"
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const results = {
    initialize: { protocolVersion: params?.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "top", version: "1" } },
    "tools/list": { tools: [{ name: "t", inputSchema: { type: "object" } }] },
  };
  const answer = results[method] ? { result: results[method] } : { error: { code: -32601, message: "no such method" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
});
"#;

#[test]
fn the_command_bakes_by_its_configuration_and_then_by_its_lock_and_its_log_has_no_login() {
    let fake = FakeRegistry::asking(&format!("Bearer {TOKEN}"));
    fake.publish_npm_program("top", "1.0.0", SERVER, &[("below", "^1.0.0")]);
    // Of which no image was ever made.
    fake.publish_npm("below", "1.0.0", &uuid::Uuid::new_v4().to_string(), &[]);
    let mut site = Site::new(&format!(
        "[registry.npm]\nurl = {:?}\ntoken = \"env:NPM_TOKEN\"\n[servers.registrytop]\npackage = \"npx:top\"\n",
        fake.npm()
    ));
    site.set("NPM_TOKEN", TOKEN);
    let lock = |more: &[&str]| {
        let ran = site.run(&[&["lock", "--yes"], more].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_without_secrets("the command's output", format!("{ran:?}").as_bytes());
        assert!(ran.stderr.contains("registry.npm.url is http://"), "{}", ran.stderr);
        let lock = std::fs::read(site.path("bulkhead.lock")).unwrap();
        assert_without_secrets("the lock", &lock);
        serde_json::from_slice::<Value>(&lock).unwrap()["servers"]["registrytop"].clone()
    };
    let first = lock(&[]);
    assert!(fake.was_asked_for("/-/below-1.0.0.tgz"), "{:?}", fake.asked());
    assert_eq!((&first["version"], first["tree"].as_array().unwrap().len()), (&json!("1.0.0"), 2));
    fake.publish_npm_program("top", "1.1.0", SERVER, &[("below", "^1.0.0")]);
    fake.publish_npm("below", "1.1.0", "newer", &[]);
    let same = lock(&[]);
    assert_eq!((&same["tree"], &same["content"], &same["image"]), (&first["tree"], &first["content"], &first["image"]));
    let newer = lock(&["--update"]);
    assert_eq!(newer["version"], "1.1.0");
    assert_ne!(newer["content"], first["content"]);
    for image in docker(&["images", "--quiet", "bulkhead/server-registrytop"]).lines() {
        docker(&["rmi", "--force", image]);
    }
}
