//! What no lock refers to any more: what of it goes, what stays for which reason, and how many bytes it has. All at engines
//! of the tests' own: whatever else is at the machine's engine is not theirs to remove.

use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::BuildImageOptionsBuilder;
use bulkhead::compartment::Engine;
use bulkhead::compartment::reap::{Collected, Rules, Wanted, collect, stock};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::engine::FIXTURE_SERVER;
use crate::support::second_engine::End;
use crate::support::site::{BULKHEAD, Ran, ran};
use crate::support::{SecondEngine, Site, wait_until};

const PACKAGE: (&str, &str) = ("org.bulkhead.package", "npx:x");
const EVERYTHING: [&str; 5] = ["reap", "--images", "--older-than", "0s", "--yes"];

// === images as they are baked, but small ===

/// Builds an image with a file of its own of that many bytes.
async fn build(docker: &Docker, from: &str, tag: &str, labels: &[(&str, &str)], size: usize) -> String {
    let file: String = std::iter::repeat_with(|| uuid::Uuid::new_v4().simple().to_string()).take(size / 32).collect();
    let dockerfile = format!("FROM {from}\nCOPY file /file\n");
    let mut context = tar::Builder::new(Vec::new());
    for (path, content) in [("Dockerfile", &dockerfile), ("file", &file)] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        context.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let labels = labels.iter().copied().collect();
    let options = BuildImageOptionsBuilder::new().t(tag).labels(&labels).rm(true).build();
    let context = bollard::body_full(context.into_inner().unwrap().into());
    let events: Vec<_> = docker.build_image(options, None, Some(context)).collect().await;
    events.iter().for_each(|event| assert!(event.is_ok(), "{event:?}"));
    docker.inspect_image(tag).await.unwrap().id.unwrap()
}

/// An engine, and images made at it.
struct Yard {
    engine: SecondEngine,
    docker: Docker,
    runtime: tokio::runtime::Runtime,
}

impl Yard {
    fn open() -> Option<Self> {
        let engine = SecondEngine::start()?;
        let socket = format!("unix://{}", engine.socket().display());
        let docker = Docker::connect_with_unix(&socket, 60, bollard::API_DEFAULT_VERSION).unwrap();
        Some(Yard { engine, docker, runtime: tokio::runtime::Runtime::new().unwrap() })
    }

    fn build(&self, from: &str, tag: &str, labels: &[(&str, &str)]) -> String {
        self.runtime.block_on(build(&self.docker, from, tag, labels, 64_000))
    }

    /// As if it had been baked for a server of that name.
    fn baked(&self, name: &str) -> String {
        self.baked_on("scratch", name)
    }

    /// The same with a program.
    fn baked_on(&self, from: &str, name: &str) -> String {
        let inputs = format!("inputs-of-{name}");
        self.build(from, &format!("bulkhead/server-{name}:1-0"), &[PACKAGE, ("org.bulkhead.inputs", &inputs)])
    }

    fn has(&self, image: &str) -> bool {
        self.engine.try_docker(&["image", "inspect", "--format", "{{.Id}}", image]).is_ok()
    }

    fn has_volume(&self, name: &str) -> bool {
        self.engine.try_docker(&["volume", "inspect", name]).is_ok()
    }

    fn docker(&self, args: &[&str]) -> String {
        self.engine.try_docker(args).unwrap_or_else(|error| panic!("docker {args:?}: {error}"))
    }

    /// A site whose one server has that image, locked.
    fn locked(&self, image: &str) -> Site {
        let site = Site::at(&self.engine, &server("fx", image));
        site.prints(&["lock", "--yes"]);
        site
    }
}

fn server(name: &str, image: &str) -> String {
    format!("[servers.{name}]\nimage = {image:?}\n")
}

/// What a collection tells, whatever it ended with.
fn told(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn reap(site: &Site, more: &[&str]) -> Value {
    let ran = site.run(&[&EVERYTHING[..], &["--json"], more].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    told(&ran)
}

/// Why something stays.
fn reason<'a>(told: &'a Value, id: &str) -> &'a str {
    let found = told["kept"].as_array().unwrap().iter().find(|kept| kept["id"] == *id);
    found.unwrap_or_else(|| panic!("{id}: {told}"))["reason"].as_str().unwrap()
}

fn names(told: &Value, list: &str) -> Vec<String> {
    let all = told[list].as_array().unwrap_or_else(|| panic!("{list}: {told}"));
    all.iter().map(|thing| thing["id"].as_str().unwrap().to_owned()).collect()
}

// === what goes and what stays ===

#[test]
fn what_no_lock_refers_to_goes_and_all_else_stays() {
    let Some(yard) = Yard::open() else { return };
    let kept = yard.baked_on(FIXTURE_SERVER, "kept");
    let site = yard.locked("bulkhead/server-kept:1-0");
    // From now on nothing but the lock refers to it.
    yard.docker(&["tag", "bulkhead/server-kept:1-0", "bulkhead/server-kept:2-0"]);
    site.configure(&server("fx", FIXTURE_SERVER));

    let loose = yard.baked("loose");
    yard.docker(&["tag", &loose, "bulkhead/server-other:1-0"]);
    let foreign = yard.build("scratch", "bulkhead/server-foreign:1-0", &[]);
    let named = yard.baked("named");
    yard.docker(&["tag", &named, "mine:1"]);
    let base = yard.baked("base");
    let upon = yard.build("bulkhead/server-base:1-0", "mine:2", &[]);
    let used = yard.baked("used");
    yard.docker(&["create", "--name", "box", &used, "/never"]);
    let theirs = [PACKAGE, ("org.bulkhead.inputs", "1"), ("org.bulkhead.keeper", "another")];
    let theirs = yard.build("scratch", "bulkhead/server-theirs:1-0", &theirs);
    let former = yard.build("scratch", "bulkhead/own:latest", &[("org.bulkhead.inputs", "1")]);
    let current = yard.build("scratch", "bulkhead/own:latest", &[("org.bulkhead.inputs", "2")]);

    // Nothing is old enough, and nobody says yes.
    let young = told(&site.run(&["reap", "--images", "--yes", "--json"]));
    assert_eq!(names(&young, "removed"), [""; 0], "{young}");
    assert!(reason(&young, &loose).contains("less than 7days ago"), "{young}");
    let tried = site.run(&["reap", "--images", "--older-than", "0s", "--dry-run", "--json"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    let tried = told(&tried);
    assert_eq!(names(&tried, "removed"), [""; 0], "{tried}");
    let mut unreferenced = names(&tried, "unreferenced");
    unreferenced.sort();
    let mut expected = [loose.clone(), former.clone()];
    expected.sort();
    assert_eq!(unreferenced, expected, "{tried}");
    for json in [&[][..], &["--json"]] {
        let asked = site.run(&[&["reap", "--images", "--older-than", "0s"], json].concat());
        assert_eq!(asked.code, Some(2), "{asked:?}");
        assert!(asked.stderr.contains("nobody to ask") && asked.stderr.contains("--yes"), "{asked:?}");
    }
    assert!(yard.has(&loose) && yard.has("bulkhead/server-other:1-0") && yard.has(&former));

    let said = reap(&site, &[]);
    let mut removed = names(&said, "removed");
    removed.sort();
    assert_eq!(removed, expected, "{said}");
    assert!(!yard.has(&loose) && !yard.has("bulkhead/server-loose:1-0") && !yard.has(&former), "{said}");
    for image in [&kept, &foreign, &named, &base, &upon, &used, &theirs, &current] {
        assert!(yard.has(image), "{image}: {said}");
    }
    for name in ["bulkhead/server-kept:1-0", "bulkhead/server-foreign:1-0", "mine:1", "bulkhead/server-named:1-0"] {
        assert!(yard.has(name), "{name}: {said}");
    }
    let lock = site.path("bulkhead.lock");
    assert_eq!(reason(&said, &kept), format!("referred to by {}", lock.display()));
    assert_eq!(reason(&said, &used), "in use by container box");
    assert_eq!(reason(&said, &named), "it has a name that is not ours, mine:1");
    assert_eq!(reason(&said, &base), "another image is built upon it");
    assert_eq!(reason(&said, &theirs), "another state directory made it");
    // What somebody else made is none of it, whatever it is called.
    assert!(!said.to_string().contains(&foreign) && !said.to_string().contains(&upon), "{said}");
    assert!(!said.to_string().contains(&current), "{said}");
    let again = reap(&site, &[]);
    assert_eq!(names(&again, "unreferenced"), [""; 0], "{again}");
}

#[test]
fn a_configuration_and_a_running_gateway_refer_to_images_as_a_lock_does() {
    let Some(yard) = Yard::open() else { return };
    let (named, served) = (yard.baked_on(FIXTURE_SERVER, "named"), yard.baked_on(FIXTURE_SERVER, "served"));
    let site = yard.locked("bulkhead/server-served:1-0");
    let serving = site.open();
    assert_eq!(site.server("fx")["image"], *served);
    // The lock, and what was kept of it as a pin.
    std::fs::remove_file(site.path("bulkhead.lock")).unwrap();
    std::fs::remove_dir_all(site.path("state/pins")).unwrap();
    site.configure(&server("fx", "bulkhead/server-named:1-0"));

    let said = reap(&site, &[]);
    assert_eq!(reason(&said, &named), format!("referred to by {}", site.config().display()));
    let gateway = format!("referred to by the gateway that runs as process {}", serving.pid());
    assert_eq!(reason(&said, &served), gateway);
    assert!(serving.close().status.success());
    let said = reap(&site, &[]);
    assert_eq!(names(&said, "removed"), [served], "{said}");
    assert!(yard.has(&named));
}

#[test]
fn what_was_seen_at_a_first_use_is_referred_to_and_has_to_be_readable() {
    let Some(yard) = Yard::open() else { return };
    let pinned = yard.baked_on(FIXTURE_SERVER, "pinned");
    let site = Site::at(&yard.engine, &server("fx", "bulkhead/server-pinned:1-0"));
    let mut serving = site.open();
    serving.text("fx__count", json!({}));
    assert!(serving.close().status.success());
    site.configure("");
    let said = reap(&site, &[]);
    let who = reason(&said, &pinned);
    assert!(who.starts_with(&format!("referred to by {}", site.path("state/pins").display())), "{who}");
    let pins = who.strip_prefix("referred to by ").unwrap();
    std::fs::write(pins, "nonsense").unwrap();
    let refused = site.run(&EVERYTHING);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("nothing is removed") && yard.has(&pinned), "{refused:?}");
    std::fs::remove_file(pins).unwrap();
    assert_eq!(names(&reap(&site, &[]), "removed"), [pinned]);
}

#[test]
fn what_a_lock_refers_to_does_not_go_with_what_is_built_upon_it() {
    let Some(yard) = Yard::open() else { return };
    let own = yard.build(FIXTURE_SERVER, "bulkhead/own:latest", &[("org.bulkhead.inputs", "1")]);
    let site = yard.locked("bulkhead/own");
    let upon = yard.baked_on("bulkhead/own", "upon");
    // Another has its name now, so the engine would remove it with the only image that is built upon it.
    yard.build("scratch", "bulkhead/own:latest", &[("org.bulkhead.inputs", "2")]);
    site.configure("");
    let said = reap(&site, &[]);
    assert!(
        reason(&said, &upon).ends_with(&format!("referred to by {}", site.path("bulkhead.lock").display())),
        "{said}"
    );
    assert!(yard.has(&own) && yard.has(&upon));
}

#[test]
fn bytes_are_told_without_what_is_shared() {
    let Some(yard) = Yard::open() else { return };
    let site = Site::at(&yard.engine, "");
    assert!(site.prints(&["reap", "--images"]).contains("may go: nothing"));
    let (one, two) = (yard.baked_on(FIXTURE_SERVER, "one"), yard.baked_on(FIXTURE_SERVER, "two"));
    // A name of its own keeps its base from being no more than a part of theirs.
    assert!(yard.has(FIXTURE_SERVER));
    let tried = told(&site.run(&["reap", "--images", "--older-than", "0s", "--dry-run", "--json"]));
    for image in tried["unreferenced"].as_array().unwrap() {
        assert_eq!(image["bytes"], 64_000, "{tried}");
    }
    let expected = json!({ "images": { "count": 2, "bytes": 128_000, "incomplete": false },
                           "volumes": { "count": 0, "bytes": 0, "incomplete": false } });
    assert_eq!(tried["bytes"]["unreferenced"], expected, "{tried}");
    let said = site.prints(&["reap", "--images", "--older-than", "0s", "--dry-run"]);
    assert!(said.contains("may go: 2 images, 128 kB\n") && said.contains("stays: nothing\n"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80 || line.starts_with("looked at: ")), "{said}");
    let checked = site.run(&["check"]).stdout;
    assert!(checked.contains("2 baked images, 128 kB"), "{checked}");
    assert!(said.contains(&one["sha256:".len()..][..12]) && said.contains(&two["sha256:".len()..][..12]), "{said}");
    let said = site.prints(&EVERYTHING);
    assert!(said.ends_with("removed: 2 images, 128 kB\n"), "{said}");
}

// === what cannot be read ===

#[test]
fn what_cannot_be_read_keeps_everything() {
    let Some(yard) = Yard::open() else { return };
    yard.baked_on(FIXTURE_SERVER, "kept");
    let site = yard.locked("bulkhead/server-kept:1-0");
    let loose = yard.baked("loose");
    let (lock, config) = (site.path("bulkhead.lock"), site.config());
    let (whole, configured) = (std::fs::read_to_string(&lock).unwrap(), std::fs::read_to_string(&config).unwrap());
    let refuses = |what: &str, why: &str| {
        for args in [&EVERYTHING[..], &["reap", "--images", "--dry-run"]] {
            let ran = site.run(args);
            assert_eq!(ran.code, Some(2), "{what}: {ran:?}");
            assert!(ran.stderr.contains(why) && ran.stderr.contains("nothing is removed"), "{what}: {ran:?}");
            assert!(yard.has(&loose), "{what}");
        }
        let checked = site.run(&["check"]).stdout;
        let words: Vec<&str> = checked.split_whitespace().collect();
        assert!(words.join(" ").contains("nothing is removed"), "{what}: {checked}");
    };
    let broken = [
        ("cut", whole[..whole.len() / 2].to_owned(), "EOF"),
        ("newer", whole.replacen("\"version\": ", "\"version\": 99", 1), "version 99"),
        ("edited", whole.replacen("\"hash\":\"", "\"hash\":\"0", 1), "changed by hand"),
        ("empty", String::new(), "EOF"),
    ];
    for (what, text, why) in broken {
        assert_ne!(text, whole, "{what}");
        std::fs::write(&lock, text).unwrap();
        refuses(what, why);
    }
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    refuses("a folder", "no regular file");
    std::fs::remove_dir(&lock).unwrap();
    std::os::unix::fs::symlink("nowhere", &lock).unwrap();
    refuses("a link", "a link to nothing");
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, &whole).unwrap();

    std::fs::write(&config, "nonsense").unwrap();
    refuses("configuration", "bulkhead.toml");
    std::fs::write(&config, &configured).unwrap();

    let register = site.path("state/locks");
    let entry = entries(&register).pop().unwrap();
    let text = std::fs::read_to_string(&entry).unwrap();
    for (what, bad) in [
        ("torn", text[..text.len() / 2].to_owned()),
        ("unknown", text.replacen('{', "{\"more\":1,", 1)),
        ("newer", text.replacen("\"version\":1", "\"version\":2", 1)),
        ("of another", text.replacen("bulkhead.toml", "other.toml", 1)),
    ] {
        assert_ne!(bad, text, "{what}");
        std::fs::write(&entry, bad).unwrap();
        refuses(what, "the entry");
    }
    std::fs::write(&entry, &text).unwrap();
    std::fs::write(register.join("stranger"), "x").unwrap();
    refuses("a stranger", "stranger");
    std::fs::remove_file(register.join("stranger")).unwrap();
    assert_eq!(names(&reap(&site, &[]), "removed"), [loose]);
}

/// The entries of a register.
fn entries(register: &Path) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(register).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

// === the register ===

/// A command with the state of one site and the configuration of another.
fn with_state_of(site: &Site, other: &Site, args: &[&str]) -> Ran {
    let mut command = other.with_environment(BULKHEAD);
    let (config, state) = (other.config(), site.path("state"));
    ran({
        command.args(args).arg("--config").arg(config).arg("--state").arg(state);
        command
    })
}

#[test]
fn every_configuration_that_a_state_directory_was_used_with_counts_until_it_is_gone() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(yard) = Yard::open() else { return };
    let (one, two) = (yard.baked_on(FIXTURE_SERVER, "one"), yard.baked_on(FIXTURE_SERVER, "two"));
    let site = yard.locked("bulkhead/server-one:1-0");
    let other = Site::at(&yard.engine, &server("fx", "bulkhead/server-two:1-0"));
    let locked = with_state_of(&site, &other, &["lock", "--yes"]);
    assert_eq!(locked.code, Some(0), "{locked:?}");
    let register = site.path("state/locks");
    assert_eq!(entries(&register).len(), 2);
    for path in entries(&register).iter().chain([&register.join("id")]) {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
    let said = reap(&site, &[]);
    assert!(reason(&said, &one).contains("bulkhead.lock") && reason(&said, &two).contains("bulkhead.lock"), "{said}");

    // A state directory that was never used goes by the configuration that it is shown, and by none removes nothing.
    let fresh = Site::at(&yard.engine, "");
    let said = told(&with_state_of(&fresh, &site, &["reap", "--images", "--older-than=0s", "--dry-run", "--json"]));
    assert_eq!(names(&said, "unreferenced"), [two.as_str()], "{said}");
    std::fs::remove_file(fresh.config()).unwrap();
    let refused = fresh.run(&EVERYTHING);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("no configuration was ever used with"), "{refused:?}");
    assert!(yard.has(&one) && yard.has(&two));

    // A disk that is not there may have it: nothing is removed before somebody says that it is gone.
    let theirs = |path: &Path| std::fs::read_to_string(path).unwrap().contains(other.config().to_str().unwrap());
    let entry = entries(&register).into_iter().find(|path| theirs(path)).unwrap();
    let lock = other.path("bulkhead.lock");
    for path in [&other.config(), &lock] {
        std::fs::remove_file(path).unwrap();
    }
    let text = std::fs::read_to_string(&entry).unwrap();
    let mut elsewhere: Value = serde_json::from_str(&text).unwrap();
    elsewhere["mounted"] = json!(register);
    std::fs::write(&entry, elsewhere.to_string()).unwrap();
    let refused = site.run(&EVERYTHING);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("neither is the file system that was at"), "{refused:?}");
    assert!(yard.has(&two));
    let unknown = site.run(&[&EVERYTHING[..], &["--forget", "/no/such.lock"]].concat());
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("/no/such.lock"), "{unknown:?}");
    let tried = ["reap", "--images", "--older-than=0s", "--dry-run", "--json", "--forget", lock.to_str().unwrap()];
    assert_eq!(names(&told(&site.run(&tried)), "unreferenced"), [two.as_str()]);
    assert_eq!(entries(&register).len(), 2, "that was only tried");

    // Where the file system is there and they are not, they are gone.
    std::fs::write(&entry, text).unwrap();
    let said = reap(&site, &[]);
    assert_eq!(names(&said, "removed"), [two], "{said}");
    assert_eq!(said["forgotten"], json!([lock]), "{said}");
    assert_eq!(entries(&register).len(), 1);
    assert!(yard.has(&one));
}

#[test]
fn the_register_outlives_whoever_writes_it() {
    let Some(yard) = Yard::open() else { return };
    let site = Site::at(&yard.engine, "");
    let others: Vec<Site> = (0..40).map(|_| Site::at(&yard.engine, "")).collect();
    let start = |other: &Site| {
        let mut command = other.with_environment(BULKHEAD);
        command.arg("tools").arg("--config").arg(other.config()).arg("--state").arg(site.path("state"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut running: Vec<_> = others.iter().map(start).collect();
    for child in &mut running {
        std::thread::sleep(Duration::from_millis(2));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let tried = site.run(&["reap", "--images", "--dry-run", "--json"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    // Whoever comes to its end is in it, whatever has become of the others.
    let together: Vec<_> = others.iter().map(|other| with_state_of(&site, other, &["tools"])).collect();
    assert!(together.iter().all(|ran| ran.code == Some(0)), "{together:?}");
    let known = told(&site.run(&["reap", "--images", "--dry-run", "--json"]))["locks"].as_array().unwrap().len();
    assert_eq!(known, others.len() + 1, "and the one that was looked from");
}

// === volumes ===

#[test]
fn state_goes_only_with_its_server_and_only_where_that_is_said() {
    let Some(yard) = Yard::open() else { return };
    let keeping = |name: &str| server(name, FIXTURE_SERVER) + "state = \"/keep\"\n";
    let site = Site::at(&yard.engine, &(keeping("stays") + &keeping("leaves")));
    let mut serving = site.open();
    for name in ["stays", "leaves"] {
        serving.text(&format!("{name}__count"), json!({}));
    }
    let volume = |name: &str| yard.docker(&["volume", "ls", "--quiet", "--filter", &format!("name=state-{name}-")]);
    let (stays, leaves) = (volume("stays"), volume("leaves"));
    let labels = yard.docker(&["volume", "inspect", "--format", "{{json .Labels}}", &leaves]);
    assert!(!labels.contains(site.path("").to_str().unwrap()), "no path is shown: {labels}");
    site.configure(&keeping("stays"));
    let said = reap(&site, &["--volumes"]);
    assert!(reason(&said, &leaves).starts_with("in use by container "), "{said}");
    assert!(serving.close().status.success());

    // One as earlier versions made them, and one of another state directory.
    let of = |name: &str, more: &[&str]| {
        let common = ["volume", "create", "--label=org.bulkhead.role=volume", "--label=org.bulkhead.server=old"];
        yard.docker(&[&common[..], more, &[name]].concat())
    };
    let old = of("bulkhead-state-old-0123456789ab", &[]);
    let theirs = of("bulkhead-state-old-ba9876543210", &["--label=org.bulkhead.keeper=another"]);

    let said = reap(&site, &[]);
    assert_eq!(names(&said, "removed"), [""; 0], "{said}");
    let why = format!(
        "server leaves of {} is no more; it is data: to remove it, say --volumes, too",
        site.config().display()
    );
    assert_eq!(reason(&said, &leaves), why);
    let young = told(&site.run(&["reap", "--images", "--volumes", "--yes", "--json"]));
    assert_eq!(names(&young, "removed"), [""; 0], "{young}");
    let asked = site.run(&["reap", "--images", "--volumes", "--older-than", "0s"]);
    assert_eq!(asked.code, Some(2), "{asked:?}");
    assert!(yard.has_volume(&leaves));
    let said = reap(&site, &["--volumes"]);
    assert_eq!(names(&said, "removed"), [leaves.as_str()], "{said}");
    assert!(said["removed"][0]["bytes"].is_u64() && said["removed"][0]["used"].is_string(), "{said}");
    assert!(!yard.has_volume(&leaves));
    assert!(reason(&said, &stays).ends_with("has it"), "{said}");
    assert_eq!(reason(&said, &old), "it does not say which state directory made it");
    assert_eq!(reason(&said, &theirs), "another state directory made it");

    // A configuration that is gone stays known for as long as it has something here.
    std::fs::remove_file(site.config()).unwrap();
    let loose = yard.baked("loose");
    let said = reap(&site, &[]);
    assert_eq!(names(&said, "removed"), [loose], "{said}");
    assert_eq!(said["forgotten"], json!([]), "{said}");
    let said = reap(&site, &["--volumes"]);
    assert_eq!(names(&said, "removed"), [stays], "{said}");
    assert_eq!(said["forgotten"], json!([site.path("bulkhead.lock")]), "{said}");
    assert!(yard.has_volume(&old) && yard.has_volume(&theirs));
}

// === races ===

const AT_ONCE: Rules = Rules { older_than: Duration::ZERO, volumes: true };

fn engine(yard: &Yard) -> Engine {
    Engine::new(Ok::<_, String>(vec![format!("unix://{}", yard.engine.socket().display())]))
}

fn ids(collected: &Collected) -> [Vec<String>; 3] {
    let removed = collected.removed.iter().map(|thing| thing.item.id.clone()).collect();
    let left = collected.left.iter().map(|left| left.item.id.clone()).collect();
    let failed = collected.failed.iter().filter_map(|failed| Some(failed.item.as_ref()?.id.clone())).collect();
    [removed, left, failed]
}

#[test]
fn what_is_needed_since_it_was_looked_at_is_not_removed() {
    let Some(yard) = Yard::open() else { return };
    let all = ["locked", "named", "used", "free"].map(|name| yard.baked(name));
    let [locked, named, used, free] = &all;
    for image in &all {
        yard.docker(&["tag", image, &format!("bulkhead/server-second:{}-0", &image[7..19])]);
    }
    yard.runtime.block_on(async {
        let engine = engine(&yard);
        let stock = stock(&engine, &Wanted::default(), &AT_ONCE).await.unwrap();
        assert_eq!(stock.unreferenced.len(), 4, "{stock:?}");
        yard.docker(&["tag", named, "mine:1"]);
        yard.docker(&["create", "--name", "box", used, "/never"]);
        let wanted = async || {
            let mut wanted = Wanted::default();
            wanted.image(locked, "/a/lock");
            Ok(wanted)
        };
        let collected = collect(&engine, stock.unreferenced, &AT_ONCE, wanted).await;
        let [removed, mut left, failed] = ids(&collected);
        left.sort();
        let mut expected = [locked.clone(), named.clone(), used.clone()];
        expected.sort();
        assert_eq!((removed, left, failed), (vec![free.clone()], expected.to_vec(), vec![]), "{collected:?}");
    });
    for image in [locked, named, used] {
        let names = yard.docker(&["image", "inspect", "--format", "{{len .RepoTags}}", image]);
        assert_eq!(names, if image == named { "3" } else { "2" });
    }
    assert!(!yard.has(free));
}

#[test]
fn a_lock_that_turns_bad_meanwhile_ends_the_removal() {
    let Some(yard) = Yard::open() else { return };
    let all = ["a", "b", "c"].map(|name| yard.baked(name));
    let looks = Mutex::new(0);
    yard.runtime.block_on(async {
        let engine = engine(&yard);
        let stock = stock(&engine, &Wanted::default(), &AT_ONCE).await.unwrap();
        let wanted = async || {
            let mut looks = looks.lock().unwrap();
            *looks += 1;
            let bad = || bulkhead::error::Fault::new(bulkhead::error::Class::Usage, "it cannot be read");
            if *looks > 1 { Err(bad()) } else { Ok(Wanted::default()) }
        };
        let [removed, left, failed] = ids(&collect(&engine, stock.unreferenced, &AT_ONCE, wanted).await);
        assert_eq!((removed.len(), left.len(), failed.len()), (1, 0, 2));
    });
    assert_eq!(all.iter().filter(|image| yard.has(image)).count(), 2);
}

#[test]
fn two_at_once_remove_all_and_fail_at_nothing() {
    let Some(yard) = Yard::open() else { return };
    let all: Vec<String> = (0..12).map(|number| yard.baked(&format!("n{number}"))).collect();
    let site = Site::at(&yard.engine, "");
    let start = |_| {
        let mut command = site.command(&[&EVERYTHING[..], &["--json"]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap()
    };
    let both: Vec<_> = (0..2).map(start).collect();
    for child in both {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    wait_until("all are gone", Duration::from_secs(5), || !all.iter().any(|image| yard.has(image)));
}

#[test]
fn an_engine_that_goes_away_meanwhile_is_named_with_each_thing() {
    let Some(yard) = Yard::open() else { return };
    let all = ["a", "b"].map(|name| yard.baked(name));
    yard.runtime.block_on(async {
        let engine = engine(&yard);
        let stock = stock(&engine, &Wanted::default(), &AT_ONCE).await.unwrap();
        yard.engine.end(End::Kill);
        let collected = collect(&engine, stock.unreferenced, &AT_ONCE, async || Ok(Wanted::default())).await;
        let [removed, left, mut failed] = ids(&collected);
        failed.sort();
        let mut expected = all.to_vec();
        expected.sort();
        assert_eq!((removed.len(), left.len(), failed), (0, 0, expected));
        assert!(collected.failed.iter().all(|failed| failed.reason.contains("engine")), "{collected:?}");
    });
    yard.engine.begin();
    assert!(all.iter().all(|image| yard.has(image)));
    let site = Site::at(&yard.engine, "");
    yard.engine.end(End::Kill);
    assert_eq!(site.run(&EVERYTHING).code, Some(6));
    yard.engine.begin();
}
