//! No instance outlives its lease, and nothing that a session kept outlives the session.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bollard::models::Volume;
use bollard::query_parameters::ListVolumesOptionsBuilder;
use bulkhead::audit::{Audit, Redactor};
use bulkhead::compartment::lease::Terms;
use bulkhead::compartment::{Engine, Lease, Owner};
use bulkhead::config::Sync;
use bulkhead::config::env::Fixed;
use bulkhead::config::resolve::load;
use bulkhead::downstream::instance::Instance;
use bulkhead::downstream::pool::{Basis, Pool};
use bulkhead::name::{Principal, Role};
use bulkhead::route::lock::Lock;
use bulkhead::route::lock::pins::Pins;

use super::support::{FIXTURE, LONG, addresses, docker, remove_volume};

/// A pool of one server over a directory of its own.
struct Rig {
    pool: Arc<Pool>,
    gateway: String,
    principal: Principal,
    audit: PathBuf,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new(entry: &str, terms: Terms) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (path, audit) = (dir.path().join("bulkhead.toml"), dir.path().join("audit.jsonl"));
        std::fs::write(&path, format!("[servers.s]\nimage = {FIXTURE:?}\nidle_stop = \"1h\"\n{entry}\n")).unwrap();
        let config = load(&path, &Fixed::default()).unwrap_or_else(|faults| panic!("{faults}"));
        let gateway = format!("test-{}", uuid::Uuid::new_v4().simple());
        let owner = Owner::this_process(&gateway).for_scope(&path.to_string_lossy());
        let redactor = Arc::new(Redactor::default());
        let written = Arc::new(Audit::open(&audit, Sync::Batch, gateway.clone(), redactor.clone()).unwrap());
        let engine = Arc::new(Engine::new(Ok::<_, String>(addresses())).with_terms(terms));
        let none = Lock::default();
        let pins = Arc::new(Pins::open(dir.path(), &audit).unwrap());
        let basis = Basis::Approved { lock: &none, pins: &pins };
        let pool = Pool::new(Arc::new(config), basis, engine, owner, written, redactor, BTreeMap::new());
        let principal = Principal { id: Some("alice".into()), role: Role::parse("user").unwrap() };
        Rig { pool, gateway, principal, audit, _dir: dir }
    }

    async fn instance(&self, session: &str) -> Arc<Instance> {
        let started = self.pool.instance(&self.pool.roster().entries[0], &self.principal, session).await;
        started.unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// What the instances so far were stopped for, as it is recorded.
    async fn recorded(&self, words: &str) {
        let began = SystemTime::now();
        while !std::fs::read_to_string(&self.audit).unwrap().contains(words) {
            assert!(began.elapsed().unwrap() < LONG, "not recorded: {words}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Its volumes that are not meant to stay.
    async fn passing(&self) -> Vec<Volume> {
        let gateway = format!("org.bulkhead.gateway={}", self.gateway);
        let filters = HashMap::from([("label", vec![gateway.as_str(), "org.bulkhead.keep=no"])]);
        let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
        docker().await.list_volumes(Some(options)).await.unwrap().volumes.unwrap_or_default()
    }
}

async fn lease_of(instance: &Instance) -> Lease {
    let container = instance.confinement.container.as_deref().unwrap();
    let inspected = docker().await.inspect_container(container, None).await.unwrap();
    Lease::from_labels(&inspected.config.unwrap().labels.unwrap()).expect("a lease")
}

async fn gone(instance: &Instance) {
    tokio::time::timeout(LONG, instance.peer.gone()).await.expect("an end");
}

#[tokio::test]
async fn near_the_end_of_its_lease_an_instance_is_stopped_when_nobody_uses_it_and_the_next_call_starts_another() {
    let terms = Terms { instance: Duration::from_secs(600), margin: Duration::from_secs(594), ..Terms::default() };
    let rig = Rig::new("", terms);
    let used = rig.instance("s").await.hold();
    let lease = lease_of(&used).await;
    assert_eq!(used.lease, Some(lease));
    let margin = lease.end() - terms.margin;
    while SystemTime::now() < margin + Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(used.is_usable(), "it has a call in flight");
    let first = rig.instance("s").await;
    assert_eq!(first.confinement.container, used.confinement.container);
    drop(used);
    gone(&first).await;
    rig.recorded("its lease ends soon and nobody uses it now").await;
    assert_ne!(rig.instance("s").await.confinement.container, first.confinement.container);
    rig.pool.close().await;
}

#[tokio::test]
async fn at_the_end_of_its_lease_an_instance_ends_even_in_use() {
    let terms = Terms { instance: Duration::from_secs(5), margin: Duration::from_secs(1), ..Terms::default() };
    let rig = Rig::new("", terms);
    let first = rig.instance("s").await.hold();
    gone(&first).await;
    rig.recorded("its lease is over").await;
    let next = rig.instance("s").await;
    assert_ne!(next.confinement.container, first.confinement.container);
    assert!(next.lease.unwrap().end() > first.lease.unwrap().end());
    rig.pool.close().await;
}

#[tokio::test]
async fn what_a_session_kept_goes_with_it_and_with_nothing_else() {
    let terms = Terms::default();
    let rig = Rig::new("share = \"session\"\nstate = \"/keep\"\ncache = true", terms);
    let (one, other) = (rig.instance("one").await, rig.instance("other").await);
    let before = rig.passing().await;
    assert_eq!(before.len(), 4, "state and cache of each session: {before:?}");
    for volume in &before {
        assert!(Owner::from_labels(&volume.labels).is_some_and(|owner| owner.pid == std::process::id()));
        let lease = Lease::from_labels(&volume.labels).expect("a lease");
        assert!(lease.end() > SystemTime::now() + terms.instance, "a session goes on for longer than an instance");
    }
    // An instance may end and be started again within its session: it finds what it kept.
    one.peer.close().await;
    let again = rig.instance("one").await;
    let names = |volumes: &[Volume]| {
        let mut names: Vec<_> =
            volumes.iter().map(|v| (v.name.clone(), v.labels["org.bulkhead.born"].clone())).collect();
        names.sort();
        names
    };
    assert_eq!(names(&rig.passing().await), names(&before));

    rig.pool.end_session(&rig.principal, "one").await;
    gone(&again).await;
    let left = rig.passing().await;
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().all(|volume| volume.labels["org.bulkhead.principal"] == "alice/other"));
    assert!(other.is_usable());
    rig.pool.close().await;
    assert_eq!(rig.passing().await, []);
}

#[tokio::test]
async fn what_a_principal_kept_stays() {
    let rig = Rig::new("state = \"/keep\"", Terms::default());
    let instance = rig.instance("one").await;
    let container = instance.confinement.container.clone().unwrap();
    let inspected = docker().await.inspect_container(&container, None).await.unwrap();
    let mounts = inspected.mounts.unwrap();
    let name = mounts.iter().find(|m| m.destination.as_deref() == Some("/keep")).unwrap().name.clone().unwrap();
    assert_eq!(rig.passing().await, []);
    rig.pool.end_session(&rig.principal, "one").await;
    assert!(instance.is_usable(), "it is not the session's alone");
    rig.pool.close().await;
    let volume = docker().await.inspect_volume(&name).await.expect("it stays");
    assert!(!volume.labels.contains_key("org.bulkhead.lease"), "{volume:?}");
    remove_volume(&name).await;
}
