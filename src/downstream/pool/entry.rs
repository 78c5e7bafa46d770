//! One server of the configuration in force, and what it has of instances, tools and trouble. That outlives a reload which
//! changes nothing of what runs. Starts nothing.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Approval, Server};
use crate::error::{Class, Fault};
use crate::route::Listing;
use crate::route::lock::LockedServer;

use super::super::instance::Instance;
use super::super::trouble::Trouble;
use super::approved::{Held, Standing};
use super::{Basis, lock};

/// One server.
pub struct Entry {
    /// Its configuration.
    pub server: Arc<Server>,
    /// The image that was locked or baked for this very configuration.
    pub image: Option<String>,
    /// Why nothing of it may run before somebody has approved it, if so.
    pub(super) held: Option<Held>,
    /// What was pinned at its first use, where that is what it is held against.
    pub(super) pinned: Mutex<Option<Arc<LockedServer>>>,
    pub(super) stock: Arc<Stock>,
}

/// What one server has, for as long as it stays the same server.
pub(super) struct Stock {
    pub(super) slots: Mutex<HashMap<String, Slot>>,
    pub(super) offer: Mutex<Offer>,
    pub(super) trouble: Mutex<Trouble>,
    pub(super) learning: AtomicBool,
    /// The lives of its instances, each to its last record.
    pub(super) lives: TaskTracker,
    /// How long an instance may be unused; whoever looks after one looks here.
    idle_stop: Mutex<Duration>,
    leaving: OnceLock<Leaving>,
    left: CancellationToken,
}

/// Why a server is no more what it was, and until when calls that it has may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) why: &'static str,
    pub(super) until: Instant,
}

/// What a server offers: as approved, as it says itself, and as served.
#[derive(Default)]
pub(super) struct Offer {
    approved: Option<Arc<Listing>>,
    live: Option<Arc<Listing>>,
    served: Option<Arc<Listing>>,
}

/// An instance, or the wait for it.
#[derive(Clone)]
pub(super) enum Slot {
    Starting(watch::Receiver<Option<Result<Arc<Instance>, Fault>>>),
    Running(Arc<Instance>),
}

// === impl Slot ===

impl Slot {
    /// The instance. One on its way is waited for: it may have come up before it could see that it is to end.
    async fn instance(self) -> Option<Arc<Instance>> {
        match self {
            Slot::Running(instance) => Some(instance),
            Slot::Starting(mut told) => told.wait_for(Option::is_some).await.ok().and_then(|told| told.clone()?.ok()),
        }
    }

    /// Ends the instance.
    pub(super) async fn end(self) {
        if let Some(instance) = self.instance().await {
            instance.peer.close().await;
        }
    }

    /// Takes its way out from an instance at once. One that has none of ours to close is ended: there is no other way to
    /// keep it from what it may reach.
    pub(super) async fn cut(self) {
        let Some(instance) = self.instance().await else { return };
        let shut = match &instance.way {
            Some(way) => way.shut().await,
            None => false,
        };
        if !shut {
            instance.peer.close().await;
        }
    }
}

// === impl Offer ===

impl Offer {
    /// The approved one, before anything has run.
    fn of(approved: Option<Arc<Listing>>) -> Self {
        Offer { served: approved.clone(), approved, live: None }
    }

    /// Takes in what a server offers, and holds it against what is approved, or against `first` where that is nothing yet;
    /// without either it is the first itself. Whether that changes what is served.
    pub(super) fn take(&mut self, live: Listing, first: Option<Listing>) -> (Arc<Listing>, bool) {
        let live = Arc::new(live);
        self.live = Some(live.clone());
        self.approved.get_or_insert_with(|| first.map_or(live, Arc::new));
        self.settle()
    }

    /// Whether nothing is known yet that a listing could be held against.
    pub(super) fn is_first(&self) -> bool {
        self.approved.is_none()
    }

    /// Puts in another approved one, where there is one; what was pinned stays otherwise.
    fn approve(&mut self, approved: Option<Arc<Listing>>) {
        if approved.is_some() {
            self.approved = approved;
            self.settle();
        }
    }

    fn settle(&mut self) -> (Arc<Listing>, bool) {
        let served = match (&self.approved, &self.live) {
            (Some(approved), Some(live)) if !Arc::ptr_eq(approved, live) => {
                Arc::new(Listing::clone(live).held_against(approved))
            }
            (_, Some(only)) | (Some(only), None) => only.clone(),
            (None, None) => Arc::default(),
        };
        let news = self.served.as_deref() != Some(&served);
        self.served = Some(served.clone());
        (served, news)
    }
}

// === impl Stock ===

impl Stock {
    fn new(idle_stop: Duration, approved: Option<Arc<Listing>>) -> Arc<Self> {
        Arc::new(Stock {
            slots: Mutex::default(),
            offer: Mutex::new(Offer::of(approved)),
            trouble: Mutex::default(),
            learning: AtomicBool::new(false),
            lives: TaskTracker::new(),
            idle_stop: Mutex::new(idle_stop),
            leaving: OnceLock::new(),
            left: CancellationToken::new(),
        })
    }

    /// Whether it is no more what it was, and why.
    pub(super) fn leaving(&self) -> Option<Leaving> {
        self.leaving.get().copied()
    }

    /// Resolves when it is no more what it was.
    pub(super) async fn left(&self) {
        self.left.cancelled().await;
    }

    /// How long an instance may be unused.
    pub(super) fn idle_stop(&self) -> Duration {
        *lock(&self.idle_stop)
    }

    /// From now on no call comes in and nothing is started; what runs ends once its calls have, at the time given at the
    /// latest. Returns what there was.
    pub(super) fn leave(&self, why: &'static str, calls: Duration) -> Vec<Slot> {
        // Whoever starts something holds these.
        let slots = lock(&self.slots);
        let _ = self.leaving.set(Leaving { why, until: Instant::now() + calls });
        self.left.cancel();
        slots.values().cloned().collect()
    }

    /// What there is, whether it runs or is on its way.
    pub(super) fn slots(&self) -> Vec<Slot> {
        lock(&self.slots).values().cloned().collect()
    }

    /// The instances, of which some may be about to end.
    pub(super) fn running(&self) -> Vec<Arc<Instance>> {
        let running = |slot: &Slot| match slot {
            Slot::Running(instance) => Some(instance.clone()),
            Slot::Starting(_) => None,
        };
        lock(&self.slots).values().filter_map(running).collect()
    }
}

// === impl Entry ===

impl Entry {
    pub(super) fn new(server: &Server, approval: Approval, basis: Basis<'_>) -> Self {
        let standing = Standing::of(server, approval, basis);
        Entry {
            stock: Stock::new(server.idle_stop, standing.approved),
            server: Arc::new(server.clone()),
            image: standing.image,
            held: standing.held,
            pinned: Mutex::new(standing.pinned),
        }
    }

    /// The same server as before under another configuration, where its instances are this one's, too. What was approved
    /// for it comes with it, and is for [`Self::take_over`].
    pub(super) fn going_on(self, before: &Entry) -> Result<(Self, Option<Arc<Listing>>), Self> {
        if !self.server.runs_like(&before.server) || self.image != before.image {
            return Err(self);
        }
        let approved = lock(&self.stock.offer).approved.clone();
        Ok((Entry { stock: before.stock.clone(), ..self }, approved))
    }

    /// Another server in the place of one: until it has said itself what it offers, it is taken to offer the same, so that
    /// a list does not flicker with each change.
    pub(super) fn instead_of(self, before: &Entry) -> Self {
        let may_run = self.server.disabled.is_none() && self.held.is_none();
        if may_run && !self.is_listed() {
            lock(&self.stock.offer).served = before.listing();
        }
        self
    }

    /// Has what was approved, and the times of this configuration, hold for what runs already.
    pub(super) fn take_over(&self, approved: Option<Arc<Listing>>) {
        lock(&self.stock.offer).approve(approved);
        *lock(&self.stock.idle_stop) = self.server.idle_stop;
    }

    /// The image that it has to have, if there is one: another one under the same reference is not it.
    pub(super) fn approved_image(&self) -> Option<String> {
        let pinned = || {
            let pinned = lock(&self.pinned).clone()?;
            let same = pinned.settings.get("reference") == self.server.settings.get("reference");
            pinned.image.clone().filter(|_| same)
        };
        self.image.clone().or_else(pinned)
    }

    /// What it offers now, if that is known.
    pub fn listing(&self) -> Option<Arc<Listing>> {
        lock(&self.stock.offer).served.clone()
    }

    /// Whether it is known for this configuration what it offers: by approval, or since it has said so.
    pub fn is_listed(&self) -> bool {
        lock(&self.stock.offer).approved.is_some()
    }

    /// The last failure, if it has not run well since.
    pub fn last_fault(&self) -> Option<Fault> {
        lock(&self.stock.trouble).last().cloned()
    }

    /// The instances that run and take calls.
    pub fn instances(&self) -> Vec<Arc<Instance>> {
        self.stock.running().into_iter().filter(|instance| instance.is_usable()).collect()
    }

    /// The instances that end as soon as nobody uses them, since the server is no more what it was.
    pub fn leaving(&self) -> Vec<Arc<Instance>> {
        if self.stock.leaving().is_some() { self.stock.running() } else { Vec::new() }
    }

    /// Why they do.
    pub fn why_leaving(&self) -> Option<&'static str> {
        self.stock.leaving().map(|leaving| leaving.why)
    }

    /// What somebody is told who comes to it by a configuration that is no longer in force.
    pub(super) fn gone(&self) -> Fault {
        let why = self.stock.leaving().map_or("it has changed", |leaving| leaving.why);
        Fault::new(Class::Unavailable, format!("server {} cannot be used: {why}", self.server.name))
    }
}
