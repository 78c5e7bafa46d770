//! The instances of all servers: started once however many ask, supervised, stopped when idle, and started again only
//! after a pause that grows. Knows no client and no exposed name.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::{Audit, Redactor};
use crate::compartment::{Engine, Owner};
use crate::config::{Config, Server, Share};
use crate::egress::allowance::Allowances;
use crate::error::{Class, Fault};
use crate::name::Principal;
use crate::route::Listing;
use crate::route::lock::Lock;

use super::attached;
use super::budget::Budget;
use super::instance::Instance;
use super::trouble::Trouble;

mod learn;
mod start;
mod status;

pub use status::State;

/// How long the records of what has ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How long the engine may take to remove what it could not remove before.
const CLEARED: Duration = Duration::from_secs(3);

/// How long a server may take to end by itself once its input is closed.
pub const GRACE: Duration = Duration::from_secs(3);

/// All servers and their instances.
pub struct Pool {
    /// In the order of the configuration.
    pub servers: Vec<Arc<Entry>>,
    engine: Arc<Engine>,
    owner: Owner,
    audit: Arc<Audit>,
    redactor: Arc<Redactor>,
    budget: Arc<Budget>,
    /// What servers have sent and received today, whatever has become of their instances.
    allowances: Allowances,
    host: BTreeMap<&'static str, String>,
    closing: CancellationToken,
    /// The lives of all instances, each to its last record.
    lives: TaskTracker,
    /// Counted up whenever what is offered may have changed.
    changes: watch::Sender<u64>,
}

/// One server.
pub struct Entry {
    /// Its configuration.
    pub server: Arc<Server>,
    /// The image that was locked or baked for this very configuration.
    pub image: Option<String>,
    /// Whether there is a lock that does not count, since the configuration has changed.
    stale: bool,
    slots: Mutex<HashMap<String, Slot>>,
    offer: Mutex<Offer>,
    trouble: Mutex<Trouble>,
    learning: AtomicBool,
}

/// What the servers run from.
#[derive(Clone, Copy, Debug)]
pub enum Basis<'a> {
    /// What was approved: images and definitions, if there is a lock.
    Lock(Option<&'a Lock>),
    /// Images that were just made and whose tools nobody has seen yet, by the servers' names.
    Images(&'a BTreeMap<String, String>),
}

/// What a server offers: as approved, and as served.
#[derive(Default)]
struct Offer {
    approved: Option<Arc<Listing>>,
    served: Option<Arc<Listing>>,
}

/// An instance, or the wait for it.
#[derive(Clone)]
enum Slot {
    Starting(watch::Receiver<Option<Result<Arc<Instance>, Fault>>>),
    Running(Arc<Instance>),
}

impl Slot {
    /// Ends the instance. One on its way is waited for: it may have come up before it could see that it is to end.
    async fn end(self) {
        let instance = match self {
            Slot::Running(instance) => Some(instance),
            Slot::Starting(mut told) => told.wait_for(Option::is_some).await.ok().and_then(|told| told.clone()?.ok()),
        };
        if let Some(instance) = instance {
            instance.peer.close().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entry {
    fn new(server: &Server, basis: Basis<'_>) -> Self {
        let name = server.name.as_str();
        let (image, approved, stale) = match basis {
            Basis::Images(images) => (images.get(name).cloned(), None, false),
            Basis::Lock(lock) => {
                let named = lock.and_then(|l| l.servers.get(name));
                let locked = named.filter(|l| l.config == server.digest);
                let definitions = locked.map(|l| l.tools.iter().map(|t| t.definition.get().to_owned()).collect());
                let approved = definitions.map(|all| Arc::new(Listing::of(all, None)));
                (locked.and_then(|l| l.image.clone()), approved, named.is_some() && locked.is_none())
            }
        };
        Entry {
            server: Arc::new(server.clone()),
            image,
            stale,
            slots: Mutex::default(),
            offer: Mutex::new(Offer { served: approved.clone(), approved }),
            trouble: Mutex::default(),
            learning: AtomicBool::new(false),
        }
    }

    /// What it offers now, if that is known.
    pub fn listing(&self) -> Option<Arc<Listing>> {
        lock(&self.offer).served.clone()
    }

    /// The last failure, if it has not run well since.
    pub fn last_fault(&self) -> Option<Fault> {
        lock(&self.trouble).last().cloned()
    }

    /// The instances that run and take calls.
    pub fn instances(&self) -> Vec<Arc<Instance>> {
        let running = |slot: &Slot| match slot {
            Slot::Running(instance) if instance.is_usable() => Some(instance.clone()),
            Slot::Running(_) | Slot::Starting(_) => None,
        };
        lock(&self.slots).values().filter_map(running).collect()
    }
}

impl Pool {
    /// All servers of a configuration, nothing running. `host` is what an unisolated server may know of the host.
    pub fn new(
        config: &Config,
        basis: Basis<'_>,
        engine: Arc<Engine>,
        owner: Owner,
        audit: Arc<Audit>,
        redactor: Arc<Redactor>,
        host: BTreeMap<&'static str, String>,
    ) -> Arc<Self> {
        Arc::new(Pool {
            servers: config.servers.iter().map(|s| Arc::new(Entry::new(s, basis))).collect(),
            engine,
            owner,
            audit,
            redactor,
            budget: Budget::new(config.total),
            allowances: Allowances::default(),
            host,
            closing: CancellationToken::new(),
            lives: TaskTracker::new(),
            changes: watch::Sender::new(0),
        })
    }

    /// Tells whenever what is offered may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|n| *n += 1);
    }

    /// The instance that serves this principal (and session), started if need be and proven before it is returned.
    pub async fn instance(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        principal: &Principal,
        session: &str,
    ) -> Result<Arc<Instance>, Fault> {
        let owner = match entry.server.share {
            Share::Principal => principal.key().to_owned(),
            Share::Session => session_key(principal, session),
            Share::All => "all".to_owned(),
        };
        let mut waiting = match self.slot(entry, &owner)? {
            Slot::Running(instance) => return Ok(instance),
            Slot::Starting(waiting) => waiting,
        };
        match waiting.wait_for(Option::is_some).await {
            Ok(started) => started.clone().unwrap_or_else(|| Err(lost())),
            Err(_) => Err(lost()),
        }
    }

    /// What is there for an owner; where there is nothing, a start that goes on even if nobody waits for it any more, so
    /// that a caller who gives up leaves no half-made container.
    fn slot(self: &Arc<Self>, entry: &Arc<Entry>, owner: &str) -> Result<Slot, Fault> {
        let mut slots = lock(&entry.slots);
        match slots.get(owner) {
            Some(Slot::Running(instance)) if !instance.is_usable() => {}
            Some(slot) => return Ok(slot.clone()),
            None => {}
        }
        self.may_start(entry)?;
        let (tell, told) = watch::channel(None);
        let slot = Slot::Starting(told);
        slots.insert(owner.to_owned(), slot.clone());
        self.lives.spawn(self.clone().live(entry.clone(), owner.to_owned(), tell));
        Ok(slot)
    }

    fn may_start(&self, entry: &Entry) -> Result<(), Fault> {
        let name = &entry.server.name;
        if let Some(why) = &entry.server.disabled {
            return Err(Fault::new(Class::Unavailable, format!("server {name} is disabled: {why}")));
        }
        if self.closing.is_cancelled() {
            return Err(Fault::new(Class::Unavailable, "the gateway is shutting down"));
        }
        if let Some((fault, left)) = lock(&entry.trouble).barred(Instant::now()) {
            let again = format!("not tried again for {:.1} s", left.as_secs_f32());
            // Nothing was sent this time, whatever became of the call that met the failure.
            let class = match fault.class {
                class @ (Class::Engine | Class::Isolation) => class,
                _ => Class::Unavailable,
            };
            return Err(Fault { class, outward: format!("{} ({again})", fault.outward), inward: fault.inward.clone() });
        }
        Ok(())
    }

    /// Ends what was started for one session alone and removes what that kept. The session's calls must have ended.
    pub async fn end_session(&self, principal: &Principal, session: &str) {
        let owner = session_key(principal, session);
        let own = self.servers.iter().filter(|entry| entry.server.share == Share::Session);
        let ends = own.map(|entry| async {
            let slot = lock(&entry.slots).get(&owner).cloned();
            if let Some(slot) = slot {
                slot.end().await;
            }
        });
        futures_util::future::join_all(ends).await;
        self.engine.forget_sessions(Some(&owner)).await;
    }

    /// Ends every instance and waits until nothing of them is left, nor of what their sessions kept.
    pub async fn close(&self) {
        self.closing.cancel();
        let ends = self.servers.iter().map(|entry| async move {
            let waits: Vec<_> = lock(&entry.slots).values().cloned().collect();
            for slot in waits {
                slot.end().await;
            }
        });
        futures_util::future::join_all(ends).await;
        // An instance that is gone has still to be recorded as such.
        self.lives.close();
        if tokio::time::timeout(LAST_WORDS, self.lives.wait()).await.is_err() {
            tracing::warn!("{} instances may lack the record of their end", self.lives.len());
        }
        attached::cleared(CLEARED).await;
        self.engine.forget_sessions(None).await;
    }
}

/// Whom the instances of one session belong to.
fn session_key(principal: &Principal, session: &str) -> String {
    format!("{}/{session}", principal.key())
}

fn lost() -> Fault {
    Fault::new(Class::Bug, "the start of the server was lost")
}
