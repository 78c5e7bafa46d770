//! The instances of all servers: started once however many ask, supervised, stopped when idle, and started again only
//! after a pause that grows. Knows no client and no exposed name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::{Audit, Redactor};
use crate::compartment::{Engine, Owner};
use crate::config::{Config, Share};
use crate::egress::allowance::Allowances;
use crate::error::{Class, Fault};
use crate::name::Principal;
use crate::route::lock::Lock;
use crate::route::lock::pins::Pins;

use super::attached;
use super::budget::Budget;
use super::instance::Instance;

mod approved;
mod entry;
mod handover;
mod learn;
mod start;
mod status;

pub use approved::Made;
pub use entry::Entry;
use entry::Slot;
pub use handover::{Changes, Handover, Roster};
pub use status::State;

/// How long the records of what has ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How long the engine may take to remove what it could not remove before.
const CLEARED: Duration = Duration::from_secs(3);

/// How long a server may take to end by itself once its input is closed.
pub const GRACE: Duration = Duration::from_secs(3);

/// All servers and their instances.
pub struct Pool {
    roster: RwLock<Arc<Roster>>,
    /// What was in a roster before, and of which something may still run.
    leaving: Mutex<Vec<Arc<Entry>>>,
    engine: Arc<Engine>,
    owner: Owner,
    audit: Arc<Audit>,
    redactor: Arc<Redactor>,
    budget: Arc<Budget>,
    /// What servers have sent and received today, whatever has become of their instances.
    allowances: Allowances,
    host: BTreeMap<&'static str, String>,
    /// Where first listings are pinned; nowhere where somebody is about to look at them.
    pins: Option<Arc<Pins>>,
    closing: CancellationToken,
    /// The lives of all instances, each to its last record.
    lives: TaskTracker,
    /// Counted up whenever what is offered may have changed.
    changes: watch::Sender<u64>,
}

/// What the servers run from.
#[derive(Clone, Copy, Debug)]
pub enum Basis<'a> {
    /// What was approved: images and definitions, by the lock or else by what was pinned at the first use.
    Approved {
        /// The lock; empty where there is none.
        lock: &'a Lock,
        /// The pins, to which first listings are added.
        pins: &'a Arc<Pins>,
    },
    /// Images that were just made and whose tools nobody has seen yet, by the servers' names.
    Images(&'a BTreeMap<String, String>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// All servers of a configuration, nothing running. `host` is what an unisolated server may know of the host.
    pub fn new(
        config: Arc<Config>,
        basis: Basis<'_>,
        engine: Arc<Engine>,
        owner: Owner,
        audit: Arc<Audit>,
        redactor: Arc<Redactor>,
        host: BTreeMap<&'static str, String>,
    ) -> Arc<Self> {
        let pins = match basis {
            Basis::Approved { pins, .. } => Some(pins.clone()),
            Basis::Images(_) => None,
        };
        Arc::new(Pool {
            budget: Budget::new(config.total),
            roster: RwLock::new(Arc::new(Roster::new(config, basis))),
            leaving: Mutex::default(),
            engine,
            owner,
            audit,
            redactor,
            allowances: Allowances::default(),
            host,
            pins,
            closing: CancellationToken::new(),
            lives: TaskTracker::new(),
            changes: watch::Sender::new(0),
        })
    }

    /// The servers by the configuration in force. Whoever decides something takes it once.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether that is in force still.
    pub fn is_in_force(&self, roster: &Arc<Roster>) -> bool {
        Arc::ptr_eq(&self.roster.read().unwrap_or_else(PoisonError::into_inner), roster)
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
        let mut slots = lock(&entry.stock.slots);
        if entry.stock.leaving().is_some() {
            return Err(entry.gone());
        }
        match slots.get(owner) {
            Some(Slot::Running(instance)) if !instance.is_usable() => {}
            Some(slot) => return Ok(slot.clone()),
            None => {}
        }
        self.may_start(entry)?;
        let (tell, told) = watch::channel(None);
        let slot = Slot::Starting(told);
        slots.insert(owner.to_owned(), slot.clone());
        let life = self.clone().live(entry.clone(), owner.to_owned(), tell);
        self.lives.spawn(entry.stock.lives.track_future(life));
        Ok(slot)
    }

    fn may_start(&self, entry: &Entry) -> Result<(), Fault> {
        let name = &entry.server.name;
        if let Some(why) = &entry.server.disabled {
            return Err(Fault::new(Class::Unavailable, format!("server {name} is disabled: {why}")));
        }
        if let Some(held) = &entry.held {
            return Err(held.fault(name));
        }
        if self.closing.is_cancelled() {
            return Err(Fault::new(Class::Unavailable, "the gateway is shutting down"));
        }
        if let Some((fault, left)) = lock(&entry.stock.trouble).barred(Instant::now()) {
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
        let all = self.all();
        let own = all.iter().filter(|entry| entry.server.share == Share::Session);
        let ends = own.map(|entry| async {
            let slot = lock(&entry.stock.slots).get(&owner).cloned();
            if let Some(slot) = slot {
                slot.end().await;
            }
        });
        futures_util::future::join_all(ends).await;
        self.engine.forget_sessions(Some(&owner)).await;
    }

    /// Every server of which something may run.
    fn all(&self) -> Vec<Arc<Entry>> {
        self.roster().entries.iter().cloned().chain(self.leaving()).collect()
    }

    /// Ends every instance and waits until nothing of them is left, nor of what their sessions kept.
    pub async fn close(&self) {
        self.closing.cancel();
        let ends = self.all().into_iter().map(|entry| async move {
            let waits: Vec<_> = lock(&entry.stock.slots).values().cloned().collect();
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
